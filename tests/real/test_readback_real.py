"""Every real template on rows with calls, read back by a reader that knows no template."""

import itertools
import json
import random
from collections import Counter
from pathlib import Path

import msgspec
import pytest
import tool_rows
from blind_reader import Twin, learned, misread
from fitted_tokenizers import Fitted, compiled, templates
from python_reader import HARD, OTHERS, read
from search_effort import one_in
from supervision_stages import assistant, call, chat, system, user

from packer.batches import Sample
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
    found += [tool_rows.row(chance) for _ in range(4 * number)]
    return [msgspec.structs.replace(sample, row=0) for sample in found]


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
