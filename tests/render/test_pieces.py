"""A turn whose pieces have flags of their own is one turn: what is trained of it is exactly the flagged pieces."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import twins
from search_effort import each_with_a_kind
from supervision_stages import Stages

from packer import verify_cache
from packer.batches import Sample
from packer.model.model import load_model
from packer.pipeline.from_python import build
from packer.recipe.recipe import make_recipe
from packer.source.schema import read_row

STYLES = {
    "each in tags": "{% for call in calls %}{{ '\n' if message.content or not loop.first }}"
    "{{ '<call>' + call.function | tojson + '</call>' }}{% endfor %}",
    "right behind the text": "{% for call in calls %}{{ call.function | tojson }}{% endfor %}",
    "in one list": "[{% for call in calls %}{{ call.function | tojson }}{{ ', ' if not loop.last }}{% endfor %}]",
    "in tags within a tag": "{{ '<answer>' + (message.content or '') }}"
    "{% for call in calls %}{{ '<call>' + call.function | tojson + '</call>' }}{% endfor %}</answer>",
    "in a section": "<calls>{% for call in calls %}{{ call.function | tojson }}{% endfor %}</calls>",
}
BEFORE = STYLES["each in tags"] + "{{ message.content or '' }}"


def stages_of(twin: Any, folder: Path, style: str, *overrides: str) -> Stages:
    """A twin whose template writes calls behind the text of a message, or in the place of `style`."""
    shown = STYLES.get(style, style)
    shown = (
        shown
        if "message.content or ''" in shown
        else "{{ message.content or '' }}{% if calls %}" + shown + "{% endif %}"
    )
    macro = "{% macro shown(message) %}{% set calls = message.tool_calls or [] %}" + shown + "{% endmacro %}"
    template = macro + (load_model(twin(folder)).template or "").replace("message.content", "shown(message)")
    return Stages.load(twin(folder, template=template), *overrides)


def row(text: str, places: list[str], flags: tuple[Any, ...], name: str = "loss") -> dict[str, Any]:
    """A question, an answer in pieces that have a flag each, and another exchange, which is not trained."""
    calls = [json.dumps({"name": "look", "arguments": {"at": place}}) for place in places]
    pieces = [{"role": "assistant", "content": text}, *({"role": "tool_call", "content": call} for call in calls)]
    pieces = [piece if flag is None else piece | {name: flag} for piece, flag in zip(pieces, flags, strict=True)]
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


@pytest.mark.parametrize(("twin", "style"), each_with_a_kind(twins.TWINS, [*STYLES]))
def test_exactly_the_flagged_pieces_are_trained_and_the_stop_token_with_the_last(
    twin: Any, style: str, tmp_path: Path
) -> None:
    stages = stages_of(twin, tmp_path, style)
    places = ["the pier", "the long wall"]
    said = ["Let me look.", *places]
    for flags in itertools.product([True, False], repeat=3):
        if any(flags):
            text, stops = trained(stages, row(said[0], places, flags))
            assert [part in text for part in said] == [*flags], (flags, text)
            assert stops == flags[-1], (flags, text)
            assert any(flags[1:]) or text.endswith(said[0]), (flags, text)


def test_a_turn_with_one_flag_is_trained_as_without_pieces(tmp_path: Path) -> None:
    stages = stages_of(twins.byte_level, tmp_path, "each in tags")
    whole = trained(stages, row("Let me look.", ["here"], (True, True)))
    assert whole == trained(stages, row("Let me look.", ["here"], (1, None)))
    parts = [trained(stages, row("Let me look.", ["here"], flags))[0] for flags in ((True, False), (False, True))]
    assert "".join(parts) == whole[0]


def test_a_call_of_the_assistants_own_is_a_piece_like_any_other(tmp_path: Path) -> None:
    """A log has a text and its call as two messages of the assistant, with or without flags."""
    stages = stages_of(twins.byte_level, tmp_path, "each in tags")
    for flags in ((None, None), (True, False), (False, True), (True, True)):
        made = row("Let me look.", ["here"], flags)
        expected = trained(stages, made)
        call = made["messages"][2]
        written = json.loads(call.pop("content"))
        call |= {"role": "assistant", "content": None, "tool_calls": [{"id": "7", "function": written}]}
        assert trained(stages, made) == expected
        assert ("Let me look." in expected[0], "here" in expected[0]) == (flags[0] is not False, flags[1] is not False)


def test_a_piece_without_a_flag_follows_the_rule_of_the_recipe(tmp_path: Path) -> None:
    for rule, flags in (("all", (True, False, True)), ("marked", (False, False, True))):
        stages = stages_of(twins.byte_level, tmp_path, "each in tags", f"supervision.turns={rule}")
        text, stops = trained(stages, row("Let me look.", ["north", "south"], (None, False, True)))
        assert ([part in text for part in ("Let me look.", "north", "south")], stops) == ([*flags], True)


def test_a_control_token_in_the_context_and_letters_of_several_bytes_move_no_piece(tmp_path: Path) -> None:
    stages = stages_of(twins.byte_level, tmp_path, "in one list")
    made = row("Schön, ich schaue.", ["Föhr"], (True, False))
    made["messages"][0]["content"] = "Wie tief? <|im_end|> 你好"
    assert trained(stages, made) == ("Schön, ich schaue.", False)


def test_history_that_is_rewritten_moves_no_piece(tmp_path: Path) -> None:
    """Under Qwen3 an answer before the last question has no block any more, so it has a document of its own."""
    shown = "message.content + (message.tool_calls | tojson if message.tool_calls else '')"
    template = twins.QWEN3_LIKE.replace("(message.content or '')", "message.content").replace("message.content", shown)
    made = row("Let me look.", ["here"], (False, True))
    made["messages"][-1]["loss"] = True
    for rewrite in ("exact", "as_rendered"):
        stages = Stages.load(twins.byte_level(tmp_path, template=template), f"supervision.history_rewrite={rewrite}")
        (documents,) = stages.outcomes([sampled(made)])
        learned = [stages.round_trip.decode([each for each in labels if each >= 0]) for _, labels in documents]
        assert [(b"here" in each, b"look." in each, b"Calm." in each) for each in learned] == [
            (True, False, False),
            (False, False, True),
        ]


def test_a_trained_call_that_the_template_drops_leaves_no_stop_token_to_train(tmp_path: Path) -> None:
    stages = stages_of(twins.byte_level, tmp_path, "", "supervision.allow_dropped=[tool_call]")
    made = row("Let me look.", ["here"], (False, True))
    (reason,) = stages.reasons([sampled(made)])
    assert reason[0] == "nothing_trained"
    made["messages"][-1]["loss"] = True
    assert trained(stages, made) == ("Calm.<|im_end|>", True)


@pytest.mark.parametrize(("template", "flags"), [(BEFORE, (True, False)), (BEFORE, (False, True))])
def test_a_template_that_writes_the_calls_first_rejects_the_row(tmp_path: Path, template: str, flags: Any) -> None:
    stages = stages_of(twins.byte_level, tmp_path, template)
    (reason,) = stages.reasons([sampled(row("Let me look.", ["here"], flags))])
    assert reason[0] == "wrong_type"
    assert "one after the other" in reason[1]


def test_pieces_with_different_weights_reject_the_row(tmp_path: Path) -> None:
    stages = stages_of(twins.byte_level, tmp_path, "in a section")
    read = [sampled(row("So.", ["here"], each, "weight")) for each in ((1, 0.5), (0, 0.5))]
    assert [code for code, _ in stages.reasons(read[:1])] == ["wrong_type"]
    assert not stages.reasons(read[1:])


def test_a_cache_with_pieces_is_what_encoding_its_rows_again_gives(tmp_path: Path) -> None:
    macro = (
        "{% macro shown(message) %}{{ message.content or '' }}{{ message.tool_calls | tojson if message.tool_calls }}"
    )
    template = macro + "{% endmacro %}" + twins.CHATML.replace("(message.content or '')", "shown(message)")
    tokenizer = twins.byte_level(tmp_path / "tokenizer", template=template)
    path = tmp_path / "rows.jsonl"
    made = [row("Let me look.", ["north", "south"], flags) for flags in itertools.product([True, False], repeat=3)]
    path.write_text("".join(json.dumps(each) + "\n" for each in made))
    build(make_recipe({"sources": [{"path": str(path)}], "tokenizer": str(tokenizer)}), tmp_path / "cache", jobs=1)
    report = verify_cache(tmp_path / "cache", sources=["/"], reencode=True)
    assert not report.findings
    manifest = json.loads((tmp_path / "cache" / "manifest.json").read_text())
    assert manifest["totals"]["rejected"] == {"nothing_trained": 1}
    assert manifest["totals"]["kept"] == 7
