"""Questions to choose an answer from: what hints make of them has the options in the prompt and the right one as answer."""

import csv
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import twins
from hints import settings_in
from search_effort import each_with_a_kind

from packer.audit.preview import preview
from packer.errors import InputError
from packer.questions.schema_errors import detected_schema
from packer.recipe.recipe import make_recipe
from packer.source.comparisons import named_sides
from packer.source.schema import read_row

LETTERS = "ABCD"
WORDS = [
    ["an owl of the woods", "a curlew of the shore", "a hen", f"a goose of the {place}"] for place in ("sea", "lake")
]
NUMBERS = [[3, 7, 9, 12], [4, 5, 6, 11]]
ASKED = ["Which one is it?", "And which is it here?"]


def written(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([*rows]), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def built(path: Path, which: int = 0) -> list[tuple[str, str]]:
    """The prompt and the trained text of each row, after the commands of hints, of the first one this, were run."""
    tokenizer = str(twins.byte_level(path.parent / "tokenizer", template=twins.CHATML))
    overrides: list[str] = []
    for _ in range(3):
        try:
            values = {"sources": [{"path": str(path)}], "tokenizer": tokenizer}
            seen = preview(make_recipe(values, overrides))
            if seen.hint is None:
                runs = [[run for document in row.view.documents for run in document.runs] for row in seen.rows]
                asked = ["".join(run.text for run in each if run.message is None) for each in runs]
                said = ["".join(run.text for run in each if run.message is not None) for each in runs]
                return [*zip(asked, (each.removesuffix("<|im_end|>") for each in said), strict=True)]
            hint = seen.hint
        except InputError as error:
            hint = str(error.hint)
        commands = re.findall(r"(?:if|to) [^:]*: ((?:jq|python) .*?_lines\.jsonl)", hint)
        if commands:
            command = commands[which].replace("python -c", f"{shlex.quote(sys.executable)} -c", 1)
            subprocess.run(["bash", "-euc", f"set -o pipefail; {command}"], check=True, cwd=path.parent)
            path = path.with_name(f"{path.stem}_lines.jsonl")
        else:
            overrides += settings_in(hint)[:1]
    raise AssertionError(hint)


def fields(options: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    return dict(zip(names, options, strict=True))


FORMS = {
    "A": lambda options: fields(options, LETTERS),
    "opa": lambda options: fields(options, ["opa", "opb", "opc", "opd"]),
    "option_1": lambda options: fields(options, [f"option_{k}" for k in (1, 2, 3, 4)]),
    "a list": lambda options: {"choices": options},
    "an object": lambda options: {"options": fields(options, LETTERS)},
}


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize(
    ("case", "kind"),
    each_with_a_kind(
        product([("question", "answer"), ("instruction", "output")], FORMS, [WORDS, NUMBERS]),
        ["csv", "jsonl", "parquet"],
    ),
)
def test_options_of_a_question_are_in_its_prompt_whatever_has_them(
    tmp_path: Path, case: tuple[tuple[str, str], str, Sequence[Sequence[Any]]], kind: str
) -> None:
    names, form, options = case
    rows = [
        {names[0]: asked} | FORMS[form](each) | {names[1]: letter}
        for asked, each, letter in zip(ASKED, options, "DB", strict=True)
    ]
    if kind == "csv":
        rows = [
            {key: json.dumps(each) if isinstance(each, dict | list) else each for key, each in row.items()}
            for row in rows
        ]
    found = built(written(tmp_path / f"rows.{kind}", rows))
    assert len(found) == len(rows)
    for (prompt, said), asked, each, letter in zip(found, ASKED, options, "DB", strict=True):
        assert asked in prompt
        assert all(f"{LETTERS[k]}. {option}" in prompt for k, option in enumerate(each))
        assert said in (letter, str(each[LETTERS.index(letter)]))


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_options_beside_messages_are_written_into_the_question(tmp_path: Path) -> None:
    rows = [
        {"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": letter}], "options": each}
        for asked, each, letter in zip(ASKED, NUMBERS, "DB", strict=True)
    ]
    for number, (prompt, said) in enumerate(built(written(tmp_path / "rows.jsonl", rows))):
        assert said == "DB"[number]
        assert all(
            f"{LETTERS[k]}. {option}\n" in f"{prompt}\n".replace("<", "\n") for k, option in enumerate(NUMBERS[number])
        )


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_a_letter_picks_nothing_from_another_list_where_the_answer_is_one_of_the_options(tmp_path: Path) -> None:
    rows = [
        {"question": asked, "answer": each[k], "options": fields(each, LETTERS), "answer_idx": LETTERS[k]}
        | {"phrases": ["bird", "shore", "feather", "nest", f"{k} years old"]}
        for k, asked, each in zip((3, 1), ASKED, WORDS, strict=True)
    ]
    found = built(written(tmp_path / "rows.jsonl", rows))
    for (prompt, said), k, asked, each in zip(found, (3, 1), ASKED, WORDS, strict=True):
        assert said == each[k]
        assert asked in prompt and all(option in prompt for option in each)
        assert "A. bird" not in prompt


def test_numbers_of_which_some_answers_are_none_are_not_asked_about(tmp_path: Path) -> None:
    rows = [{"instruction": asked, "seen": [1, 3, 5], "output": said} for asked, said in zip(ASKED, "36", strict=True)]
    assert [said for _, said in built(written(tmp_path / "rows.jsonl", rows))] == ["3", "6"]


@pytest.mark.parametrize(
    ("names", "values"),
    [
        (("A", "B", "C"), "ABC"),
        (("answer_a", "answer_b", "answer_c"), "ab"),
        (("reply_1", "reply_2", "reply_3"), "123"),
        (("left_reply", "right_reply", "middle_reply"), ["left", "right", "middle"]),
    ],
)
def test_two_texts_of_three_are_no_sides_of_a_comparison(names: Sequence[str], values: Sequence[str]) -> None:
    rows = [{"prompt": "Which?", **dict.fromkeys(names, "It is a hen."), "better": value} for value in values]
    assert named_sides(rows) is None
    two = [{name: said for name, said in row.items() if name != names[2]} for row in rows[:2]]
    sides = named_sides(two)
    assert sides is not None and sides.texts == (*names[:2],)


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize("values", [(1, 0), (1, 2), (True, False)])
def test_a_number_that_says_which_of_two_answers_is_better_has_both_senses(tmp_path: Path, values: Any) -> None:
    texts = ["I would take the ferry at six.", "Nobody goes there in winter."]
    rows = [
        {
            "question": f"{asked} And why?",
            "by_A": f"a{n}",
            "by_B": f"b{n}",
            "reply_A": texts[0],
            "reply_B": texts[1],
            "labels": value,
        }
        for n, (asked, value) in enumerate(zip(ASKED, values, strict=True))
    ]
    path = written(tmp_path / "rows.jsonl", rows)
    with pytest.raises(InputError) as caught:
        detected_schema(path, format="jsonl", columns={})
    hint = str(caught.value.hint)
    commands = re.findall(r"if `labels` is (\w+) where `(\w+)` is better: (jq .*?_lines.jsonl)", hint)
    assert [name for _, name, _ in commands] == ["reply_A", "reply_B"]
    for number, (said, _, command) in enumerate(commands):
        assert said == json.dumps(values[0])
        subprocess.run(["bash", "-euc", command], check=True, cwd=tmp_path)
        made = [json.loads(line) for line in (tmp_path / "rows_lines.jsonl").read_text("utf-8").splitlines()]
        better = [texts[number], texts[1 - number]]
        assert [(row["chosen"], row["rejected"]) for row in made] == [(*better,), (*better[::-1],)]


FLAGS = {
    "winner_model": ("winner_model_a", "winner_model_b", "winner_tie", "response_a", "response_b"),
    "is_better": ("left_is_better", "right_is_better", "none_is_better", "said_left", "said_right"),
}


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
@pytest.mark.parametrize("kind", ["jsonl", "csv"])
@pytest.mark.parametrize("are_turns", [False, True])
@pytest.mark.parametrize("names", FLAGS.values(), ids=FLAGS)
def test_of_two_answers_with_a_yes_or_no_each_the_one_with_the_yes_is_chosen_and_ties_are_left_out(
    tmp_path: Path, names: Sequence[str], are_turns: bool, kind: str
) -> None:
    texts = [["I would take the ferry at six.", "It is cheap."], ["Nobody goes there in winter.", "It is too cold."]]
    asked = ["How do I get to Mull?", "And why so?"]
    given = [json.dumps(each) if are_turns else each[0] for each in (asked, *texts)]
    flags = [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 0)]
    rows = [dict(zip(("prompt", *names), (given[0], *each, *given[1:]), strict=True)) for each in flags]
    path = written(tmp_path / f"rows.{kind}", rows)
    with pytest.raises(InputError) as caught:
        detected_schema(path, format=kind, columns={})  # type: ignore[arg-type]
    hint = str(caught.value.hint)
    assert f"if a yes in `{names[0]}` or `{names[1]}` says that `{names[3]}` or `{names[4]}` is better" in hint
    subprocess.run(["bash", "-euc", hint.partition("left out: ")[2]], check=True, cwd=tmp_path)
    made = [json.loads(line) for line in (tmp_path / "rows_lines.jsonl").read_text("utf-8").splitlines()]
    assert len(made) == 3
    for row, better in zip(made, (0, 1, 0), strict=True):
        for side, said in (("chosen", texts[better]), ("rejected", texts[1 - better])):
            turns = [
                {"role": role, "content": each[k]}
                for k in (0, 1)
                for role, each in (("user", asked), ("assistant", said))
            ]
            assert row[side] == (turns if are_turns else said[0])
        assert row.get("prompt") == (None if are_turns else asked[0])
        assert read_row(row, number=0, schema="preference", columns={}).preference is not None
