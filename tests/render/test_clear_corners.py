"""Templates that look as if one rendering served for others, and where it does not: each row is refused, or rendered rightly."""

import itertools
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
import twins
from conversation_shapes import TOOL
from hypothesis import given
from hypothesis import strategies as st
from rendered_twice import ENDING, assert_same, batch, framed, held, hold, literal, renderers
from search_effort import IS_DEEP, one_in, percent_of_examples
from supervision_stages import assistant, call, chat, result, samples, system, user
from tokenizers import Tokenizer

from packer.batches import Sample
from packer.render.clear import rows as clear
from packer.render.renderer import Renderer

Under = Callable[..., Renderer]

BODIES = {
    "its number": "{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.depth }}",
    "the item before": "{{ loop.previtem.role if not loop.first }}",
    "two items before": "{{ messages[loop.index0 - 2].role if loop.index0 > 1 }}",
    "the next item": "{{ loop.nextitem.role if not loop.last }}{{ ' last' if loop.last }}",
    "the next item, if any": "{{ loop.nextitem is defined }}",
    "what comes after the next": "{{ messages[loop.index0 + 2].role if loop.index0 + 2 < messages | length }}",
    "messages by number": "{{ messages[0].role }}{{ messages[loop.index0 - 1].role if not loop.first }}",
    "the last message": "{{ messages[-1].role }}",
    "the text of the last message": "{{ messages[-1].content }}",
    "no message": "{{ messages['x'] }}{{ messages[99] is defined }}",
    "a text from outside": "{{ opening }}",
    "a bound": "{{ loop.index0 > number }}{{ number >= loop.index }}{{ loop.index == number }}",
    "a bound of a namespace": "{{ loop.index0 <= ns.number }}{{ ns.number != loop.index0 }}",
    "a namespace": "{{ ns.said }}{% if m.role == 'user' %}{% set ns.said = m.content %}{% endif %}",
    "a namespace that grows": "{% set ns.seen = ns.seen + [m.role] %}{{ ns.seen | join(',') }};",
    "a macro": "{{ shown(m) }}{{ ns.said }}",
    "the generation prompt": "{{ 'asked' if add_generation_prompt }}",
    "a loop within": "{% for c in m.content %}{{ loop.index0 }}{% endfor %}{{ loop.index0 }}",
    "a block": "{% set text %}{{ m.content }}{% endset %}{{ text | upper }}",
    "an early end": "{% if m.content == 'a' %}{% break %}{% endif %}",
    "a step over": "{% if m.role == 'tool' %}{% continue %}{% endif %}{{ loop.last }}",
    "a mistake": "{% if m.content == ' a' %}{{ raise_exception('no') }}{% endif %}",
    "the number of messages": "{{ messages | length }}",
    "whether there are many messages": "{{ 'many' if messages | length > 6 }}",
    "whether there are very many messages": "{{ 'very many' if messages | length > 21 }}",
    "from some message on": "{{ 'late' if loop.index > 9 }}",
    "every third": "{{ 'third' if loop.index0 % 3 == 2 }}",
    "the text trimmed": "{{ m.content | trim }}",
    "the text again": "{{ m.content }}{{ m.content }}",
    "whether a text is long": "{{ 'long' if m.content | length > 12 }}",
    "whether a text has some word": "{{ 'found' if 'not' in m.content }}",
    "whether some text has some word": "{{ 'found' if 'not' in messages | map(attribute='content') | join(' ') }}",
    "how a text begins": "{{ 'no' if m.content.startswith('No') }}{{ m.content[:2] }}",
    "parts of a text": "{{ m.content.split(',') | last }}",
    "a text that was said before": "{{ 'again' if m.content == messages[0].content and not loop.first }}",
    "a text that is said later": "{{ 'again' if m.content == messages[-1].content and not loop.last }}",
    "an escaped text": "{{ m.content | e }}",
    "what is left of a text": "{{ m.content | replace('a', '') }}",
    "the text as JSON": "{{ m.content | tojson }}",
}
"""What a template may write besides each text."""

AROUND = (
    "{% macro shown(m) %}{% set ns.said = opening %}<{{ m.role }} {{ number }}>{% endmacro %}"
    "{% set ns = namespace(said='', seen=[], number=0) %}{% set opening = messages[0].content %}{% set number = 1 %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set ns.number = loop.index0 %}{% endif %}{% endfor %}"
)

FRAMES = {"nothing more": framed(""), **{name: AROUND + framed(body) for name, body in BODIES.items()}}
ALL = {name: source + ENDING for name, source in FRAMES.items()}
TWINS = (twins.CHATML, twins.LLAMA2_LIKE, twins.PHI_LIKE, twins.QWEN3_LIKE, twins.MISTRAL_LIKE)
ALL |= {f"twin {number}": source for number, source in enumerate(TWINS)}
OFTEN = one_in(3, sorted(ALL))

WORDS = (
    "What is that, and why?",
    "a, b",
    "No, not at all.",
    "Ask 1?",
    "Say 2.",
    "go on, then",
    "x y z",
    " a",
    "a",
    "yes",
    "7",
)


def conversation(chance: random.Random, row: int) -> Sample:
    """Questions and answers, most in turn, with calls among them; texts repeat."""
    messages = [system(chance.choice(WORDS))] if chance.random() < 0.3 else []
    for _ in range(chance.choice((1, 1, 2, 2, 3, 4, 5, 8, 12))):
        messages += [user(chance.choice(WORDS))] * (2 if chance.random() < 0.1 else 1)
        if chance.random() < 0.3:
            messages.append(
                assistant(chance.choice(("", *WORDS)), tool_calls=[call("look", {"q": chance.choice(WORDS)})])
            )
            messages.append(result(chance.choice(WORDS)))
        messages += [assistant(chance.choice(WORDS))] * (2 if chance.random() < 0.1 else 1)
    messages += [user(chance.choice(WORDS))] * (chance.random() < 0.2)
    return chat(*messages, row=row)


ALLOWED = "supervision.allow_dropped=[tool_call]"


@percent_of_examples(100)
@given(name=st.sampled_from(sorted(ALL)), seed=st.integers(0, 2**32))
def test_whatever_a_template_looks_at_a_row_is_refused_or_rendered_rightly(name: str, seed: int, under: Under) -> None:
    chance = random.Random(seed)
    hold(under(ALL[name], ALLOWED), [conversation(chance, row) for row in range(8)])


@pytest.mark.parametrize("name", OFTEN)
def test_a_batch_is_rendered_as_by_the_letter(name: str, under: Under) -> None:
    renderer = under(ALL[name], ALLOWED)
    chance = random.Random(name)
    rows = batch([conversation(chance, row) for row in range(4)])
    assert_same(renderer.render(rows), literal(renderer).render(rows))


TAKEN = {
    *("nothing more", "its number", "the item before", "two items before", "messages by number", "a text from outside"),
    *("a bound", "a macro", "the text trimmed", "from some message on", "every third", "the text again"),
    *("no message", "a mistake", "an early end", "whether a text has some word", "a block"),
}
"""Those under which clear rows must be cut, so that refusing is not all that is tested."""


@pytest.mark.parametrize("name", sorted(BODIES) if IS_DEEP else sorted(TAKEN - {"nothing more"}))
def test_which_templates_are_taken_the_fast_way(name: str, under: Under) -> None:
    words = ("What of this, then?", "It is so.", "And what of that?", "That is so, too.")
    talk = [role(word) for role, word in zip((user, assistant) * 2, words, strict=True)]
    found = hold(under(ALL[name], ALLOWED), samples([talk, talk[:2], [system("Be brief, but kind."), *talk]]))
    assert found.cut == 3 or name not in TAKEN, name


def test_texts_that_were_called_equal_are_told_apart(under: Under) -> None:
    """What a template found different in two words may be equal in two texts."""
    renderer = under(AROUND + framed(BODIES["a text that is said later"]) + ENDING, ALLOWED)
    twice = [user("It is so."), assistant("It is so.")]
    other = [user("Is it so?"), assistant("It is so.")]
    assert not hold(renderer, samples([other, twice] * 3)).filled


def test_a_message_that_stands_beside_what_no_trial_had_is_rendered(under: Under) -> None:
    renderer = under(twins.QWEN3_LIKE, ALLOWED)
    usual = [user("Is it so?"), assistant("It is so."), user("Why is it?"), assistant("It just is.")]
    twice = [*usual, assistant("Or is it?")]
    found = hold(renderer, samples([usual, twice]))
    assert found.cut == 1


WITH_TOOLS = "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}" + framed("") + ENDING


def test_a_batch_in_which_the_fast_way_is_wrong_is_rendered_as_it_is(
    under: Under, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clear, "COMPARE_EVERY", 5)
    renderer = under(WITH_TOOLS, ALLOWED)
    rows = batch([chat(user(f"Is it {row}?"), assistant(f"It is {row}."), row=row, tools=[TOOL]) for row in range(20)])
    cut, wrong = renderer._cut, 0

    def mistaken(sample: Sample) -> Any:
        nonlocal wrong
        row = cut(sample)
        assert row is not None
        if sample.row < 10:
            return row
        wrong += 1
        (text,) = row.texts
        return row._replace(texts=(text._replace(content=text.content.replace(b"Is it", b"Was it")),))

    expected = literal(renderer).render(rows)
    monkeypatch.setattr(renderer, "_cut", mistaken)
    assert_same(renderer.render(rows), expected)
    assert wrong == 1  # the first that was compared ended it


def test_rows_with_neighbors_for_which_the_fast_way_is_wrong_are_rendered(
    under: Under, monkeypatch: pytest.MonkeyPatch
) -> None:
    renderer = under(WITH_TOOLS, ALLOWED)
    talk = [user("Is it so?"), assistant("It is so.")]
    rows = batch([chat(*talk * (1 + row % 2), row=row, tools=[TOOL]) for row in range(20)])
    cut, asked = renderer._cut, []

    def mistaken(sample: Sample) -> Any:
        asked.append(sample.row)
        row = cut(sample)
        return row if len(sample.messages) == 2 else row._replace(num_skipped=7)

    expected = literal(renderer).render(rows)
    monkeypatch.setattr(renderer, "_cut", mistaken)
    assert_same(renderer.render(rows), expected)
    assert asked == [0, 1, *range(2, 20, 2)]


LONG = [system("Be brief."), *itertools.chain(*((user(f"Ask {i}?"), assistant(f"Say {i}.")) for i in range(24)))]


@pytest.mark.parametrize("source", [twins.CHATML, twins.QWEN3_LIKE])
def test_a_long_conversation_is_learned_as_by_the_letter(source: str, tmp_path: Any) -> None:
    folder = twins.byte_level(tmp_path / "twin", template=source)
    fast, letter = renderers(folder, source, "supervision.history_rewrite=as_rendered")
    rows = batch([chat(*LONG, row=0), chat(*LONG[:-1], row=1), chat(*LONG[1:], result("x"), assistant("y"), row=2)])
    one, other = fast.render(rows), letter.render(rows)
    assert len(one.turn_text) > 60
    assert_same(one, other)
    assert hold(fast, rows.samples).cut >= 2


def test_each_template_of_a_form_without_places_is_refused(under: Under) -> None:
    sources = (
        "{{ messages[0].content }}",
        "{% for m in messages if m.content %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}",
        "{% for m in messages %}{{ m.content }}<|im_end|>{% else %}none{% endfor %}",
        "{% set all %}{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}{% endset %}{{ all | replace('x', 'y') }}",
        "{% macro all(x) %}{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}{% endmacro %}{{ all(1) }}",
        "{% for m in messages | sort(attribute='content') %}{{ m.content }}<|im_end|>{% endfor %}",
        "{% for m in messages %}{{ m.content if loop.changed(m.content) }}<|im_end|>{% endfor %}",
        "{% for m in messages %}{{ m.content if m.content is upper }}<|im_end|>{% endfor %}",
    )
    rows = samples([[user("Is it so?"), assistant("It is so.")]])
    for source in sources:
        found = held(under(source, ALLOWED), rows)
        assert (found.cut, found.filled) == (0, 0), source


def test_stop_tokens_within_one_another_are_found_as_by_the_letter(tmp_path: Any) -> None:
    """What the template writes behind a stop token may make it another one."""
    folder = twins.byte_level(tmp_path)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens(["<|im_end|>x"])
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = [tokenizer.token_to_id(token) for token in ("<|im_end|>", "<|im_end|>x")]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
    source = framed("").replace("<|im_end|>\n", "<|im_end|>") + "{{ messages[0].content }}" + ENDING
    fast, _ = renderers(folder, source)
    rows = samples([[user(text), assistant("It is so.")] for text in ("Is it so?", "x or y?")])
    hold(fast, rows)
