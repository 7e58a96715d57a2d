"""A second opinion on what is trained: `{% generation %}` marks as transformers reads them, beside packer's rule.

Marks are somebody's words for what to train; packer computes it from prompts and turns. Where the two differ, every
single token of the difference gets a name here, and docs/explanation/generation-marks.md shows how often each occurs.
"""

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import twins
from fitted_tokenizers import templates
from supervision_stages import Stages, aliased, assistant, call, chat, result, system, user
from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import _compile_jinja_template, _render_with_assistant_indices

from packer.render import ChatTemplate, RenderError, written_markers

ALLOW_ALL = "supervision.allow_dropped=[system,user,content,reasoning,tool_call,tool_result,tools]"
LENIENT = ("supervision.on_prompt_mismatch=common_prefix", "supervision.no_terminator=append")
NAMED = {"bos_token": "<s>", "eos_token": "</s>"}
PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "generation-marks.md"

TOOL = {
    "type": "function",
    "function": {"name": "lookup", "description": "Looks up", "parameters": {"type": "object", "properties": {}}},
}
LOOK = {"id": "call00001", **call("lookup", {"city": "kettlecity"})}
ANSWER = {"name": "lookup", "tool_call_id": "call00001", **result("violetresult")}
SHAPES: dict[str, dict[str, Any]] = {
    "single": {"messages": [user("zebrauser"), assistant("ambercontent")]},
    "multi-turn": {
        "messages": [user("zebrauser"), assistant("ambercontent"), user("tigeruser"), assistant("olivecontent")]
    },
    "system": {"messages": [system("bluesystem"), user("zebrauser"), assistant("ambercontent")]},
    "tools": {
        "messages": [user("zebrauser"), assistant("rosecontent", tool_calls=[LOOK]), ANSWER, assistant("ambercontent")],
        "tools": [TOOL],
    },
    "reasoning": {
        "messages": [
            user("zebrauser"),
            assistant("ambercontent", reasoning_content="greyreason"),
            user("tigeruser"),
            assistant("olivecontent", reasoning_content="pinkreason"),
        ]
    },
    "in a row": {"messages": [user("zebrauser"), assistant("ambercontent"), assistant("olivecontent")]},
}
"""Words that occur once each, so that a stretch of a rendering belongs to one message."""

HEADER = "header"
HEADER_SPACE = "header's white space"
OPENING = "reasoning the prompt opens"
SPACE = "white space after the end"
END = "further end tokens"
OTHER = "other text"
NO_TERMINATOR = "terminator left out"
PART = "part of the reply left out"
NO_TURN = "turn left out"
REWRITTEN = "another context"
NO_END = "no terminator written"

CLASSES = (HEADER, HEADER_SPACE, OPENING, SPACE, END, OTHER, NO_TERMINATOR, PART, NO_TURN, REWRITTEN, NO_END)
"""Every token that only one of the two trains is in exactly one of these, but for the last, which is about no token."""


# -- the comparison --------------------------------------------------------------------------------------------------------


class Trained:
    """What packer trains of one conversation: for each message its ids, and where among them its completion begins."""

    def __init__(self, stages: Stages, shape: Mapping[str, Any]) -> None:
        _, _, supervised = stages.supervise([chat(*shape["messages"], tools=shape.get("tools"))])
        documents = supervised.documents
        self.turns: dict[int, tuple[list[int], int]] = {}
        for d in range(documents.num_documents):
            ids = documents.input_ids[documents.offsets[d] : documents.offsets[d + 1]].tolist()
            for run in range(documents.run_offsets[d], documents.run_offsets[d + 1]):
                end, start = int(documents.run_end[run]), int(documents.run_start[run])
                self.turns[int(documents.run_message[run])] = ids[:end], start


def differences(
    ids: Sequence[int], mask: Sequence[int], trained: Trained, messages: Sequence[Mapping[str, Any]], model: Any
) -> tuple[dict[int, str], Counter[str]]:
    """Class of every token that only one side trains, and how many turns each class touches.

    `ids`, `mask`: the whole conversation as transformers encodes it, and what marks train of it.
    """
    spans, moved, unclosed = _in_place(ids, trained)
    by_packer = {t for start, end in spans.values() for t in range(start, end)}
    ends = {end: k for k, (_, end) in spans.items()}
    starts = {start: k for k, (start, _) in spans.items()}
    classes: dict[int, str] = {}
    touched: set[tuple[str, int]] = {(NO_END, k) for k in unclosed}
    for k, (start, end) in spans.items():
        left = [t for t in range(start, end) if not mask[t]]
        for t in left:
            whole = len(left) == end - start
            classes[t] = NO_TURN if whole else NO_TERMINATOR if t == end - 1 and k not in unclosed else PART
            touched.add((classes[t], k))
    shown: set[int] = set()
    only_marks = [t for t, marked in enumerate(mask) if marked and t not in by_packer]
    for first, last in _stretches(only_marks):
        before, after = ends.get(first), starts.get(last)
        text = model.decode(ids[first:last])
        home = next((k for k in moved if any(word in text for word in _words(messages[k]))), None)
        for t in range(first, last):
            classes[t], turn = _of_marks(model.decode([ids[t]]), text, before, after, home, model.stops)
            touched.add((classes[t], turn))
            before = before if classes[t] in (SPACE, END) else None
        shown |= set() if home is None else {home}
    touched |= {(NO_TURN, k) for k in moved if k not in shown}
    return classes, Counter(name for name, _ in touched)


def _in_place(ids: Sequence[int], trained: Trained) -> tuple[dict[int, tuple[int, int]], list[int], list[int]]:
    """Turns whose context is the same on both sides, as spans of `ids`; the others; those closed by packer alone."""
    spans: dict[int, tuple[int, int]] = {}
    unclosed: list[int] = []
    for k, (own, start) in trained.turns.items():
        if list(ids[: len(own)]) == own:
            spans[k] = start, len(own)
        elif list(ids[: len(own) - 1]) == own[:-1]:
            spans[k] = start, len(own) - 1
            unclosed.append(k)
    return spans, [k for k in trained.turns if k not in spans], unclosed


def _of_marks(
    token: str, text: str, before: int | None, after: int | None, home: int | None, stops: Sequence[str]
) -> tuple[str, int]:
    """The class of one token of a stretch that only marks train, and its turn: that ending before it, or opening after."""
    if home is not None:
        return REWRITTEN, home
    if before is not None and (not token.strip() or token in stops):
        return (END if token in stops else SPACE), before
    if after is None:
        return OTHER, -1
    if not text.strip():
        return HEADER_SPACE, after
    return (OPENING if re.fullmatch(r"<think>\s*(</think>\s*)?", text) else HEADER), after


def _stretches(positions: Sequence[int]) -> Iterator[tuple[int, int]]:
    for _, group in itertools.groupby(enumerate(positions), key=lambda pair: pair[1] - pair[0]):
        members = [t for _, t in group]
        yield members[0], members[-1] + 1


def _words(message: Mapping[str, Any]) -> list[str]:
    return [str(message[name]) for name in ("content", "reasoning_content") if message.get(name)]


class Fitted:
    """The byte-level twin with every marker a template writes as a token of its own, as packer and transformers see it."""

    def __init__(self, folder: Path, source: str, stops: Sequence[str], *overrides: str) -> None:
        twins.byte_level(folder, template=source)
        backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
        written = written_markers(ChatTemplate(source, date="2026-01-01", variables=NAMED, max_bytes=2**26))
        special = [
            AddedToken(text, normalized=False, special=True) for text in dict.fromkeys(["<s>", *stops, *written])
        ]
        backend.add_special_tokens(special)
        backend.save(str(folder / "tokenizer.json"))
        named = {"bos_token": "<s>", "eos_token": stops[-1]}
        (folder / "tokenizer_config.json").write_text(json.dumps(named), "utf-8")
        eos = [backend.token_to_id(stop) for stop in stops]
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": eos}), "utf-8")
        self.stages = Stages.load(folder, ALLOW_ALL, *overrides)
        self.tokenizer = PreTrainedTokenizerFast(
            tokenizer_file=str(folder / "tokenizer.json"), chat_template=source, **named
        )
        self.stops = stops

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=False))

    def marked(self, shape: Mapping[str, Any]) -> tuple[list[int], list[int]] | None:
        """Ids and mask of transformers, with texts as lists of parts if it must be; None where the template raises."""
        for messages in (shape["messages"], [in_parts(message) for message in shape["messages"]]):
            try:
                encoding = self.tokenizer.apply_chat_template(
                    messages, tools=shape.get("tools"), return_dict=True, return_assistant_tokens_mask=True
                )
            except Exception:  # noqa: BLE001 - a template may raise anything; that is its answer
                continue
            return encoding["input_ids"], encoding["assistant_masks"]
        return None

    def compare(self, shape: Mapping[str, Any]) -> Counter[str]:
        """Class → turns it touches."""
        marked = self.marked(shape)
        assert marked is not None
        ids, mask = marked
        trained = Trained(self.stages, shape)
        assert trained.turns
        classes, touched = differences(ids, mask, trained, shape["messages"], self)
        spans, _, _ = _in_place(ids, trained)
        by_packer = {t for start, end in spans.values() for t in range(start, end)}
        assert set(classes) == {t for t, marked in enumerate(mask) if bool(marked) != (t in by_packer)}
        assert set(classes.values()) <= set(CLASSES)
        return touched


def in_parts(message: Mapping[str, Any]) -> dict[str, Any]:
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


# -- each class on a template of our own -----------------------------------------------------------------------------------


def chatml(turn: str, *, other: str = "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}") -> str:
    """ChatML in which assistant messages are written by `turn`."""
    return (
        "{% for m in messages %}{% if m.role == 'assistant' %}"
        + turn
        + "{% else %}"
        + other
        + "{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    )


def marked(text: str) -> str:
    return "{% generation %}{{ " + text + " }}{% endgeneration %}"


EXACT = "{{ '<|im_start|>assistant\\n' }}" + marked("m.content + '<|im_end|>'") + "{{ '\\n' }}"
WHOLE = marked("'<|im_start|>assistant\\n' + m.content + '<|im_end|>'") + "{{ '\\n' }}"
THOUGHTS = "'<think>\\n' + (m.reasoning_content or '') + '\\n</think>\\n\\n'"

SMALL: dict[str, tuple[str, str, dict[str, int]]] = {
    "exact": (chatml(EXACT), "multi-turn", {}),
    "header": (chatml(WHOLE), "multi-turn", {HEADER: 2}),
    "header of the next of two answers": (
        chatml(marked("'<|im_start|>assistant\\n' + m.content + '<|im_end|>\\n'")),
        "in a row",
        {HEADER: 2, SPACE: 2},
    ),
    "header's white space": (
        chatml("{{ '<|im_start|>assistant' }}" + marked("'\\n' + m.content + '<|im_end|>'") + "{{ '\\n' }}"),
        "multi-turn",
        {HEADER_SPACE: 2},
    ),
    "reasoning the prompt opens": (
        chatml(
            "{{ '<|im_start|>assistant\\n' }}" + marked(THOUGHTS + " + m.content + '<|im_end|>'") + "{{ '\\n' }}"
        ).replace("<|im_start|>assistant\\n' }}{% endif %}", "<|im_start|>assistant\\n<think>\\n' }}{% endif %}"),
        "reasoning",
        {OPENING: 2},
    ),
    "an empty block the prompt holds": (
        chatml(
            "{{ '<|im_start|>assistant\\n' }}" + marked(THOUGHTS + " + m.content + '<|im_end|>'") + "{{ '\\n' }}"
        ).replace(
            "assistant\\n' }}{% endif %}",
            "assistant\\n' + ('' if enable_thinking | default(true) else '<think>\\n\\n</think>\\n\\n') }}{% endif %}",
        ),
        "multi-turn",
        {OPENING: 2},
    ),
    "white space after the end": (
        chatml("{{ '<|im_start|>assistant\\n' }}" + marked("m.content + '<|im_end|>\\n'")),
        "multi-turn",
        {SPACE: 2},
    ),
    "further end tokens": (
        chatml("{{ '<|im_start|>assistant\\n' }}" + marked("m.content + '<|im_end|>\\n'"))
        + "{% if not add_generation_prompt %}" + marked("'<|endoftext|>'") + "{% endif %}",
        "multi-turn",
        {SPACE: 2, END: 1},
    ),
    "other text": (
        chatml(EXACT, other=marked("'<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>'") + "{{ '\\n' }}"),
        "multi-turn",
        {OTHER: 1},
    ),
    "terminator left out": (
        chatml("{{ '<|im_start|>assistant\\n' }}" + marked("m.content") + "{{ '<|im_end|>\\n' }}"),
        "multi-turn",
        {NO_TERMINATOR: 2},
    ),
    "part of the reply left out": (
        chatml("{{ '<|im_start|>assistant\\n' + " + THOUGHTS + " }}" + marked("m.content + '<|im_end|>'") + "{{ '\\n' }}"),
        "reasoning",
        {PART: 2},
    ),
    "turn left out": (
        chatml("{% if loop.last %}" + EXACT + "{% else %}" + EXACT.replace("{% generation %}", "").replace(
            "{% endgeneration %}", "") + "{% endif %}"),
        "multi-turn",
        {NO_TURN: 1},
    ),
    "another context": (
        chatml(
            "{{ '<|im_start|>assistant\\n' }}"
            + marked("(" + THOUGHTS + " if loop.last else '') + m.content + '<|im_end|>'") + "{{ '\\n' }}"
        ),
        "reasoning",
        {REWRITTEN: 1},
    ),
    "another context, left out": (
        chatml(
            "{{ '<|im_start|>assistant\\n' }}{% if loop.last %}" + marked(THOUGHTS + " + m.content + '<|im_end|>'")
            + "{% else %}{{ m.content + '<|im_end|>' }}{% endif %}{{ '\\n' }}"
        ),
        "reasoning",
        {NO_TURN: 1},
    ),
    "no terminator written": (
        chatml("{{ 'A:\\n' }}" + marked("m.content + '\\n'"), other="{{ m.role + ': ' + m.content + '\\n' }}").replace(
            "'<|im_start|>assistant\\n'", "'A:\\n'"),
        "single",
        {NO_END: 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_every_difference_has_a_name(name: str, tmp_path: Path) -> None:
    source, shape, expected = SMALL[name]
    fitted = Fitted(tmp_path, source, ["<|endoftext|>", "<|im_end|>"], *LENIENT)
    assert dict(fitted.compare(SHAPES[shape])) == expected


def test_the_small_templates_show_every_class() -> None:
    assert {name for _, _, expected in SMALL.values() for name in expected} == set(CLASSES)


# -- where the marks are -------------------------------------------------------------------------------------------------


def by_packer(source: str, shape: Mapping[str, Any]) -> tuple[str, tuple[tuple[int, int], ...]] | None:
    template = ChatTemplate(source, date="2026-01-01", variables=NAMED, max_bytes=2**26)
    assert template.has_marks
    try:
        return template.render_marked([aliased(m) for m in shape["messages"]], tools=shape.get("tools"))
    except RenderError:
        return None


def by_transformers(source: str, shape: Mapping[str, Any]) -> tuple[str, tuple[tuple[int, int], ...]] | None:
    messages = [aliased(message) for message in shape["messages"]]
    compiled = _compile_jinja_template(source)
    try:
        text, ranges = _render_with_assistant_indices(compiled, messages, shape.get("tools"), None, False, **NAMED)
    except Exception:  # noqa: BLE001 - as above
        return None
    return text, tuple(sorted(tuple(pair) for pair in ranges))


@pytest.mark.parametrize("name", SMALL)
def test_marks_are_found_where_transformers_finds_them(name: str) -> None:
    source, _, _ = SMALL[name]
    for shape in SHAPES.values():
        found = by_packer(source, shape)
        assert found is not None
        assert found == by_transformers(source, shape)


INSIDE: dict[str, str] = {
    "macro": "{% macro say(m) %}{{ '<|im_start|>assistant\\n' }}" + marked("m.content") + "{% endmacro %}"
    + chatml("{{ say(m) + '\\n' }}"),
    "captured": chatml("{% set turn %}{{ '<|im_start|>assistant\\n' }}" + marked("m.content") + "{% endset %}{{ turn }}"),
    "filtered": chatml("{% filter replace('#', '+++') %}{{ '##' }}" + marked("m.content") + "{% endfilter %}"),
}  # fmt: skip


@pytest.mark.parametrize("name", INSIDE)
def test_marks_within_captured_text_are_where_the_text_comes_to_lie(name: str) -> None:
    """Transformers counts what the template has given out when a block is reached, and captured text is not yet."""
    shape = SHAPES["multi-turn"]
    found, theirs = by_packer(INSIDE[name], shape), by_transformers(INSIDE[name], shape)
    assert found is not None
    assert theirs is not None
    text, ranges = found
    assert [text[start:end] for start, end in ranges] == ["ambercontent", "olivecontent"]
    assert theirs[0] == text
    assert theirs[1] != ranges
    assert all(their_start < start for (their_start, _), (start, _) in zip(theirs[1], ranges, strict=True))


def test_marks_that_cannot_be_told_from_the_text_are_refused() -> None:
    template = ChatTemplate(
        "{% set turn %}{% generation %}  {{ messages[0].content }}{% endgeneration %}{% endset %}{{ turn | trim }}",
        date="2026-01-01", variables={}, max_bytes=2**26,
    )  # fmt: skip
    assert template.render([user("hi")]) == "hi"
    with pytest.raises(RenderError, match="cannot be told"):
        template.render_marked([user("hi")])


# -- real templates --------------------------------------------------------------------------------------------------------

STOPS = {
    "llava": ["</s>"],
    "cohere": ["<|END_OF_TURN_TOKEN|>"],
    "deepseek": ["<｜end▁of▁sentence｜>"],
    "gemma": ["<end_of_turn>"],
    "llama3": ["<|eot_id|>"],
    "phi3": ["<|end|>", "<|endoftext|>"],
    "qwen": ["<|im_end|>"],
}
"""Where generation stops, by a part of a template's name."""


@pytest.fixture(scope="module")
def with_marks(real: Path) -> dict[str, str]:
    found = {
        name.removesuffix(".jinja"): source for name, source in templates(real).items() if "endgeneration" in source
    }
    for source in found.values():
        assert ChatTemplate(source, date="2026-01-01", variables=NAMED, max_bytes=2**26).has_marks
    return found


@pytest.mark.real
def test_marks_of_real_templates_are_found_where_transformers_finds_them(with_marks: dict[str, str]) -> None:
    seen: Counter[str] = Counter()
    for name, source in with_marks.items():
        for shape, arguments in SHAPES.items():
            found = by_packer(source, arguments)
            assert found == by_transformers(source, arguments), f"{name} {shape}"
            seen["raised" if found is None else "found"] += 1
    print(dict(seen))
    assert seen.total() == 17 * len(SHAPES)
    assert seen["found"] > 80


PAIRS = [("qwen3", "trl__qwen3_training"), ("llama-3", "trl__llama3_training"), ("phi-3", "trl__phi3_training")]


@pytest.mark.real
@pytest.mark.parametrize(("tokenizer", "template"), PAIRS)
def test_the_mask_of_real_tokenizers_covers_the_marks(
    tokenizer: str, template: str, with_marks: dict[str, str], real: Path
) -> None:
    folder = real / "tokenizers" / tokenizer
    named = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    named = {name: named[name] for name in ("bos_token", "eos_token") if isinstance(named.get(name), str)}
    fast = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), chat_template=with_marks[template], **named
    )
    compiled = ChatTemplate(with_marks[template], date="2026-01-01", variables=named, max_bytes=2**26)
    checked = 0
    for shape in SHAPES.values():
        text, ranges = compiled.render_marked([aliased(m) for m in shape["messages"]], tools=shape.get("tools"))
        out = fast.apply_chat_template(
            shape["messages"], tools=shape.get("tools"), return_dict=True, return_assistant_tokens_mask=True
        )
        encoding = fast.backend_tokenizer.encode(text, add_special_tokens=False)
        assert out["input_ids"] == encoding.ids
        inside = [any(a < end and start < b for start, end in ranges) for a, b in encoding.offsets]
        assert [bool(marked) for marked in out["assistant_masks"]] == inside
        checked += sum(inside)
    assert checked > 30


COLUMNS = (HEADER, HEADER_SPACE, OPENING, SPACE, END, NO_TERMINATOR, PART, NO_TURN, REWRITTEN, NO_END)


def row_of(name: str, source: str, folder: Path) -> tuple[str, Counter[str]]:
    """A line of the page's table, and its figures."""
    stops = next(texts for part, texts in STOPS.items() if part in name)
    strict, lenient = (Fitted(folder / kind, source, stops, *rules) for kind, rules in (("a", ()), ("b", LENIENT)))
    figures: Counter[str] = Counter()
    codes: set[str] = set()
    for shape in SHAPES.values():
        (outcome,) = strict.stages.outcomes([chat(*shape["messages"], tools=shape.get("tools"))])
        if isinstance(outcome, str):
            codes.add(outcome)
        if strict.marked(shape) is None:
            assert outcome == "template_error", (name, shape)
            continue
        figures += lenient.compare(shape)
        figures["turns"] += len(Trained(lenient.stages, shape).turns)
    refused = ", ".join(f"`{code}`" for code in sorted(codes)) or "–"
    cells = [str(figures[column] or "–") for column in ("turns", *COLUMNS)]
    return f"| `{name}` | {' | '.join(cells)} | {refused} |", figures


@pytest.mark.real
def test_the_page_shows_what_was_measured(with_marks: dict[str, str], tmp_path: Path) -> None:
    head = f"| template | turns | {' | '.join(COLUMNS)} | rows packer rejects |"
    lines, total = [head, "|" + " --- |" * (len(COLUMNS) + 3)], Counter[str]()
    for name, source in with_marks.items():
        line, figures = row_of(name, source, tmp_path / name)
        lines.append(line)
        total += figures
    assert len(lines) == 2 + 17
    assert set(total) - {"turns"} <= set(COLUMNS)
    table = "\n".join(lines)
    print(table)
    written = PAGE.read_text("utf-8")
    assert table in written
    assert all(f"**{name}**" in written for name in CLASSES)
