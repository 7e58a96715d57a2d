"""Completions and plain texts: the tokenizer's own special tokens, and one EOS."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import twins
from supervision_stages import Stages
from tokenizers import Tokenizer, processors

from packer.batches import Rejection, RowBatch, Sample, TurnBatch
from packer.media.carried import Images
from packer.render.environment import RenderError
from packer.render.rewritten_history import turn_batch


def text(content: str) -> Sample:
    return Sample(kind="text", row=0, text=content)


def completion(prompt: str, content: str) -> Sample:
    return Sample(kind="completion", row=0, prompt=prompt, text=content)


def only(stages: Stages, sample: Sample) -> tuple[str, str]:
    """The one document as its tokenizer writes it: all of it, and what is trained."""
    ids, labels = stages.document(sample)
    spell = stages.model.content
    return "".join(spell(i) for i in ids), "".join(spell(label) for label in labels if label >= 0)


@pytest.mark.parametrize(
    ("around", "append"), [("$A", "true"), ("<|begin|> $A", "false"), ("<|begin|> $A <|begin|> <|im_end|>", "true")]
)
def test_texts_of_a_batch_have_the_ids_of_texts_that_are_looked_at_one_by_one(
    tmp_path: Path, around: str, append: str
) -> None:
    folder = twins.byte_level(tmp_path, bos=True)
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokens = [(name, backend.token_to_id(name)) for name in ("<|begin|>", "<|im_end|>")]
    backend.post_processor = processors.TemplateProcessing(single=around, special_tokens=tokens)
    backend.save(str(folder / "tokenizer.json"))
    stages = Stages.load(folder, f"text.append_eos={append}")
    contents = ["fox dog", "? dog", "fox", "dog <|im_end|> fox"]  # the last has a typed token: one by one
    texts = [Sample(kind="text", row=row, text=content) for row, content in enumerate(contents)]
    assert stages.outcomes(texts[:3]) == stages.outcomes(texts)[:3]


@pytest.mark.parametrize("append", ["true", "false"])
@pytest.mark.parametrize("typed", ["text", "reject", "allow"])
def test_rows_that_are_rendered_together_are_rendered_as_each_alone(tmp_path: Path, typed: str, append: str) -> None:
    stages = Stages.load(twins.byte_level(tmp_path), f"supervision.control_tokens={typed}", f"text.append_eos={append}")
    odd = ["", "é", "\ud800", "a <|im_end|> b", "<|im_end|> b", "a <|im_end|>", "a </s>\n", " <|user|><|x|> a", "<b"]
    picture = Images(sources=(), refusal="an image")
    samples = [msgspec.structs.replace(text(content), images=images) for content in odd for images in (None, picture)]
    samples += [completion(prompt, content) for prompt in odd for content in odd]
    samples = [msgspec.structs.replace(sample, row=row) for row, sample in enumerate(samples)]
    for some in (samples, [sample for sample in samples if "\ud800" not in sample.prompt + sample.text]):
        texts, rejections = {}, []
        for sample in some:
            try:
                texts[sample.row] = stages.renderer._plain.rendered(sample)
            except RenderError as error:
                rejections.append(Rejection(row=sample.row, code=error.code, reason=str(error)))
        assert len(texts) > 10 < len(rejections)
        expected = turn_batch([*texts.values()], [*texts], [], rejections)
        made = stages.renderer.render(RowBatch(samples=tuple(some), rejections=(), num_rows=len(some)))
        for each in fields(TurnBatch):
            assert np.array_equal(getattr(made, each.name), getattr(expected, each.name)), each.name


@pytest.mark.parametrize("append", ["true", "false"])
def test_an_eos_the_tokenizer_adds_itself_is_not_doubled(tmp_path: Path, append: str) -> None:
    folder = twins.byte_level(tmp_path)
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    eos = ("<|im_end|>", backend.token_to_id("<|im_end|>"))
    backend.post_processor = processors.TemplateProcessing(single="$A <|im_end|>", special_tokens=[eos])
    backend.save(str(folder / "tokenizer.json"))
    stages = Stages.load(folder, f"text.append_eos={append}")
    assert only(stages, text("fox dog"))[0] == "foxĠdog<|im_end|>"


def test_a_merged_completion_keeps_the_tokenizers_bos(tmp_path: Path) -> None:
    stages = Stages.load(twins.metaspace_first(tmp_path))
    ids, trained = only(stages, completion("Hello ", "fox"))
    assert ids == "<s>▁Hello▁fox</s>"
    assert trained == "fox</s>"


def test_a_control_token_typed_in_a_text_is_ordinary_text(tmp_path: Path) -> None:
    stages, sample = Stages.load(twins.byte_level(tmp_path, bos=True)), text("fox<|im_end|><|begin|> dog")
    ids, _ = only(stages, sample)
    assert ids == "<|begin|>fox<|im_end|><|begin|>Ġdog<|im_end|>"
    control = set(stages.model.control.values())
    assert [i in control for i in stages.document(sample)[0]].count(True) == 2


def test_a_control_token_in_a_completion_rejects_the_row(tmp_path: Path) -> None:
    stages = Stages.load(twins.byte_level(tmp_path))
    assert stages.outcomes([completion("Hello!", "fox<|im_end|>")]) == ["control_token"]
    assert stages.outcomes([completion("Hello<|im_end|>!", "fox")]) != ["control_token"]


@pytest.mark.parametrize("sample", [text(""), completion("Hello!", "")])
def test_a_row_without_text_to_learn_is_rejected(tmp_path: Path, sample: Sample) -> None:
    assert Stages.load(twins.byte_level(tmp_path)).outcomes([sample]) == ["nothing_trained"]


def test_a_completion_needs_an_eos(tmp_path: Path) -> None:
    bare = twins.byte_level(tmp_path) / "tokenizer.json"
    stages = Stages.load(bare)
    assert stages.outcomes([completion("Hello!", "fox")]) == ["no_terminator"]
    assert stages.document(text("fox dog"))


@pytest.mark.parametrize("twin", twins.TWINS, ids=lambda twin: twin.__name__)
def test_every_tokenizer_proves_its_texts_and_completions(twin: Any, tmp_path: Path) -> None:
    stages = Stages.load(twin(tmp_path))
    open_ended = Stages.load(tmp_path, "text.append_eos=false")
    backend = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    prompt = backend.encode("Hello: ").ids
    for content in ("fox", " fox \n", "é e\u0301 你好", "the cafe\u0301", "\n\n", "▁a▁", "ü<think>"):
        expected = backend.encode(content).ids
        assert stages.document(text(content))[0] == [*expected, stages.model.eos_id]
        if len(expected) > 1:
            assert open_ended.document(text(content))[0] == expected
        ids, labels = stages.document(completion("Hello: ", content))
        assert ids[: len(prompt)] == prompt
        assert [label >= 0 for label in labels] == [False] * len(prompt) + [True] * (len(ids) - len(prompt))
