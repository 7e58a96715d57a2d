"""Trains the tokenizer of the starter folder on the starter's own samples; run it after editing them.

    python tests/train_starter_tokenizer.py

The same samples and the same version of `tokenizers` give the same bytes; a test trains again and compares.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

FILES = Path(__file__).resolve().parent.parent / "packer" / "starter" / "files"
TOKENIZER_FILE = FILES / "tokenizer" / "tokenizer.json"

VOCAB_SIZE = 4096
"""Of everything, added tokens included."""

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ORDINARY = ("<think>", "</think>", "<tool_call>", "</tool_call>")

# A word with the space or sign before it; up to three digits; signs with the line ends after them; line ends; spaces,
# where the last one before a word belongs to the word. Marks (as in Hindi and Arabic) stay with their letters.
PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{M}\p{N}]?[\p{L}\p{M}]+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def starter_rows(name: str) -> Iterator[dict[str, Any]]:
    """Rows of `data/NAME.jsonl` but for the ones that are broken on purpose."""
    for line in (FILES / "data" / f"{name}.jsonl").read_text("utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        contents = [message.get("content") for message in row.get("messages", ())]
        if "rejected" not in row and not any(isinstance(content, list) for content in contents):
            yield row


def as_messages(row: dict[str, Any]) -> list[dict[str, Any]]:
    """A row of any of the starter's schemas as OpenAI messages."""
    if "messages" in row:
        return row["messages"]
    if "conversations" in row:
        roles = {"system": "system", "human": "user", "gpt": "assistant"}
        return [{"role": roles[turn["from"]], "content": turn["value"]} for turn in row["conversations"]]
    question = "\n".join(part for part in (row["instruction"], row["input"]) if part)
    return [{"role": "user", "content": question}, {"role": "assistant", "content": row["output"]}]


def texts(row: dict[str, Any]) -> Iterator[str]:
    """Everything a row says, in the form the template writes it."""
    for tool in row.get("tools") or ():
        yield json.dumps(tool, ensure_ascii=False)
    for message in as_messages(row):
        yield message["role"] + "\n"
        if message.get("reasoning_content"):
            yield "\n" + message["reasoning_content"] + "\n"
        if message["content"]:
            yield message["content"]
        for call in message.get("tool_calls") or ():
            function = call["function"]
            arguments = function["arguments"]
            spelled = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            yield f'\n{{"name": {json.dumps(function["name"])}, "arguments": {spelled}}}\n'


def train() -> Tokenizer:
    """A byte-level BPE tokenizer of :data:`VOCAB_SIZE` tokens; added tokens have the last ids."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(SPECIAL) - len(ORDINARY),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    names = sorted(path.stem for path in (FILES / "data").glob("*.jsonl"))
    tokenizer.train_from_iterator(
        (text for name in names for row in starter_rows(name) for text in texts(row)), trainer
    )
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False) for token in ORDINARY])
    return tokenizer


def main() -> None:
    TOKENIZER_FILE.write_text(train().to_str() + "\n", "utf-8")


if __name__ == "__main__":
    main()
