"""Every real template on rows with calls, read back by a reader that knows no template.

A row and its twin, in which every text is a made-up word, are rendered. The words show where a template puts values.
With the row's values in their places, as they are or as JSON once, the twin's texts must be the row's, letter for
letter; and the marks between the words hold no escapes. How a template is written, in which form it was given calls,
and what packer asks of renderings enters nowhere.
"""

import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from fitted_tokenizers import Fitted, compiled, templates
from python_reader import HARD, OTHERS, read
from search_effort import one_in
from supervision_stages import assistant, call, chat, result, system, user

from packer.batches import Sample, TurnBatch
from packer.render.environment import ChatTemplate, RenderError
from packer.source.schema import read_row

pytestmark = pytest.mark.real

CORPORA = (
    ("sgd_train_tools_600.jsonl", "messages"),
    ("reason_tool_use_openai_50.jsonl", "messages"),
    ("taubench_airline_gpt4o.jsonl", "messages"),
    ("llamafactory/glaive_toolcall_en_demo.json", "sharegpt"),
    ("llamafactory/glaive_toolcall_zh_demo.json", "sharegpt"),
)
SHORT = (CORPORA[0], CORPORA[3])


TEXTS = (
    *("plain words here", " padded ", "x", "None", "null", "true", "ümläut ﬀ 漢字", '"quoted" \\ text', ""),
    *("{{ 7 * 7 }}", "{% if x %}", "<tool_call>", '{"a": 1}', "</tool_call>", "\u2028line\x85", "[", "<|im_end|>"),
    "half \ud800 pair",
)
KEYS = ("city", "a", "name", "arguments", "{{ x }}", "naïve", "items", "", "type")
SCALARS = (True, False, None, 0, -7, 1.0, 1e20, 1e-7, 12345678901234567890, -0.0)


def value(chance: random.Random, depth: int = 0) -> Any:
    """Any JSON value."""
    kinds = 2 if depth > 3 else 4
    return (
        lambda: chance.choice(TEXTS),
        lambda: chance.choice(SCALARS),
        lambda: [value(chance, depth + 1) for _ in range(chance.randrange(3))],
        lambda: {chance.choice(KEYS): value(chance, depth + 1) for _ in range(chance.randrange(3))},
    )[chance.randrange(kinds)]()


def odd_row(chance: random.Random) -> Sample:
    """One or two calls with arguments of any kind and their results; not all fit the tool that the row defines."""
    calls = [
        call("get_weather", {chance.choice(KEYS): value(chance) for _ in range(chance.randrange(4))})
        for _ in range(chance.randint(1, 2))
    ]
    asked = [user(chance.choice(TEXTS)), assistant(chance.choice((None, *TEXTS)), tool_calls=calls)]
    answered = [*(result(chance.choice(TEXTS)) for _ in calls), assistant(chance.choice(TEXTS))]
    schema = {"type": "object", "properties": {chance.choice(KEYS): {"type": "string"}}}
    tool = {"name": "get_weather", "description": chance.choice(TEXTS), "parameters": schema}
    tools = [{"type": "function", "function": tool}] if chance.random() < 0.8 else None
    return chat(*asked, *(answered if chance.random() < 0.5 else []), tools=tools)


def rows(real: Path, number: int) -> list[Sample]:
    """Rows of each corpus, or if few of those whose rows are short, and made-up ones of odd values."""
    found: list[Sample] = []
    for name, schema in CORPORA if number > 1 else SHORT:
        text = (real / "corpora" / name).read_text("utf-8")
        values = json.loads(text) if name.endswith(".json") else map(json.loads, text.splitlines())
        samples = (read_row(value, number=0, schema=schema, columns={}) for value in values)
        calling = (s for s in samples if isinstance(s, Sample) and any(m.fields.get("tool_calls") for m in s.messages))
        found += itertools.islice(calling, number)
    chance = random.Random(7)
    found += [odd_row(chance) for _ in range(4 * number)]
    return [msgspec.structs.replace(sample, row=0) for sample in found]


TEXT_FIELDS = ("content", "reasoning_content", "thinking", "reasoning")
WORD = re.compile(r"Qzv\d{4}w")
ESCAPE = re.compile(r"&(?:#\d+|#x[0-9a-fA-F]+|amp|lt|gt|quot|apos);|\ufffd")


class Learned(NamedTuple):
    """A turn in the text it is learned in."""

    message: int
    prompt: str
    completion: str


def learned(batch: TurnBatch) -> list[Learned]:
    found = []
    for text, message, prompt_end, end in zip(
        batch.turn_text.tolist(),
        batch.turn_message.tolist(),
        batch.prompt_end.tolist(),
        batch.completion_end.tolist(),
        strict=True,
    ):
        whole = batch.text[batch.text_offsets[text] : batch.text_offsets[text + 1]]
        found.append(Learned(message, whole[:prompt_end].decode(), whole[prompt_end:end].decode()))
    return found


class Twin:
    """The twin of a sample, and what each of its words stands for."""

    def __init__(self, sample: Sample) -> None:
        self.values: dict[str, str] = {}
        messages = tuple(
            msgspec.structs.replace(message, fields=self._message(message.fields)) for message in sample.messages
        )
        self.sample = msgspec.structs.replace(sample, messages=messages)

    def _message(self, fields: dict[str, Any]) -> dict[str, Any]:
        known: dict[str, str] = {}  # reasoning under two names is one text
        changed = dict(fields)
        for name in TEXT_FIELDS:
            if isinstance(fields.get(name), str) and _is_text(fields[name]):
                changed[name] = known.setdefault(fields[name], self._word(fields[name]))
        if fields.get("tool_calls"):
            changed["tool_calls"] = [
                {**call, "function": {**call["function"], "arguments": self._value(call["function"]["arguments"])}}
                for call in fields["tool_calls"]
            ]
        return changed

    def _value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._value(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._value(item) for item in value]
        return self._word(value) if isinstance(value, str) and _is_text(value) else value

    def _word(self, value: str) -> str:
        word = f"Qzv{len(self.values):04d}w"
        self.values[word] = value
        return word

    def reads(self, written: str, own: str) -> bool:
        """Whether a text of the twin, with the row's values in the places of its words, is a text of the row."""
        pattern = "".join(
            _spelled(self.values[piece]) if WORD.fullmatch(piece) else re.escape(piece)
            for piece in re.split(f"({WORD.pattern})", written)
        )
        return re.fullmatch(pattern, own, re.DOTALL) is not None


def _is_text(value: str) -> bool:
    """Whether a text is not blank and no number: Mistral's templates write results that are numbers as such."""
    return bool(value.strip()) and re.fullmatch(r"\s*-?[0-9.]+\s*", value) is None


def _spelled(value: str) -> str:
    stripped = [value, value.strip(), value.lstrip(), value.rstrip(), value.strip("\n")]
    ways = [
        way for text in stripped for way in (text, *(json.dumps(text, ensure_ascii=a)[1:-1] for a in (False, True)))
    ]
    ways.append(repr(value)[1:-1])
    return "(?:" + "|".join(re.escape(way) for way in dict.fromkeys(ways)) + ")"


def escapes(marks: str) -> Iterator[str]:
    """Escapes among a template's own marks, where nothing is to be escaped."""
    yield from ESCAPE.findall(marks)
    yield from re.findall(r'\\["n]', marks)


def misread(sample: Sample, batch: TurnBatch, twin: Twin, twin_batch: TurnBatch) -> list[str]:
    """What is wrong with the turns learned of a row, in words; both batches hold this row alone."""
    turns, twins = learned(batch), learned(twin_batch)
    if [turn.message for turn in turns] != [turn.message for turn in twins]:
        return [f"learns {[turn.message for turn in turns]}, its twin {[turn.message for turn in twins]}"]
    wrong = []
    for turn, other in zip(turns, twins, strict=True):
        if not twin.reads(other.completion, turn.completion):
            wrong.append(f"message {turn.message}: {turn.completion!r} is not {other.completion!r} with its values")
        if not twin.reads(other.prompt, turn.prompt):
            wrong.append(f"prompt of message {turn.message} is not its twin's with its values")
        bare = re.findall(rf"[(,]\s*\w+=({WORD.pattern})(?=\s*[,)])", other.completion)
        wrong += [f"message {turn.message}: {twin.values[word]!r} without quotation marks" for word in bare]
        found = [*escapes(WORD.sub("", other.completion)), *ESCAPE.findall(WORD.sub("", other.prompt))]
        wrong += [f"message {turn.message}: {found[:3]} among the marks of the template"] if found else []
    return wrong


@pytest.mark.parametrize(("number", "every"), [(1, 40), pytest.param(4, 1, marks=pytest.mark.slow)])
def test_every_kept_call_reads_back(number: int, every: int, real: Path, fitted: Fitted) -> None:
    """In `make test` of every fortieth template that knows calls."""
    names = [name for name, source in templates(real).items() if "tool_calls" in source][::every]
    seen: Counter[str] = Counter()
    kept: Counter[str] = Counter()
    samples = rows(real, number)
    for name in names:
        stages = fitted.stages(name)
        for sample in samples:
            batch = stages.render([sample])
            if batch.rejections:
                seen[batch.rejections[0].code] += 1
                continue
            twin = Twin(sample)
            twin_batch = stages.render([twin.sample])
            assert not twin_batch.rejections, (name, sample, twin_batch.rejections)
            assert misread(sample, batch, twin, twin_batch) == [], name
            seen["kept"] += 1
            kept[name] += 1
    print(dict(seen.most_common()), len(kept), "of", len(names), "templates keep rows with calls")
    assert len(kept) >= len(names) // 2


MISTRALS = ("axolotl__mistral_v2v3", "axolotl__pixtral", "llamacpp__mistralai-Mistral-Nemo-Instruct-2407",
            "vllm__tool_chat_template_mistral_parallel")  # fmt: skip


@pytest.mark.parametrize("template", one_in(2, MISTRALS))
def test_answers_behind_prompts_that_alone_have_the_system_message_read_back(
    template: str, real: Path, fitted: Fitted
) -> None:
    stages = fitted.stages(f"{template}.jinja", "supervision.on_prompt_mismatch=continue")
    seen: Counter[str] = Counter()
    for number, line in enumerate(
        (real / "corpora" / "hh_harmless_test_messages.jsonl").read_text("utf-8").splitlines()[:24]
    ):
        said = json.loads(line)["messages"]
        sample = chat(system(("Be kind.", "a", " Hm \n")[number % 3]), *said)
        batch, twin = stages.render([sample]), Twin(sample)
        if batch.rejections:
            seen[batch.rejections[0].code] += 1
            continue
        assert misread(sample, batch, twin, stages.render([twin.sample])) == []
        assert all(sample.messages[0].fields["content"].strip() in turn.prompt for turn in learned(batch))
        seen["kept"] += 1
    assert seen["kept"] > 20, seen


def writes_python(template: ChatTemplate) -> bool:
    asked = [user("What is the weather?"), assistant("", tool_calls=[call("look", {"city": 7})])]
    try:
        return "look(" in template.render(asked)
    except RenderError:
        return False


@pytest.mark.filterwarnings("ignore:.*invalid escape:SyntaxWarning", "ignore:.*invalid escape:DeprecationWarning")
def test_a_call_that_a_template_writes_as_python_is_kept_only_if_python_reads_it(real: Path, fitted: Fitted) -> None:
    found = []
    for name in (name for name, source in templates(real).items() if "'('" in source):
        if not writes_python(compiled(real, name)):
            continue
        stages = fitted.stages(name, "supervision.allow_dropped=[tool_call]")
        outcomes = []
        for value in (7, *HARD, *OTHERS):
            arguments = {"city": value}
            sample = chat(user("What is the weather?"), assistant(None, tool_calls=[call("look", arguments)]))
            batch = stages.render([sample])
            text = "" if batch.rejections else stages.turns(sample)[-1][1]
            start, end = text.find("["), text.rfind("]")
            outcomes.append(repr(read(text[start : end + 1])) == repr([("look", arguments)]))
            assert outcomes[-1] or [rejection.code for rejection in batch.rejections] == ["mangled_call"], (name, text)
        found.append((name, sum(outcomes)))
    print(found)
    assert len(found) >= 2
