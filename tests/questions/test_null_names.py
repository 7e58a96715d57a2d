"""Texts that are only the name of a null are named in a note, where they are no labels."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
import twins
from command_line import run

from packer.questions.unread_text import find_unread
from packer.source.decode import Refused
from packer.source.schema import read_row

TEXTS = [f"The tide number {number} turns at five, so the boat waits." for number in range(4)]


def found_in(*rows: dict[str, Any], schema: str = "alpaca", known: tuple[str, ...] = ()) -> dict[str, int]:
    found = find_unread(rows, schema=schema, columns={}, roles={}, known=known)
    places = ((re.search("in (`.*), which is read as a text", each.says), each.num_rows) for each in found.notes)
    return {place[1]: num_rows for place, num_rows in places if place}


def rows(**values: Any) -> list[dict[str, Any]]:
    return [
        {"instruction": "When?", "output": text} | {name: each[number] for name, each in values.items()}
        for number, text in enumerate(TEXTS)
    ]


@pytest.mark.parametrize("name", ["None", "nan", "NaN", "null", "NULL", "<NA>", "N/A", " None\n"])
@pytest.mark.parametrize("field", ["system", "input", "reasoning", "output"])
def test_a_name_of_null_among_texts_or_alone_is_found_in_every_field(name: str, field: str) -> None:
    if (field, name.strip()) == ("reasoning", "None"):
        with pytest.raises(Refused, match="is a setting, not reasoning"):
            read_row(rows(reasoning=[name] * 4)[0], number=0, schema="alpaca", columns={})
        return
    assert found_in(*rows(**{field: [TEXTS[0], name, TEXTS[1], name]})) == {f"`{field}`": 2}
    assert found_in(*rows(**{field: [name] * 4})) == {f"`{field}`": 4}
    assert found_in(*rows(**{field: [TEXTS[0], None, "", TEXTS[1]]})) == {}
    assert found_in(*rows(**{field: [TEXTS[0], name, TEXTS[1], name]}), known=(field,)) == {}


def test_among_labels_none_is_one() -> None:
    assert found_in(*rows(output=["Bird", "None", "Tree", "Bird"])) == {}
    assert found_in(*rows(output=["Bird", "None", "Tree", "None of these, but a fish."])) == {}


@pytest.mark.parametrize("word", ["<noinput>", "No input", "Keine Eingabe", "无", "-"])
def test_a_label_that_many_rows_repeat_where_others_have_texts_that_differ_is_one_too(word: str) -> None:
    for field in ("input", "system"):
        assert found_in(*rows(**{field: [word, TEXTS[0], word, TEXTS[1]]}), *rows(**{field: [word] * 4})) == {
            f"`{field}`": 6
        }
        assert found_in(*rows(**{field: [word, TEXTS[0], word, TEXTS[1]]})) == {}  # too few to tell
        assert found_in(*rows(**{field: [word] * 4})) == {}  # what is beside every question
        assert found_in(*rows(**{field: [word, "Bird", word, "Tree"]}), *rows(**{field: [word] * 4})) == {}
        assert found_in(*rows(**{field: [word, TEXTS[0], word, TEXTS[0]]}), *rows(**{field: [word] * 4})) == {}
    assert found_in(*rows(output=[word, TEXTS[0], word, TEXTS[1]]), *rows(output=[word] * 4)) == {}  # an answer


def test_the_messages_of_each_speaker_are_compared_with_each_other() -> None:
    def talk(answer: str, **more: Any) -> dict[str, Any]:
        asked = {"role": "user", "content": TEXTS[0]}
        return {"messages": [asked, {"role": "assistant", "content": answer, **more}]}

    assert found_in(talk("Bird"), talk("None"), schema="messages") == {}
    thoughts = [talk(text, reasoning_content=text) for text in TEXTS]
    assert found_in(*thoughts, talk("None", reasoning_content="nan"), schema="messages") == {
        "`messages[].content` of `assistant`": 1,
        "`messages[].reasoning_content` of `assistant`": 1,
    }


def test_a_build_names_the_field_and_the_number_of_rows(tmp_path: Path) -> None:
    given = rows(system=["nan", "Be brief, and kind.", "nan", "Speak as a pilot does."])
    path = tmp_path / "rows.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, given[0].keys())
        table.writeheader()
        table.writerows(given)
    tokenizer = twins.byte_level(tmp_path / "tokenizer", template=twins.CHATML)
    note = "2 of its first 4 rows have only `nan` in `system`, which is read as a text; give null for nothing"
    for number, (source, is_said) in enumerate(((path, True), (tmp_path / "rows.jsonl", False))):
        if not is_said:
            blank = [row | {"system": None if row["system"] == "nan" else row["system"]} for row in given]
            source.write_text("".join(json.dumps(row) + "\n" for row in blank), "utf-8")
        told = run("build", source, "--tokenizer", tokenizer, "-o", tmp_path / f"cache{number}").stderr
        assert (note in " ".join(told.split())) is is_said
