"""Chats whose texts are filled into the rendering of others, or cut from few renderings, are those of the definition."""

import random

import msgspec
import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st
from rendered_twice import assert_same, batch, hold, renderers
from supervision_stages import assistant, chat, samples, user

from packer.media.carried import CLOSE, OPEN, Images
from packer.media.images import Image
from packer.media.processor import RefusedSizesError, Replacement
from packer.render.clear import filling
from packer.render.clear import rows as clear_rows
from packer.render.rewritten_history import RenderedRow

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
FILLED = {"chatml", "variables", "thinking", "trims", "asks", "raises", "drops system"}
"""Those under which chats must be filled in."""

RULES = (
    *("", "history_rewrite=last", "history_rewrite=as_rendered", "on_prompt_mismatch=continue"),
    *("turns=last", "control_tokens=reject", "control_tokens=allow", "no_terminator=append"),
    *("template.kwargs={style: plain, documents: [{title: t}]}", "template.kwargs.enable_thinking=false"),
    *("reasoning=field", "reasoning=inline", "allow_dropped=[system,user]"),
)
WORDS = (
    *("plain words here", "words", " padded ", "\n", "", "x", "secret", "!", "ping", "<|im_end|>", "a<|im_end|>b"),
    *("<think>hm</think>so", "</think>", "<|im_start|>user\n", "<|im_end", "|>", "ümläut ﬀ 漢字", "half \ud800 pair"),
    *("plain words here", "longer than nine", "Zq000W.", "<!--", "\ue0f0", "assistant\n", "words", "user", "&amp;"),
)


def random_conversation(rng, row):
    roles = rng.choice([["user", "assistant"], ["user", "assistant"] * 2, ["system", "user", "assistant"]])
    if rng.random() < 0.1:
        roles = [rng.choice(["system", "user", "assistant", "tool"]) for _ in range(rng.randrange(1, 5))]
    words = WORDS if rng.random() < 0.5 else WORDS[:2]
    messages = [{"role": role, "content": rng.choice(words)} for role in roles]
    flags = {len(roles) - 1: rng.choice([False, True])} if rng.random() < 0.2 and roles[-1] == "assistant" else {}
    return chat(*messages, row=row, flags=flags)


PAIRS = [
    pytest.param(name, rule, marks=pytest.mark.slow if (t + r) % 8 and r else [])
    for t, name in enumerate(TEMPLATES)
    for r, rule in enumerate(RULES)
    if (t + r) % 4 == 0 or not r
]
"""Every template without a rule and under an eighth of them, other ones each time; in `make deep` under a quarter."""


@pytest.mark.parametrize(("name", "rule"), PAIRS)
def test_what_is_filled_or_cut_is_what_is_rendered(name, rule, tmp_path):
    overrides = [f"supervision.{rule}" if "." not in rule else rule] if rule else []
    twin = twins.header_stops if name == "closed by headers" else twins.byte_level
    fast, letter = renderers(twin(tmp_path, template=TEMPLATES[name]), TEMPLATES[name], *overrides)
    rng = random.Random(f"{name} {rule}")
    rows = [random_conversation(rng, row) for row in range(24)]
    found = hold(fast, rows)
    assert found.filled > 3 if name in FILLED else found.filled < 24, found.filled
    assert_same(fast.render(batch(rows)), letter.render(batch(rows)))


@given(
    name=st.sampled_from(sorted(TEMPLATES)),
    words=st.lists(
        st.text(alphabet=st.sampled_from(list(" \n<>|/![]abcimnstx_ékd")), max_size=14) | st.sampled_from(WORDS),
        min_size=2,
        max_size=6,
    ),
)
def test_any_words_are_filled_in_or_cut_as_they_are_rendered(name, words, made):
    fast, _ = made[name]
    roles = ["user", "assistant"] * 3
    hold(fast, samples([[{"role": role, "content": word} for role, word in zip(roles, words, strict=False)]]))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    renderers_of = {}
    for name, template in TEMPLATES.items():
        twin = twins.header_stops if name == "closed by headers" else twins.byte_level
        renderers_of[name] = renderers(twin(tmp_path_factory.mktemp("twin"), template=template), template)
    return renderers_of


def test_filling_is_prepared_for_a_form_that_is_frequent(tmp_path, monkeypatch):
    monkeypatch.setattr(filling, "WORTH_FILLING", 4)
    monkeypatch.setattr(clear_rows, "WORTH_A_TRIAL", 100)
    fast, _ = renderers(twins.byte_level(tmp_path, template=twins.CHATML), twins.CHATML)
    rows = samples([[user("one, or?"), assistant("One of them."), user("two?"), assistant("Two of them.")]] * 6)
    assert [fast._fill(row) is not None for row in rows] == [False, False, False, True, True, True]
    fast, _ = renderers(twins.byte_level(tmp_path, template=twins.CHATML), twins.CHATML)
    assert [fast._cut(row) is not None for row in rows * 2] == [False] * 6 + [True] * 6


@pytest.mark.parametrize("place", [0, clear_rows.COMPARE_EVERY])
def test_one_row_that_is_filled_in_otherwise_has_the_whole_batch_rendered(place, tmp_path, monkeypatch):
    fast, letter = renderers(twins.byte_level(tmp_path, template=twins.CHATML), twins.CHATML)
    rows = samples([[user(f"{number}, or?"), assistant("One of.")] for number in range(2 * clear_rows.COMPARE_EVERY)])
    fill = fast._fill

    def wrong(sample):
        return fill(rows[sample.row + 1]) if sample.row in (3, place) else fill(sample)

    monkeypatch.setattr(fast, "_fill", wrong)
    assert_same(fast.render(batch(rows)), letter.render(batch(rows)))


def test_words_that_would_pass_the_limit_of_a_rendering_are_rendered(tmp_path):
    """Which rejects them, or finds that they do not pass it."""
    folder = twins.byte_level(tmp_path, template=twins.CHATML)
    fast, letter = renderers(folder, twins.CHATML, "rows.max_render_bytes=1500")
    rows = samples([[user("u " * size), assistant("a, b")] for size in (1, 5, 20, 30, *range(100, 850, 20))])
    found = hold(fast, rows)
    num_rejected = len(letter.render(batch(rows)).rejections)
    assert 0 < num_rejected < len(rows)
    assert 0 < found.cut < len(rows) - num_rejected
    assert 0 < found.filled < len(rows) - num_rejected


AROUND = """{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\n' ~ BEFORE ~ m.content ~ BEHIND ~ '<|im_end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""


@pytest.mark.parametrize(
    ("template", "contents"),
    [
        (AROUND.replace("BEFORE", "''").replace("BEHIND", "'>'"), ("hi", "<think")),
        (AROUND.replace("BEFORE", "'<'").replace("BEHIND", "''"), ("hi", "/think>")),
        (AROUND.replace("BEFORE", "'<'").replace("BEHIND", "'>'"), ("hi", "think")),
        (AROUND.replace("BEFORE", "'&'").replace("BEHIND", "''"), ("hi", "lt; so it is")),
        (AROUND.replace("BEFORE", "m.content").replace("BEHIND", "'THINK' ~ m.content"), ("hi", "][")),
        (AROUND.replace("BEFORE", "'Zq000W.'").replace("BEHIND", "''"), ("one?", "One.")),
        (AROUND.replace("BEFORE", "style").replace("BEHIND", "''"), ("one?", "One.")),
        (
            twins.CHATML.replace("message.content or", "'' if 'x' * 10 in message.content else message.content or"),
            ("y" * 40,) * 2,
        ),
    ],
)
def test_words_that_the_template_around_them_gives_a_meaning_are_not_filled_in(template, contents, tmp_path):
    """They complete a tag of reasoning or an escape, are those that are filled out, or those that losses are found with."""
    kwargs = "template.kwargs={style: Zq001W.}"
    fast, _ = renderers(twins.byte_level(tmp_path, template=template), template, kwargs)
    roles = ("user", "assistant")
    rows = samples([[{"role": role, "content": text} for role, text in zip(roles, contents, strict=True)]])
    assert hold(fast, rows).filled == 0


def test_nothing_is_filled_in_if_the_definition_renders_the_words_otherwise(tmp_path):
    fast, _ = renderers(twins.byte_level(tmp_path, template=twins.CHATML), twins.CHATML)
    (row,) = samples([[user("one, or?"), assistant("One of them.")]])

    def later(sample):
        (text,), num_skipped = fast._defined(sample)
        return RenderedRow((text._replace(turns=tuple((k, a + 1, b) for k, a, b in text.turns)),), num_skipped)

    for define, is_filled in ((fast._defined, True), (later, False)):
        filling_in = filling.Filling(fast._clear_rows_of(fast._template), fast._worded, define)
        assert (filling_in.filled(row) is not None) == is_filled


SHOWS = (
    "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\n' }}{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}{% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}{% endfor %}"
    "{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
WITH_IMAGES = {
    "shows": (SHOWS, True),
    "trims": (SHOWS.replace("part.text", "part.text | trim"), True),
    "asks": (SHOWS.replace("{{ part.text }}", "{{ part.text ~ ('!' if 'secret' in part.text else '') }}"), True),
    "asks of answers": (SHOWS.replace("{{ m.content }}", "{{ '' if 'secret' in m.content else m.content }}"), True),
    "looks": (SHOWS.replace("{{ part.text }}", "{{ part.text ~ ('!' if part.text | length > 4 else '') }}"), False),
    "a mode looks": (
        SHOWS + "{% if add_generation_prompt and enable_thinking is defined and not enable_thinking %}"
        "{{ '<think>\n\n</think>\n\n' ~ ('s' if messages[0].content is not string and messages[0].content[-1].text[:1] == 's' else '') }}{% endif %}",
        False,
    ),
    "has no loop": ("{% macro all() %}{% for m in messages %}{{ m.role }}{% endfor %}{% endmacro %}{{ all() }}", False),
    "drops": (SHOWS.replace("== 'image' %}<image>", "== 'image' %}"), False),
}


class Writes:
    """A processor that writes another text for each size, and refuses one."""

    token, is_alone = "<image>", True

    def replacements(self, sizes):
        if (1, 1) in sizes:
            raise RefusedSizesError("too small")
        return [Replacement(f"<{height}>p</{width}>", (height * width,), height) for height, width in sizes]


@pytest.mark.parametrize("name", WITH_IMAGES)
def test_rows_with_images_are_filled_in_as_they_are_rendered(name, tmp_path):
    template, is_filled = WITH_IMAGES[name]
    fast, _ = renderers(twins.byte_level(tmp_path, template=template), template)
    fast._processor = Writes
    rng, rows = random.Random(name), []
    for row in range(60):
        marks = [f"{OPEN}{number}-{'0' * 16}{CLOSE}" for number in range(3)]
        asked = rng.choice([marks[:1], marks[:2], [marks[1], rng.choice(WORDS), marks[0]], [marks[2], marks[2]]])
        words = rng.choices(WORDS if row % 2 else WORDS[:3], k=3)
        words[0] += rng.choice(["", " secret, too"])
        later = [user(rng.choice([words[2], marks[1] + words[2]])), assistant(words[1])] if row % 3 else []
        sample = chat(user("".join([*asked, words[0]])), assistant(words[1]), *later, row=row)
        sizes = [(2 + row % 5, 3), (7, 2 + row % 3), (1, 1) if row % 7 == 5 else (4, 4)]
        images = tuple(Image(sha256=bytes(32), height=height, width=width, data=b"") for height, width in sizes)
        rows.append(msgspec.structs.replace(sample, images=Images(images, "")))
    found = hold(fast, [row for row in rows for _ in range(2)])
    assert found.filled > 12 if is_filled else found.filled == 0
    assert found.kept > 12 or name in ("drops", "has no loop")
    fast._processor = type("Together", (Writes,), {"is_alone": False})
    assert hold(fast, rows).filled == 0
