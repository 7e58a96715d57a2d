"""Real rows, real tokenizers, real templates: the stages give what the definition gives, and lose nothing unsaid."""

import functools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from oracle import Oracle
from supervised import Outcome, Stages, assistant, chat, user

from packer.batches import Sample

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
PAIRS: list[Any] = [("llama-3", corpus) for corpus in CORPORA]
PAIRS += [pytest.param("qwen3", corpus, marks=pytest.mark.slow) for corpus in CORPORA]
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
