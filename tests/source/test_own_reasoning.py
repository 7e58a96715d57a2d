"""Reasoning that a row gives in a message of its own, or in forms of other families, as part of the turn that follows."""

from pathlib import Path
from typing import Any

import pytest
import twins
from supervision_stages import Stages, assistant, call, result, user

from packer.batches import Sample
from packer.questions.unread_text import find_unread
from packer.source.decode import Refused
from packer.source.schema import read_row

MARKED = """\
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.reasoning_content %}{{ '{{' + m.reasoning_content + '}}' }}{% endif %}
{{- m.content or '' }}
{%- for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

ASKED = user("one?")
THOUGHT: list[dict[str, Any]] = [
    *({"role": role, "content": "Count."} for role in ("reasoning", "Thought", "thinking", "analysis")),
    {"role": "assistant", "channel": "analysis", "content": "Count."},
    *(assistant(None, **{name: "Count."}) for name in ("reasoning_content", "thinking", "reasoning")),
    assistant("", reasoning_content="Count."),
    assistant([{"type": "thinking", "thinking": "Count."}]),
    assistant([{"type": "reasoning", "reasoning": "Count.", "signature": None}]),
    assistant([{"type": "thinking", "thinking": [{"type": "text", "text": "Count."}], "closed": True}]),
    assistant([{"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Count."}]}]),
    assistant(None, reasoning_details=[{"type": "reasoning.text", "text": "Count.", "index": 0, "signature": "c2ln"}]),
    assistant(
        None, reasoning_details=[{"type": "reasoning.summary", "summary": "Count."}, {"type": "reasoning.encrypted"}]
    ),
    assistant(None, thinking_blocks=[{"type": "thinking", "thinking": "Count.", "signature": "c2ln"}]),
]
CALLING = assistant(None, tool_calls=[call("look", {"q": "x"})])


def read(*messages: dict[str, Any]) -> Sample:
    return read_row({"messages": list(messages)}, number=0, schema="messages", columns={})


def learned(folder: Path, *messages: dict[str, Any], rule: str = "as_given") -> list[str]:
    """What is trained of a row."""
    stages = Stages.load(twins.byte_level(folder / "model", template=MARKED), f"supervision.reasoning={rule}")
    (documents,) = stages.outcomes([read(*messages)])
    assert not isinstance(documents, str), documents
    return [
        stages.round_trip.decode([i for i, label in zip(ids, labels, strict=True) if label >= 0]).decode()
        for ids, labels in documents
    ]


@pytest.mark.parametrize("thought", THOUGHT, ids=str)
def test_reasoning_and_the_answer_that_follows_are_one_turn(tmp_path: Path, thought: dict[str, Any]) -> None:
    stages = Stages.load(twins.byte_level(tmp_path / "model", template=MARKED)).by_reference()
    more = {"role": "thinking", "content": "Answer."}
    for said, trained in (
        ([thought, assistant("One.", channel="final")], ["{{Count.}}One."]),
        (
            [thought, CALLING, result("wet"), assistant("It rains.")],
            ['{{Count.}}{"name": "look", "arguments": {"q": "x"}}', "It rains."],
        ),
        # pieces of reasoning in a row are paragraphs of one turn
        ([thought, more, assistant("One.")], ["{{Count.\n\nAnswer.}}One."]),
    ):
        turns = stages.turns(read(ASKED, *said))
        assert [completion for _, completion in turns] == [f"{each}<|im_end|>" for each in trained]
    for rest in ([], [user("so?"), assistant("One.")]):  # what nothing follows is no answer
        assert stages.outcomes([read(ASKED, thought, *rest)]) == ["open_reasoning"]


@pytest.mark.parametrize("thought", THOUGHT, ids=str)
def test_reasoning_in_any_form_is_read_and_nothing_beside_it_is_asked_about(thought: dict[str, Any]) -> None:
    rows = [{"messages": [ASKED, thought, assistant("One.", channel="final"), ASKED, assistant("One.")]}] * 2
    assert not find_unread(rows, schema="messages", columns={}, roles={}).fields


def test_of_reasoning_in_parts_its_text_counts_and_not_its_summary_or_a_copy_beside_it() -> None:
    summary = [{"type": "summary_text", "text": each} for each in ("Two", "letters.")]
    parts = [{"type": "reasoning", "text": "Count.", "summary": summary}, {"type": "text", "text": "One."}]
    details = [{"type": "reasoning.text", "text": "Count."}]
    for message in (assistant(parts), assistant("One.", reasoning="Count.", reasoning_details=details)):
        assert read(ASKED, message).messages[1].fields["reasoning_content"] == "Count."
    del parts[0]["text"]
    assert read(ASKED, assistant(parts)).messages[1].fields["reasoning_content"] == "Two\n\nletters."


def test_a_part_of_reasoning_that_did_not_end_is_cut_off() -> None:
    with pytest.raises(Refused) as caught:
        read(ASKED, assistant([{"type": "thinking", "thinking": "Count", "closed": False}]))
    assert caught.value.code == "cut_off"


def test_rows_of_turns_say_it_with_from_and_value(tmp_path: Path) -> None:
    turns = [("human", "one?"), ("reasoning", "Count."), ("gpt", "One.")]
    row = {"conversations": [{"from": sender, "value": value} for sender, value in turns]}
    sample = read_row(row, number=0, schema="sharegpt", columns={})
    assert sample.messages == read(ASKED, THOUGHT[0], assistant("One.")).messages


def test_an_answer_with_reasoning_of_its_own_takes_no_other() -> None:
    with pytest.raises(Refused, match="two answers in a row"):
        read(ASKED, THOUGHT[0], assistant("One.", reasoning_content="Guess."))


@pytest.mark.parametrize("flags", [{"train": True}, {}])
def test_an_answer_can_be_trained_without_the_reasoning_before_it(tmp_path: Path, flags: dict[str, Any]) -> None:
    (trained,) = learned(tmp_path, ASKED, THOUGHT[0] | {"train": False}, assistant("One.", **flags))
    assert trained == "}}One.<|im_end|>"  # what is no tag belongs to the part that follows


@pytest.mark.parametrize(
    ("own", "turn"),
    [({}, assistant("One.", train=False)), ({"train": False}, CALLING), ({"weight": 1}, assistant("One."))],
)
def test_reasoning_is_not_trained_without_its_answer_nor_calls_without_theirs(own: Any, turn: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="both are one turn"):
        read(ASKED, THOUGHT[0] | own, turn)


@pytest.mark.parametrize("channel", [{"id": "C1", "name": "analysis"}, ["analysis"], 5])
def test_a_channel_that_is_no_name_says_nothing_of_reasoning(tmp_path: Path, channel: object) -> None:
    asked = ASKED | {"channel": channel}
    assert learned(tmp_path, asked, assistant("One.", channel=channel)) == ["One.<|im_end|>"]


def test_text_beside_calls_in_the_channel_of_reasoning_is_no_reasoning() -> None:
    sample = read(
        ASKED, {**CALLING, "channel": "analysis", "content": "Let me look."}, result("wet"), assistant("Wet.")
    )
    assert sample.messages[1].fields["content"] == "Let me look."


def test_parts_within_a_part_of_thinking_are_its_text(tmp_path: Path) -> None:
    thinking = [{"type": "text", "text": "Co"}, {"type": "text", "text": "unt."}]
    parts = [{"type": "thinking", "thinking": thinking, "closed": True}, {"type": "text", "text": "One."}]
    assert learned(tmp_path, ASKED, assistant(parts)) == ["{{Count.}}One.<|im_end|>"]
    with pytest.raises(Refused, match="thinking"):
        read(ASKED, assistant([{"type": "thinking", "thinking": [{"type": "reference", "ids": [1]}]}]))


@pytest.mark.parametrize(
    "text",
    [
        "<|START_THINKING|>Count.<|END_THINKING|><|START_RESPONSE|>One.<|END_RESPONSE|>",
        "<|START_THINKING|>Count.<|END_THINKING|><|START_TEXT|>One.",
        "<|begin_of_thought|>\n\nCount.\n\n<|end_of_thought|>\n\n<|begin_of_solution|>\n\nOne.\n\n<|end_of_solution|>",
        "<|channel|>analysis<|message|>Count.<|end|><|start|>assistant<|channel|>final<|message|>One.",
        "Count.\n</think>\n\nOne.",
        '<think depth="2">Count.</think>One.',
        "< think >Count.</ think >One.",
        "&lt;think&gt;Count.&lt;/think&gt;One.",
        "<Think>Count.</think>One.",
    ],
)
def test_a_field_takes_the_reasoning_without_the_markers_of_another_family(tmp_path: Path, text: str) -> None:
    assert learned(tmp_path, ASKED, assistant(text), rule="field") == ["{{Count.}}One.<|im_end|>"]
