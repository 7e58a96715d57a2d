"""The prefix rule: where prompts and completions end in ids."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import twins
from supervision_stages import Stages, assistant, chat, user

from packer.batches import Int32, Int64, Sample, TokenBatch
from packer.tokenize.reference_encoder import ReferenceEncoder
from packer.tokenize.tokenizing import TurnTokenizer


class Counting:
    """An encoder that counts what it is asked for."""

    name, version = "counting", "1"

    def __init__(self, content: bytes) -> None:
        self._encoder = ReferenceEncoder(content)
        self.texts: list[str] = []
        self.num_calls = 0

    def encode(self, texts: Sequence[str]) -> tuple[Int32, Int64]:
        self.texts += texts
        self.num_calls += 1
        return self._encoder.encode(texts)


def tokenized(stages: Stages, *messages: dict[str, Any]) -> TokenBatch:
    turns = stages.render([chat(*messages)])
    assert not turns.rejections
    return stages.tokenizing.tokenize(turns)


def pieces(stages: Stages, tokens: TokenBatch, turn: int) -> tuple[list[str], list[str]]:
    """Prompt and completion of a turn as vocabulary entries."""
    start = tokens.offsets[tokens.turn_sequence[turn]]
    prompt, end = start + tokens.prompt_tokens[turn], start + tokens.completion_tokens[turn]
    spell = lambda ids: [stages.model.content(i) for i in ids.tolist()]  # noqa: E731
    return spell(tokens.ids[start:prompt]), spell(tokens.ids[prompt:end])


APART = twins.LLAMA2_LIKE.replace("' [/INST]' }}", "' [/INST] ' }}").replace("{{ ' ' + ", "{{ ")
"""A prompt that ends in a space, which the answer's first word would take."""


def test_after_the_first_added_token_a_completion_apart_is_encoded_as_in_any_text(tmp_path: Path) -> None:
    stages = Stages.load(twins.sentencepiece_like(tmp_path, template=APART), "supervision.control_tokens=allow")
    text = "fox<unk>dog"
    boundaries = stages.tokenizing._one_by_one.boundaries
    whole = "<s>[INST] a [/INST] " + text + " </s>"
    turn = (len(whole) - len(text) - 5, len(whole))
    ((_, (boundary,)),) = boundaries.find([(whole.encode(), [turn])])
    assert boundary.merged
    assert boundary.ids is not None
    completion = [stages.model.content(i) for i in boundary.ids[boundary.prompt_tokens :].tolist()]
    assert "".join(completion) == "fox<unk>▁dog▁</s>"


def test_prompts_are_not_encoded_again(tmp_path: Path) -> None:
    """Many turns, one header: the whole text and one tail are all that is encoded."""
    stages = Stages.load(twins.byte_level(tmp_path))
    encoder = Counting(stages.model.files["tokenizer.json"])
    stages.tokenizing = TurnTokenizer(stages.model, encoder)
    talk = [message for n in range(9) for message in (user(f"q{n}"), assistant(f"a{n}"))]
    tokenized(stages, *talk)
    assert len(encoder.texts) == 2
    assert encoder.texts[1] == "<|im_start|>assistant\n"
    tokenized(stages, *talk)
    assert len(encoder.texts) == 3


def test_however_many_turns_of_a_batch_merge_the_encoder_is_called_as_often(tmp_path: Path) -> None:
    stages = Stages.load(twins.double_newline(tmp_path))
    num_calls = set()
    for number in (1, 20):
        encoder = Counting(stages.model.files["tokenizer.json"])
        rows = [Sample(kind="completion", row=row, prompt=f"{row}\n", text="\nfox") for row in range(number)]
        tokens = TurnTokenizer(stages.model, encoder).tokenize(stages.render(rows))
        assert tokens.merged.tolist() == [True] * number
        num_calls.add(encoder.num_calls)
    assert len(num_calls) == 1


def test_a_terminator_that_is_no_added_token_is_found_by_the_rule_word_for_word(tmp_path: Path) -> None:
    template = twins.CHATML.replace("<|im_end|>", "!")
    stages = Stages.load(twins.byte_level(tmp_path, template=template), stop=["!"])
    tokens = tokenized(stages, user("Hello"), assistant("fox"))
    assert "".join(pieces(stages, tokens, 0)[1]) == "fox!"


def test_normalized_added_tokens_do_not_mislead_a_border(tmp_path: Path) -> None:
    folder = twins.nfc(tmp_path)
    content = (folder / "tokenizer.json").read_text("utf-8")
    normalized = content.replace('"normalized":false', '"normalized":true').replace(
        '"normalized": false', '"normalized": true'
    )
    assert normalized != content
    (folder / "tokenizer.json").write_text(normalized, "utf-8")
    stages = Stages.load(folder)
    tokens = tokenized(stages, user("e\u0301"), assistant("e\u0301fox"), user("ü"), assistant("dog"))
    completions = ["".join(pieces(stages, tokens, t)[1]) for t in (0, 1)]
    assert completions == ["Ã©fox<|im_end|>", "dog<|im_end|>"]
