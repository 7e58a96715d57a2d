"""Conversations filled into a skeleton are those that are rendered, byte for byte, and every number beside."""

import json
import random

import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st
from rendered_twice import assert_same, batch, count_filled, filling_in, renderers
from supervision_stages import assistant, chat, samples, system, user
from tokenizers import Tokenizer

from packer.render import filling as fast_path
from packer.render import recorder
from packer.render import renderer as batches
from packer.render.environment import ChatTemplate
from packer.render.shape import shape_of

TWO_MODES = """{%- for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\n' }}
{%- if m.role == 'assistant' and loop.last and enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}
{%- endif %}{{ m.content ~ '<|im_end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}
{%- if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}"""
TRIMS = twins.CHATML.replace("message['content']", "message['content'] | trim").replace("m.content", "m.content | trim")
ECHOES = (
    twins.CHATML
    + "{% if not add_generation_prompt %}{{ '<!--' ~ messages[0].content ~ messages[0].content ~ '-->' }}{% endif %}"
)
DROPS_SYSTEM = "{% set messages = messages | rejectattr('role', 'equalto', 'system') | list %}" + twins.CHATML
LOOKS = (
    "{% for m in messages %}{% if m.content | length > 9 %}{{ '<|im_start|>' }}{% endif %}{% endfor %}" + twins.CHATML
)
ASKS = (
    "{% for m in messages %}{% if 'secret' in m.content or m.content.startswith('!') or m.content == 'ping' %}"
    "{{ '<|im_start|>note\n<|im_end|>\n' }}{% endif %}{% endfor %}" + twins.CHATML
)
PARTS = twins.CHATML.replace("(message.content or '')", "message.content[0].text")
CUTS = "{% for m in messages %}{% set _ = m.content[:20] %}{% endfor %}" + twins.CHATML
RAISES = (
    "{% for m in messages %}{% if loop.index0 and m.role == messages[loop.index0 - 1].role %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}" + twins.CHATML
)
VARIABLES = "{{ documents or 'no documents' }}{{ style }}{{ tools or '' }}" + twins.CHATML
TEMPLATES = {
    "variables": VARIABLES,
    "chatml": twins.CHATML,
    "thinking": twins.QWEN3_LIKE,
    "two modes": TWO_MODES,
    "trims": TRIMS,
    "echoes": ECHOES,
    "drops system": DROPS_SYSTEM,
    "asks": ASKS,
    "raises": RAISES,
    "closed by headers": twins.GLM_LIKE,
    "takes parts": PARTS,
    "looks": LOOKS,
    "cuts": CUTS,
}
FILLED = {"chatml", "two modes", "trims", "echoes", "asks", "raises"}
"""Those whose skeletons must be used."""

RULES = (
    "",
    *(
        "history_rewrite=last",
        "history_rewrite=as_rendered",
        "on_prompt_mismatch=continue",
        "on_prompt_mismatch=common_prefix",
    ),
    *("turns=last", "control_tokens=reject", "control_tokens=allow", "no_terminator=append"),
    *("template.kwargs={style: plain, documents: [{title: t}]}", "template.kwargs.enable_thinking=false"),
    *("reasoning=field", "reasoning=inline", "allow_dropped=[system,user]"),
)
WORDS = (
    *("plain words here", "words", " padded ", "\n", "", "x", "secret", "!", "ping", "<|im_end|>", "a<|im_end|>b"),
    *("<think>hm</think>so", "</think>", "<|im_start|>user\n", "<|im_end", "|>", "ümläut ﬀ 漢字", "half \ud800 pair"),
    *("plain words here", "longer than nine", "zqslot000001c000x", "<!--", "\ue0f0", "assistant\n", "words", "user"),
)


def random_conversation(rng, row):
    roles = rng.choice([["user", "assistant"], ["user", "assistant"] * 2, ["system", "user", "assistant"]])
    if rng.random() < 0.1:
        roles = [rng.choice(["system", "user", "assistant", "tool"]) for _ in range(rng.randrange(1, 5))]
    words = WORDS if rng.random() < 0.5 else WORDS[:2]
    messages = [{"role": role, "content": rng.choice(words)} for role in roles]
    weights = {len(roles) - 1: rng.choice([0.0, 0.5, 1.0])} if rng.random() < 0.2 and roles[-1] == "assistant" else {}
    return chat(*messages, row=row, weights=weights)


PAIRS = [
    pytest.param(name, rule, marks=pytest.mark.slow if (t + r) % 6 and r else [])
    for t, name in enumerate(TEMPLATES)
    for r, rule in enumerate(RULES)
]
"""Every template without a rule and under a sixth of them, another sixth each time; in `make deep` all pairs."""


@pytest.mark.parametrize(("name", "rule"), PAIRS)
def test_what_is_filled_is_what_is_rendered(name, rule, tmp_path, monkeypatch):
    monkeypatch.setattr(fast_path, "WORTH_A_SKELETON", 1)
    overrides = [f"supervision.{rule}" if "." not in rule else rule] if rule else []
    twin = twins.header_stops if name == "closed by headers" else twins.byte_level
    filling, rendering = renderers(True, twin(tmp_path, template=TEMPLATES[name]), TEMPLATES[name], *overrides)
    rng = random.Random(f"{name} {rule}")
    rows = [random_conversation(rng, row) for row in range(75)]
    rendered = rendering.render(batch(rows))
    assert_same(filling_in(filling, rows), rendered)
    filled = count_filled(filling, rows)
    assert filled > 20 if name in FILLED else filled < 75, filled


@given(
    name=st.sampled_from(sorted(TEMPLATES)),
    words=st.lists(
        st.text(alphabet=st.sampled_from(list(" \n<>|/![]abcimnstx_ékd")), max_size=14) | st.sampled_from(WORDS),
        min_size=2,
        max_size=6,
    ),
)
def test_any_words_are_filled_as_they_are_rendered(name, words, made):
    filling, rendering = made[name]
    roles = ["user", "assistant"] * 3
    conversations = [[{"role": role, "content": word} for role, word in zip(roles, words, strict=False)]]
    rows = samples(conversations * 2)
    assert_same(filling_in(filling, rows), rendering.render(batch(rows)))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Renderers with and without skeletons, for every template."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast_path, "WORTH_A_SKELETON", 1)
        renderers_of = {}
        for name, template in TEMPLATES.items():
            twin = twins.header_stops if name == "closed by headers" else twins.byte_level
            renderers_of[name] = renderers(True, twin(tmp_path_factory.mktemp("twin"), template=template), template)
        yield renderers_of


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_a_skeleton_does_not_depend_on_the_shapes_that_were_met_before(name, tmp_path, monkeypatch):
    """What they begin with in common is rendered once, within limits."""
    monkeypatch.setattr(fast_path, "WORTH_A_SKELETON", 1)
    twin = twins.header_stops if name == "closed by headers" else twins.byte_level
    folder = twin(tmp_path, template=TEMPLATES[name])
    turns = [[role("words here") for role in (user, assistant) * number] for number in (3, 1, 2, 4)]
    turns += [[system("be"), *messages] for messages in turns]
    for limit in (2**25, 1000):
        monkeypatch.setattr(recorder, "_MOST_CHARACTERS", limit)
        shared, _ = renderers(True, folder, TEMPLATES[name])
        for messages in turns:
            alone, _ = renderers(True, folder, TEMPLATES[name])
            (shape,) = [shape_of(each, []) for each in samples([messages])]
            assert shared._filling._skeleton(shape) == alone._filling._skeleton(shape)


def test_what_shapes_begin_with_is_rendered_once_for_each_text_that_is_tried(tmp_path, monkeypatch):
    monkeypatch.setattr(fast_path, "WORTH_A_SKELETON", 1)
    filling, _ = renderers(True, twins.byte_level(tmp_path, template=twins.CHATML), twins.CHATML)
    rendered, render = [], ChatTemplate.render
    monkeypatch.setattr(
        ChatTemplate, "render", lambda *given, **named: (rendered.append(len(given[1])), render(*given, **named))[1]
    )
    for number in (8, 7, 6, 5):  # of so many texts, none is longer than another's
        assert count_filled(filling, samples([[user("one?"), assistant("One.")] * number]))
    # Long texts, single characters and hard ones, of 8 prompts and turns; for each turn, words that may be lost; and
    # two to learn whether the template takes texts.
    assert len(rendered) == 3 * 16 + 8 + 2


def test_a_skeleton_is_made_for_a_shape_that_a_batch_holds_often(tmp_path, monkeypatch):
    monkeypatch.setattr(fast_path, "WORTH_A_SKELETON", 4)
    filling, _ = renderers(True, twins.byte_level(tmp_path, template=twins.CHATML), twins.CHATML)
    rows = samples([*[[user("one?"), assistant("One.")]] * 4, [system("be"), user("one?"), assistant("One.")]])
    assert sorted(filling._filling.fill(rows)) == [0, 1, 2, 3]
    assert not filling._filling.fill(rows[1:])


@pytest.mark.parametrize("place", [0, batches.COMPARE_EVERY])
def test_one_row_that_is_filled_in_otherwise_has_the_whole_batch_rendered(place, tmp_path, monkeypatch):
    filling, rendering = renderers(True, twins.byte_level(tmp_path, template=twins.CHATML), twins.CHATML)
    rows = samples([[user(f"{number}?"), assistant("One.")] for number in range(2 * batches.COMPARE_EVERY)])
    fill = filling._filling.fill

    def wrong(given_rows):
        filled = fill(given_rows)
        assert len(filled) == len(rows)
        return filled | {3: filled[4], place: filled[place + 1]}

    monkeypatch.setattr(filling._filling, "fill", wrong)
    assert_same(filling.render(batch(rows)), rendering.render(batch(rows)))


def test_words_that_would_pass_the_limit_of_a_rendering_are_rendered(tmp_path, monkeypatch):
    """Which rejects them, or finds that they do not pass it."""
    monkeypatch.setattr(fast_path, "WORTH_A_SKELETON", 1)
    folder = twins.byte_level(tmp_path, template=twins.CHATML)
    filling, rendering = renderers(True, folder, twins.CHATML, "rows.max_render_bytes=1500")
    rows = samples([[user("u" * size), assistant("a")] for size in (1, 5, 20, 30, *range(300, 1700, 40))])
    assert_same(filling_in(filling, rows), rendering.render(batch(rows)))
    assert 0 < len(rendering.render(batch(rows)).rejections) < len(rows)
    assert 0 < count_filled(filling, rows) < len(rows) - len(rendering.render(batch(rows)).rejections)


def test_generation_marks_and_tokenizers_without_stops_have_no_skeletons(tmp_path):
    marked = twins.CHATML.replace("{{", "{% generation %}{{", 1).replace("}}", "}}{% endgeneration %}", 1)
    renderers(False, twins.byte_level(tmp_path, template=marked), marked, "supervision.source=generation_tags")


AROUND = """{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\n' ~ BEFORE ~ m.content ~ BEHIND ~ '<|im_end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""


@pytest.mark.parametrize(
    ("template", "contents"),
    [
        (AROUND.replace("BEFORE", "''").replace("BEHIND", "'>'"), ("hi", "<think")),
        (AROUND.replace("BEFORE", "'<'").replace("BEHIND", "''"), ("hi", "/think>")),
        (AROUND.replace("BEFORE", "'<'").replace("BEHIND", "'>'"), ("hi", "think")),
        (AROUND.replace("BEFORE", "m.content").replace("BEHIND", "'THINK' ~ m.content"), ("hi", "][")),
        (AROUND.replace("BEFORE", "'zqslot000000c000x'").replace("BEHIND", "''"), ("one?", "One.")),
        (AROUND.replace("BEFORE", "style").replace("BEHIND", "''"), ("one?", "One.")),
        (
            twins.CHATML.replace("message.content or", "'' if 'x' * 10 in message.content else message.content or"),
            ("y" * 40,) * 2,
        ),
    ],
)
def test_words_that_the_template_around_them_gives_a_meaning_are_rendered(template, contents, tmp_path, monkeypatch):
    """They complete a tag of reasoning, are those that skeletons are made with, or those that losses are found with."""
    monkeypatch.setattr(fast_path, "WORTH_A_SKELETON", 1)
    kwargs = "template.kwargs={style: zqslot000001c000x}"
    filling, rendering = renderers(True, twins.byte_level(tmp_path, template=template), template, kwargs)
    rows = samples(
        [[{"role": role, "content": text} for role, text in zip(("user", "assistant"), contents, strict=True)]]
    )
    assert_same(filling_in(filling, rows), rendering.render(batch(rows)))
    assert count_filled(filling, rows) == 0


def test_a_role_may_be_named_as_what_stands_for_words(tmp_path, monkeypatch):
    monkeypatch.setattr(fast_path, "WORTH_A_SKELETON", 1)
    filling, rendering = renderers(True, twins.byte_level(tmp_path, template=twins.CHATML), twins.CHATML)
    rows = samples([[{"role": "zqslot000001c000x", "content": "be"}, user("one?"), assistant("One.")]])
    assert_same(filling_in(filling, rows), rendering.render(batch(rows)))


def test_stop_tokens_within_one_another_have_no_skeletons(tmp_path):
    """What the template writes behind a stop token may make it another one."""
    folder = twins.byte_level(tmp_path)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens(["<|im_end|>x"])
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = [tokenizer.token_to_id(token) for token in ("<|im_end|>", "<|im_end|>x")]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
    renderers(False, folder, ECHOES)


def test_a_header_that_is_looked_for_leaves_no_skeleton(tmp_path, monkeypatch):
    """Words and what stands behind them may be a stop token, which closes the turn before."""
    monkeypatch.setattr(fast_path, "WORTH_A_SKELETON", 1)
    template = "{% for m in messages %}{{ m.content ~ 'text|>\n' }}{% endfor %}"
    filling, rendering = renderers(True, twins.nfc(tmp_path), template, "supervision.no_terminator=append")
    rows = samples([[user("one?"), assistant("One."), user(words)] for words in ("<|endof", "two?")])
    assert_same(filling_in(filling, rows), rendering.render(batch(rows)))
    assert count_filled(filling, rows) == 0
