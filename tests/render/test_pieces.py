"""A text and its calls that are messages with flags of their own are one turn: it is trained whole, or the row rejected."""

import json
from pathlib import Path
from typing import Any

import pytest
import twins
from supervision_stages import Stages

from packer.batches import Sample
from packer.source.decode import Refused
from packer.source.schema import read_row

CALLS = "{{ message.content or '' }}{% for call in message.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}"


def stages_of(folder: Path, *overrides: str) -> Stages:
    """A twin whose template writes calls behind the text of a message."""
    macro = "{% macro shown(message) %}" + CALLS + "{% endmacro %}"
    template = macro + twins.CHATML.replace("(message.content or '')", "shown(message)")
    return Stages.load(twins.byte_level(folder, template=template), *overrides)


def row(text: str, places: list[str], flags: tuple[Any, ...]) -> dict[str, Any]:
    """A question, an answer in pieces that have a flag each, and another exchange, which is not trained."""
    calls = [json.dumps({"name": "look", "arguments": {"at": place}}) for place in places]
    pieces = [{"role": "assistant", "content": text}, *({"role": "tool_call", "content": call} for call in calls)]
    pieces = [piece if flag is None else piece | {"loss": flag} for piece, flag in zip(pieces, flags, strict=True)]
    last = [{"role": "user", "content": "And now?"}, {"role": "assistant", "content": "Calm.", "loss": False}]
    return {"messages": [{"role": "user", "content": "How deep?"}, *pieces, *last]}


def sampled(made: dict[str, Any]) -> Sample:
    return read_row(made, number=0, schema="messages", columns={})


def trained(stages: Stages, made: dict[str, Any]) -> tuple[str, bool]:
    """The trained text of a row, and whether the turn's stop token is trained."""
    ids, labels = stages.document(sampled(made))
    learned = [label for label in labels if label >= 0]
    assert all(label in (-100, token) for token, label in zip(ids, labels, strict=True))
    assert sum(token in stages.model.stop_ids for token in learned) <= 1
    return stages.round_trip.decode(learned).decode(), learned[-1] in stages.model.stop_ids


@pytest.mark.parametrize("flags", [(True, False), (False, True), (None, False), (False, None)])
def test_a_turn_of_which_some_pieces_say_no_rejects_the_row(flags: Any) -> None:
    with pytest.raises(Refused, match=r"with another flag .* trained whole or not at all: give both one flag"):
        sampled(row("Let me look.", ["here"], flags))


@pytest.mark.parametrize("flags", [(True, True), (1, 1), (None, None), (True, None), (None, True)])
def test_a_turn_of_which_no_piece_says_no_is_trained_as_a_whole(flags: Any, tmp_path: Path) -> None:
    text, stops = trained(stages_of(tmp_path), row("Let me look.", ["here"], flags))
    assert text.startswith("Let me look.{") and "here" in text and stops


def test_a_call_of_the_assistants_own_is_a_piece_like_any_other(tmp_path: Path) -> None:
    """A log has a text and its call as two messages of the assistant, with or without flags."""
    stages = stages_of(tmp_path)
    for flags in ((None, None), (True, True)):
        made = row("Let me look.", ["here"], flags)
        expected = trained(stages, made)
        call = made["messages"][2]
        written = json.loads(call.pop("content"))
        call |= {"role": "assistant", "content": None, "tool_calls": [{"id": "7", "function": written}]}
        assert trained(stages, made) == expected


def test_a_whole_conversation_is_not_trained_of_a_row_that_says_what_is(tmp_path: Path) -> None:
    stages = stages_of(tmp_path, "supervision.turns=conversation")
    unflagged = {"role": "user", "content": "Where?"}
    rows = [
        row("Let me look.", ["here"], (True, True)),
        {"messages": [unflagged | {"train": False}, {"role": "assistant", "content": "Here."}]},
        {"messages": [{"role": "system", "content": "Be brief.", "weight": 0}, unflagged]},
    ]
    for each in rows:
        (reason,) = stages.reasons([sampled(each)])
        assert reason[0] == "wrong_type" and "turns=conversation trains all" in reason[1]


def test_a_trained_call_that_the_template_drops_leaves_no_stop_token_to_train(tmp_path: Path) -> None:
    template = twins.CHATML
    allowed = "supervision.allow_dropped=[tool_call]"
    stages = Stages.load(twins.byte_level(tmp_path, template=template), allowed)
    made = row("Let me look.", ["here"], (None, None))
    (reason,) = stages.reasons([sampled(made)])
    assert reason[0] == "nothing_trained"
    made["messages"][-1]["loss"] = True
    assert trained(stages, made) == ("Calm.<|im_end|>", True)
