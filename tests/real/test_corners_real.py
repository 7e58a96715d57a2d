"""Corners of supervision on real templates and rows, each with what must come out."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conversation_shapes import sample
from fitted_tokenizers import Fitted
from search_effort import one_in
from supervision_stages import ALLOW_ALL, Stages, assistant, chat, user

from packer.batches import Sample
from packer.source import chat as messages_schema

pytestmark = pytest.mark.real

PLAIN = assistant("A")
REASONED = assistant("A", reasoning_content="R")
INLINE = assistant("<think>\nR\n</think>\n\nA")


def stages_of(fitted: Fitted, template: str, *overrides: str) -> Stages:
    return fitted.stages(f"{template}.jinja", *overrides)


def learned(stages: Stages, row: Sample) -> list[tuple[str, str]] | str:
    """Prompt and completion of every turn; or the code of the rejection."""
    rejections = stages.render([row]).rejections
    return rejections[0].code if rejections else stages.turns(row)


# -- prompt modes ----------------------------------------------------------------------------------------------------------

MODES: list[tuple[str, dict[str, Any], str, str]] = [
    ("trl__qwen3", PLAIN, "<|im_start|>assistant\n<think>\n\n</think>\n\n", "A<|im_end|>"),
    ("trl__qwen3", REASONED, "<|im_start|>assistant\n", "<think>\nR\n</think>\n\nA<|im_end|>"),
    ("trl__qwen3", INLINE, "<|im_start|>assistant\n", "<think>\nR\n</think>\n\nA<|im_end|>"),
    ("llamacpp__Qwen3.5-4B", PLAIN, "<|im_start|>assistant\n<think>\n\n</think>\n\n", "A<|im_end|>"),
    ("llamacpp__Qwen3.5-4B", REASONED, "<|im_start|>assistant\n<think>\n", "R\n</think>\n\nA<|im_end|>"),
    ("llamacpp__GLM-4.6", PLAIN, "Q/nothink<|assistant|>\n<think></think>", "\nA<|user|>"),
    ("llamacpp__GLM-4.6", REASONED, "Q<|assistant|>", "\n<think>R</think>\nA<|user|>"),
    ("llamacpp__GLM-4.7-Flash", PLAIN, "<|assistant|></think>", "A<|user|>"),
    ("llamacpp__GLM-4.7-Flash", REASONED, "<|assistant|><think>", "R</think>A<|user|>"),
    ("llamacpp__deepseek-ai-DeepSeek-V3.1", PLAIN, "<｜Assistant｜><think></think>", "A<｜end▁of▁sentence｜>"),
    ("llamacpp__deepseek-ai-DeepSeek-V3.2", REASONED, "<｜Assistant｜><think>", "R</think>A<｜end▁of▁sentence｜>"),
    ("llamacpp__Qwen-QwQ-32B", INLINE, "<|im_start|>assistant\n<think>\n", "R\n</think>\n\nA<|im_end|>"),
]


@pytest.mark.parametrize(("template", "turn", "prompt", "completion"), one_in(2, MODES))
def test_each_kind_of_answer_takes_its_prompt(
    template: str, turn: dict[str, Any], prompt: str, completion: str, real: Path, fitted: Fitted
) -> None:
    ((before, after),) = learned(stages_of(fitted, template), chat(user("Q"), turn))
    assert before.endswith(prompt)
    assert after == completion


CONTINUED: list[tuple[str, dict[str, Any], str, str]] = [
    ("llamacpp__llama-cpp-deepseek-r1", PLAIN, "<think>\n", "\n</think>\n\nA<｜end▁of▁sentence｜>"),
    ("llamacpp__llama-cpp-deepseek-r1", REASONED, "<think>\n", "R\n</think>\n\nA<｜end▁of▁sentence｜>"),
    ("llamacpp__llama-cpp-deepseek-r1", INLINE, "<think>\n", "R\n</think>\n\nA<｜end▁of▁sentence｜>"),
    ("trl__deepseekv3", REASONED, "<think>\n", "R\n</think>\n\nA<｜end▁of▁sentence｜>"),
    ("llamacpp__Qwen-QwQ-32B", PLAIN, "<think>\n</think>", "A<|im_end|>"),
    ("llamacpp__Qwen-QwQ-32B", REASONED, "<think>\n", "R\n</think>\n\nA<|im_end|>"),
    ("llamacpp__Cohere2MoE", PLAIN, "<|START_THINKING|><|END_THINKING|>",
     "<|START_TEXT|>A<|END_TEXT|><|END_OF_TURN_TOKEN|>"),
]  # fmt: skip


AS_TAGS = "<think>\nR\n</think>\n\nA"
WAYS: list[tuple[str, dict[str, Any], str, str, str, str]] = [
    *((name, turn, "prompt_diverges", "on_prompt_mismatch=continue", *said) for name, turn, *said in one_in(2, CONTINUED)),
    ("llamacpp__deepseek-ai-DeepSeek-V3.1", REASONED, "dropped_reasoning", "on_prompt_mismatch=continue",
     "<｜Assistant｜><think>", "R</think>A<｜end▁of▁sentence｜>"),
    ("trl__llama3", REASONED, "dropped_reasoning", "reasoning=inline", "", f"{AS_TAGS}<|eot_id|>"),
    ("axolotl__chatml", REASONED, "dropped_reasoning", "reasoning=inline", "", f"{AS_TAGS}<|im_end|>"),
    ("mistralcommon__v7_image", REASONED, "dropped_reasoning", "reasoning=inline", "", f"{AS_TAGS}</s>"),
    ("axolotl__gemma", REASONED, "dropped_reasoning", "reasoning=inline", "", f"{AS_TAGS}<end_of_turn>"),
    # It would be </think><think>⏎R⏎</think>.
    ("llamacpp__deepseek-ai-DeepSeek-V3.2", INLINE, "prompt_diverges", "reasoning=field", "", "R</think>A<｜end▁of▁sentence｜>"),
]  # fmt: skip
"""Answers that a template loses or has no prompt for, the key that trains them, and how."""


@pytest.mark.parametrize(("template", "turn", "code", "key", "prompt", "completion"), WAYS)
def test_a_key_trains_what_a_template_leaves_out_or_only_prompts_for(
    template: str, turn: dict[str, Any], code: str, key: str, prompt: str, completion: str, real: Path, fitted: Fitted
) -> None:
    row = chat(user("Q"), turn)
    assert learned(stages_of(fitted, template), row) == code
    stages = stages_of(fitted, template, f"supervision.{key}")
    ((before, after),) = learned(stages, row)
    assert before.endswith(prompt)
    assert after == completion
    assert stages.document(row)[1][-1] in stages.model.stop_ids


# -- terminators -----------------------------------------------------------------------------------------------------------

TERMINATORS = [
    ("llamacpp__meta-llama-Llama-3.1-8B-Instruct", "call", ["<|eot_id|>", "<|eot_id|>"]),
    ("llamacpp__meetkai-functionary-medium-v3.1", "call without tools", ["<|eom_id|>", "<|eot_id|>"]),
    ("axolotl__gemma", "multi-turn", ["<end_of_turn>", "<end_of_turn>"]),
    ("llamacpp__GLM-4.6", "call", ["<|observation|>", "<|user|>"]),
    ("trl__cohere2", "multi-turn", ["<|END_RESPONSE|><|END_OF_TURN_TOKEN|>"] * 2),
    ("llamacpp__CohereForAI-c4ai-command-r7b-12-2024-tool_use", "call",
     ["<|END_ACTION|><|END_OF_TURN_TOKEN|>", "<|END_RESPONSE|><|END_OF_TURN_TOKEN|>"]),
    ("vllm__tool_chat_template_toolace", "multi-turn", ["<|eot_id|>", "<|eot_id|>"]),
    ("trl__phi3", "multi-turn", ["<|end|>", "<|end|>"]),
    ("mistralcommon__v13", "call", ["</s>", "</s>"]),
    ("axolotl__exaone4", "multi-turn", ["[|endofturn|]", "[|endofturn|]"]),
]  # fmt: skip


@pytest.mark.parametrize(("template", "shape", "endings"), one_in(2, TERMINATORS))
def test_a_turn_ends_with_its_terminator_and_nothing_after(
    template: str, shape: str, endings: list[str], real: Path, fitted: Fitted
) -> None:
    # `continue` for Command R7B, whose prompt closes the reasoning.
    rules = (ALLOW_ALL, "supervision.on_prompt_mismatch=continue")
    turns = learned(stages_of(fitted, template, *rules), sample(shape))
    assert not isinstance(turns, str), turns
    assert [completion[-len(ending) :] for (_, completion), ending in zip(turns, endings, strict=True)] == endings


# -- flags -----------------------------------------------------------------------------------------------------------------


def flagged(real: Path) -> Iterator[tuple[Sample, list[float]]]:
    lines = (real / "corpora" / "llamafactory" / "v1_sft_demo.jsonl").read_text("utf-8").splitlines()
    for number, line in enumerate(lines):
        row = json.loads(line)
        yield messages_schema.read(row, number), [message.get("loss_weight") for message in row["messages"]]


def test_loss_weights_of_llama_factory_rows_say_what_is_trained(real: Path, fitted: Fitted) -> None:
    stages = stages_of(fitted, "trl__qwen3")
    num_checked = 0
    for row, given in flagged(real):
        assert [message.trained for message in row.messages] == [bool(weight) for weight in given]
        assert all(isinstance(message.fields["content"], str) for message in row.messages)
        turns = stages.render([row])
        assert turns.turn_message.tolist() == [
            k for k, weight in enumerate(given) if weight and row.messages[k].role == "assistant"
        ]
        num_checked += len(turns.turn_message)
    assert num_checked == 500
