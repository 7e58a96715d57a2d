"""Real rows, real tokenizers, real templates: the stages give what the definition gives, and lose nothing unsaid."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from loaded_tokenizers import oracle_of, stages_of
from oracle import Oracle
from supervision_stages import Outcome, assistant, chat, user

from packer.batches import Sample

pytestmark = pytest.mark.real

AT_ONCE, NUM_ROWS = 2, 40
"""Rows of a corpus in `make test` and in `make deep`; of the airline's, which are long, half as many."""

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
MATRIX = [
    *(("minimind", corpus, AT_ONCE) for corpus in ("reasoning", "chinese")),
    *((tokenizer, "multilingual", AT_ONCE) for tokenizer in ("llama-2", "phi-3", "minimind")),
    *(pytest.param(*pair, NUM_ROWS, marks=pytest.mark.slow) for pair in PAIRS),
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


def by_definition(oracle: Oracle, sample: Sample) -> Outcome:
    return oracle.documents([message.fields for message in sample.messages], tools=sample.tools)


@pytest.mark.parametrize(("tokenizer", "corpus", "num_rows"), MATRIX)
def test_real_rows_agree_with_the_definition(tokenizer: str, corpus: str, num_rows: int, real: Path) -> None:
    folder = real / "tokenizers" / tokenizer
    stages, oracle = stages_of(folder), oracle_of(folder)
    samples = read(real / "corpora" / CORPORA[corpus], num_rows // 2 if corpus == "airline" else num_rows)
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
