"""A second opinion on what is trained: `{% generation %}` marks as transformers reads them, beside packer's rule.

Marks are somebody's words for what to train; packer computes it from prompts and turns. docs/explanation/generation-marks.md
shows what only one of the two trains, word for word.
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import conversation_shapes
import pytest
import transformers
import twins
from fitted_tokenizers import templates
from search_effort import one_in
from supervision_stages import ALLOW_ALL, Stages, aliased, chat, user
from tokenizers import AddedToken, Tokenizer
from transformers.utils.chat_template_utils import _compile_jinja_template, _render_with_assistant_indices

from packer.render import ChatTemplate, RenderError, written_markers

LENIENT = ("supervision.on_prompt_mismatch=common_prefix", "supervision.no_terminator=append")
NAMED = {"bos_token": "<s>", "eos_token": "</s>"}
PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "generation-marks.md"

NAMES = ("single", "multi-turn", "system", "call and text", "reasoning", "two assistants")
SHAPES = {name: conversation_shapes.SHAPES[name] for name in NAMES}


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

    def in_place(self, ids: Sequence[int]) -> tuple[set[int], int]:
        """Tokens of `ids` that are trained, and how many turns `ids` close with the terminator that packer trains.

        A turn whose context is another one here, since history is rewritten, is no part of it.
        """
        tokens: set[int] = set()
        num_closed = 0
        for own, start in self.turns.values():
            is_closed = list(ids[: len(own)]) == own
            if is_closed or list(ids[: len(own) - 1]) == own[:-1]:
                tokens |= set(range(start, len(own) - (not is_closed)))
                num_closed += is_closed
        return tokens, num_closed


def stretches(positions: Sequence[int]) -> Iterator[slice]:
    for _, group in itertools.groupby(enumerate(positions), key=lambda pair: pair[1] - pair[0]):
        members = [t for _, t in group]
        yield slice(members[0], members[-1] + 1)


@dataclass(kw_only=True)
class Difference:
    """Texts that only one side trains, and how often; turns in all, and those whose terminator is written."""

    only_marks: Counter[str] = field(default_factory=Counter)
    only_packer: Counter[str] = field(default_factory=Counter)
    num_turns: int = 0
    num_closed: int = 0

    def add(self, fitted: "Fitted", shape: Mapping[str, Any]) -> None:
        marked = fitted.marked(shape)
        assert marked is not None
        ids, mask = marked
        trained = Trained(fitted.stages, shape)
        by_packer, num_closed = trained.in_place(ids)
        by_marks = {t for t, is_marked in enumerate(mask) if is_marked}
        for texts, positions in (
            (self.only_marks, by_marks - by_packer),
            (self.only_packer, by_packer - by_marks),
        ):
            texts.update(fitted.decode(ids[place]) for place in stretches(sorted(positions)))
        self.num_turns += len(trained.turns)
        self.num_closed += num_closed


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
        self.tokenizer = transformers.PreTrainedTokenizerFast(
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
THOUGHTS = "'<think>\\n' + (m.reasoning_content or '') + '\\n</think>\\n\\n'"

SMALL: dict[str, tuple[str, str, dict[str, int], dict[str, int]]] = {
    "exact": (chatml(EXACT), "multi-turn", {}, {}),
    "header": (
        chatml(marked("'<|im_start|>assistant\\n' + m.content + '<|im_end|>'") + "{{ '\\n' }}"),
        "multi-turn", {"<|im_start|>assistant\n": 2}, {},
    ),
    "line ends about a turn": (
        chatml("{{ '<|im_start|>assistant' }}" + marked("'\\n' + m.content + '<|im_end|>\\n'")), "multi-turn", {"\n": 4}, {},
    ),
    "terminator left out": (
        chatml("{{ '<|im_start|>assistant\\n' }}" + marked("m.content") + "{{ '<|im_end|>\\n' }}"),
        "multi-turn", {}, {"<|im_end|>": 2},
    ),
    "turn left out": (
        chatml("{% if loop.last %}" + EXACT + "{% else %}{{ '<|im_start|>assistant\\n' + m.content + '<|im_end|>\\n' }}{% endif %}"),
        "multi-turn", {}, {"ambercontent<|im_end|>": 1},
    ),
    "another's words": (
        chatml(EXACT, other=marked("'<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>'") + "{{ '\\n' }}"),
        "single", {"<|im_start|>user\nzebrauser<|im_end|>": 1}, {},
    ),
    "another context": (
        chatml(
            "{{ '<|im_start|>assistant\\n' }}"
            + marked("(" + THOUGHTS + " if loop.last else '') + m.content + '<|im_end|>'") + "{{ '\\n' }}"
        ),
        "reasoning", {"ambercontent<|im_end|>": 1}, {},
    ),
}  # fmt: skip
"""Template, conversation, and the texts that only marks train, and only packer."""


@pytest.mark.parametrize("name", SMALL)
def test_what_only_one_side_trains_is_found_word_for_word(name: str, tmp_path: Path) -> None:
    source, shape, only_marks, only_packer = SMALL[name]
    difference = Difference()
    difference.add(Fitted(tmp_path, source, ["<|endoftext|>", "<|im_end|>"], *LENIENT), SHAPES[shape])
    assert (dict(difference.only_marks), dict(difference.only_packer)) == (only_marks, only_packer)
    assert difference.num_turns == len(SHAPES[shape]["messages"]) // 2


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
    source, *_ = SMALL[name]
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
def test_marks_within_captured_text_are_where_the_text_ends_up(name: str) -> None:
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


def test_marks_that_cannot_be_reported_from_the_text_are_refused() -> None:
    template = ChatTemplate(
        "{% set turn %}{% generation %}  {{ messages[0].content }}{% endgeneration %}{% endset %}{{ turn | trim }}",
        date="2026-01-01", variables={}, max_bytes=2**26,
    )  # fmt: skip
    assert template.render([user("hi")]) == "hi"
    with pytest.raises(RenderError, match="cannot be distinguished"):
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
    fast = transformers.PreTrainedTokenizerFast(
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


def row_of(name: str, source: str, folder: Path) -> str:
    """A line of the page's table."""
    stops = next(texts for part, texts in STOPS.items() if part in name)
    strict, lenient = (Fitted(folder / kind, source, stops, *rules) for kind, rules in (("a", ()), ("b", LENIENT)))
    difference, codes = Difference(), set[str]()
    for shape in SHAPES.values():
        (outcome,) = strict.stages.outcomes([chat(*shape["messages"], tools=shape.get("tools"))])
        if isinstance(outcome, str):
            codes.add(outcome)
        if strict.marked(shape) is None:
            assert outcome == "template_error", (name, shape)
            continue
        difference.add(lenient, shape)
    counted = [
        ", ".join(f"{number} × `{text}`" for text, number in sorted(texts.items()))
        .replace("\n", "↵")
        .replace("|", r"\|")
        or "–"
        for texts in (difference.only_marks, difference.only_packer)
    ]
    refused = ", ".join(f"`{code}`" for code in sorted(codes)) or "–"
    figures = [f"`{name}`", str(difference.num_turns), str(difference.num_closed), *counted, refused]
    return f"| {' | '.join(figures)} |"


@pytest.mark.real
def test_the_page_shows_what_was_measured(with_marks: dict[str, str], tmp_path: Path) -> None:
    assert len(with_marks) == 17
    lines = [row_of(name, source, tmp_path / name) for name, source in one_in(3, list(with_marks.items()))]
    print("\n".join(lines))
    assert {*lines} <= {*PAGE.read_text("utf-8").splitlines()}
