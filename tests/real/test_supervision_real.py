"""Real rows, real tokenizers, real templates: the stages give what the definition gives, and lose nothing unsaid."""

import functools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from oracle import Oracle
from supervised import Outcome, Stages, assistant, call, chat, result, system, user
from tokenizers import AddedToken, Tokenizer

from packer.batches import Sample
from packer.recipe import make_recipe
from packer.rejections import CODES
from packer.render import ChatTemplate, written_markers

pytestmark = pytest.mark.real

ALLOW_ALL = "supervision.allow_dropped=[system,user,content,reasoning,tool_call,tool_result,tools]"
NUM_ROWS = 40

CORPORA = {
    "alpaca": "alpaca_en_52k.jsonl",
    "tools": "sgd_train_tools_600.jsonl",
    "airline": "taubench_airline_gpt4o.jsonl",
    "reasoning": "reason_tool_use_openai_50.jsonl",
    "chinese": "kdconv_zh_devtest.jsonl",
    "multilingual": "multilingual_chat_a.jsonl",
    "harmless": "hh_harmless_test_messages.jsonl",
}
PAIRS = [(tokenizer, corpus) for tokenizer in ("llama-3", "qwen3") for corpus in CORPORA]
PAIRS += [
    (tokenizer, corpus)
    for tokenizer in ("llama-2", "phi-3", "deepseek-coder", "minimind")
    for corpus in ("alpaca", "multilingual")
]


def read(path: Path, num_rows: int) -> list[Sample]:
    """Rows at even distances through a corpus."""
    lines = path.read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines[:: max(1, len(lines) // num_rows)][:num_rows]]
    return [sample(row, number) for number, row in enumerate(rows)]


def sample(row: dict[str, Any], number: int) -> Sample:
    if "instruction" in row:
        asked = "\n".join(filter(None, (row["instruction"], row["input"])))
        return chat(user(asked), assistant(row["output"]), row=number)
    for message in row["messages"]:
        for tool_call in message.get("tool_calls") or ():
            arguments = tool_call["function"]["arguments"]
            if isinstance(arguments, str):
                tool_call["function"]["arguments"] = json.loads(arguments)
    return chat(*row["messages"], row=number, tools=row.get("tools"))


@functools.lru_cache(maxsize=3)
def load(folder: Path) -> tuple[Stages, Oracle]:
    stages = Stages.load(folder, ALLOW_ALL)
    return stages, Oracle(stages.model.files, stages.model.template or "")


def by_definition(oracle: Oracle, sample: Sample) -> Outcome:
    return oracle.documents([message.fields for message in sample.messages], tools=sample.tools)


@pytest.mark.parametrize(("tokenizer", "corpus"), PAIRS)
def test_real_rows_agree_with_the_definition(tokenizer: str, corpus: str, real: Path) -> None:
    stages, oracle = load(real / "tokenizers" / tokenizer)
    samples = read(real / "corpora" / CORPORA[corpus], NUM_ROWS // 2 if corpus == "airline" else NUM_ROWS)
    got = stages.outcomes(samples)
    assert got == [by_definition(oracle, sample) for sample in samples]
    kept = [document for outcome in got if not isinstance(outcome, str) for document in outcome]
    refused = Counter(outcome for outcome in got if isinstance(outcome, str))
    tokens, trained = sum(len(ids) for ids, _ in kept), sum(label >= 0 for _, labels in kept for label in labels)
    print(
        f"{tokenizer:15}{corpus:13}{len(got):4} rows {len(kept):4} documents {tokens:7} tokens {trained:6} trained",
        end=" ",
    )
    print(dict(refused) or "")
    assert kept


# -- every template --------------------------------------------------------------------------------------------------------

LOOK = call("lookup", {"city": "kettlecity"})
TOOL = {"type": "function", "function": {"name": "lookup", "description": "?", "parameters": {"type": "object"}}}
ANSWER = {"name": "lookup", "tool_call_id": "call00001", **result("violetresult")}

CHATS: dict[str, Sample] = {
    "plain": chat(user("zebrauser"), assistant("ambercontent"), user("tigeruser"), assistant("olivecontent")),
    "system": chat(system("bluesystem"), user("zebrauser"), assistant("ambercontent")),
    "reasoning": chat(
        user("zebrauser"),
        assistant("ambercontent", reasoning_content="greyreason"),
        user("tigeruser"),
        assistant("olivecontent", reasoning_content="pinkreason"),
    ),
    "inline": chat(user("zebrauser"), assistant("<think>\ngreyreason\n</think>\n\nambercontent")),
    "calls": chat(
        system("bluesystem"),
        user("zebrauser"),
        assistant(None, tool_calls=[{"id": "call00001", **LOOK}]),
        ANSWER,
        assistant("ambercontent"),
        tools=[TOOL],
    ),
    "in a row": chat(user("zebrauser"), user("tigeruser"), assistant("ambercontent"), assistant("olivecontent")),
    "opening": chat(assistant("ambercontent"), user("zebrauser"), assistant("olivecontent")),
}
WORDS = ("zebrauser", "tigeruser", "ambercontent", "olivecontent", "bluesystem", "greyreason", "pinkreason",
         "kettlecity", "violetresult")  # fmt: skip
STOPS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "</s>", "<end_of_turn>", "<|end|>", "<｜end▁of▁sentence｜>",
         "<|END_OF_TURN_TOKEN|>", "<|user|>", "<|observation|>", "<|return|>", "<|call|>", "<|END_RESPONSE|>")  # fmt: skip


@pytest.fixture(scope="module")
def templates(real: Path) -> dict[str, str]:
    return {path.name: path.read_text("utf-8") for path in sorted((real / "templates").glob("*.jinja"))}


@pytest.fixture(scope="module")
def every_marker(real: Path, templates: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The smallest real tokenizer, with every marker that any template writes as a token of its own."""
    backend = Tokenizer.from_file(str(real / "tokenizers" / "minimind" / "tokenizer.json"))
    markers = dict.fromkeys(("<s>", "</s>", "[INST]", "[/INST]", *STOPS))
    for source in templates.values():
        template = ChatTemplate(source, date="2026-01-01", variables={"bos_token": "<s>"}, max_bytes=2**20)
        markers |= dict.fromkeys(written_markers(template))
    backend.add_special_tokens([AddedToken(marker, normalized=False, special=True) for marker in markers])
    folder = tmp_path_factory.mktemp("every_marker")
    backend.save(str(folder / "tokenizer.json"))
    config = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    ids = [backend.token_to_id(stop) for stop in STOPS]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}), "utf-8")
    return folder


@pytest.mark.parametrize("tokenizer", ["every marker", "qwen3", "llama-3"])
def test_every_template_ends_in_the_definition_or_in_words(
    tokenizer: str, real: Path, templates: dict[str, str], every_marker: Path
) -> None:
    fitted = tokenizer == "every marker"
    base, definition = load(every_marker if fitted else real / "tokenizers" / tokenizer)
    seen: Counter[str] = Counter()
    for name, source in templates.items():
        stages, oracle = base.with_template(source, make_recipe({}, [ALLOW_ALL])), definition.with_template(source)
        for shape, sample in CHATS.items():
            (outcome,) = stages.outcomes([sample])
            assert outcome == by_definition(oracle, sample), f"{name} {shape}"
            assert not isinstance(outcome, str) or outcome in CODES, f"{name} {shape}"
            seen[outcome if isinstance(outcome, str) else "supervised"] += 1
    print(f"{tokenizer}: {dict(seen.most_common())}")
    assert seen["supervised"] > (400 if fitted else 50)
    assert seen.total() == 138 * len(CHATS)


def test_every_word_of_a_row_is_in_its_documents_or_the_row_is_refused(
    templates: dict[str, str], every_marker: Path
) -> None:
    base, definition = load(every_marker)
    seen: Counter[str] = Counter()
    for name, source in templates.items():
        stages = base.with_template(source, make_recipe({}))
        for shape, sample in CHATS.items():
            (outcome,) = stages.outcomes([sample])
            if not isinstance(outcome, str):
                written = "".join(definition.tokenizer.decode(ids, skip_special_tokens=False) for ids, _ in outcome)
                assert [word for word in words_of(sample) if word not in written] == [], f"{name} {shape}"
            seen[outcome if isinstance(outcome, str) else "supervised"] += 1
    print(dict(seen.most_common()))
    assert seen["supervised"] > 400
    assert seen["dropped_reasoning"] > 50
    assert seen["dropped_tool_call"] > 10


def words_of(sample: Sample) -> list[str]:
    text = json.dumps([message.fields for message in sample.messages])
    return [word for word in WORDS if word in text]


@pytest.mark.parametrize(
    ("template", "codes"),
    [
        ("trl__llama3.jinja", {"reasoning": "dropped_reasoning", "calls": "dropped_tool_call"}),
        ("axolotl__gemma.jinja", {"system": "template_error", "in a row": "template_error"}),
        ("mistralcommon__v13.jinja", {"reasoning": "dropped_reasoning"}),
    ],
)
def test_known_losses_of_real_templates_are_named(
    template: str, codes: dict[str, str], templates: dict[str, str], every_marker: Path
) -> None:
    base, _ = load(every_marker)
    stages = base.with_template(templates[template], make_recipe({}))
    assert {shape: stages.outcomes([CHATS[shape]])[0] for shape in codes} == codes
