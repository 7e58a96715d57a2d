"""Numbers and lines for people."""

import io
import sys

import click
import pytest

from packer.display import Lines, percent, visible
from packer_cli.output import cells, lines_of, stdout, wrap
from packer_cli.page import ViewPage
from packer_cli.reply import print_error


@pytest.mark.parametrize(
    ("share", "shown"),
    [(0, "0.0 %"), (1, "100.0 %"), (0.99999, "99.9 %"), (0.00001, "<0.1 %"), (0.5, "50.0 %"), (0.9874, "98.7 %")],
)
def test_what_is_not_all_or_nothing_does_not_look_so(share, shown):
    assert percent(share) == shown


@pytest.mark.parametrize("text", ["", "one", "a b c " * 30, "世界" * 40, "x" * 100, "👩‍👩‍👧 " * 20, "a\tb " * 30])
@pytest.mark.parametrize("width", [20, 33, 78])
def test_wrapping_loses_no_character_and_keeps_the_width(text, width):
    parts = list(wrap(text, width))
    assert "".join(parts) == text.expandtabs(4)
    assert all(sum(map(cells, part)) <= width for part in parts)
    assert all(parts)


class Terminal(io.StringIO):
    def isatty(self):
        return True


MESSAGE = "/a/very/long/path/of-a-file/that-no-line/can-hold/as it is named/rows-00000-of-00001.jsonl: cannot be read"
HINT = "for example: zcat rows.jsonl.gz | packer build - --tokenizer DIR --set sources.format=csv -o CACHE\nerror: no"


@pytest.mark.parametrize("columns", ["80", "24", "no", "", "9" * 5000])
def test_errors_are_wrapped_at_spaces_for_a_terminal_and_are_a_line_in_a_pipe(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("NO_COLOR", "1")
    piped, shown = io.StringIO(), Terminal()
    for stream in (piped, shown):
        monkeypatch.setattr(sys, "stderr", stream)
        print_error(MESSAGE, HINT)
    shown_hint = HINT.replace("\n", "\\n")  # whoever chose a file's name does not write a line of the report
    assert piped.getvalue() == f"error: {MESSAGE}\n\nhint: {shown_hint}\n"
    told = click.unstyle(shown.getvalue())
    assert told.split() == piped.getvalue().split()
    width = int(columns) if columns in {"80", "24"} else 80
    assert max(map(len, told.splitlines())) > width / 2
    assert all(len(line) <= width or " " not in line.removeprefix("error: ") for line in told.splitlines())
    assert told.endswith("\\nerror: no\n")


def test_on_a_terminal_facts_begin_a_line_and_the_last_column_hangs(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    piped, shown = io.StringIO(), Terminal()
    facts = ["block 1 of 2", "3 documents", "4,096 of 4,096 tokens"]
    for stream in (piped, shown):
        monkeypatch.setattr(sys, "stdout", stream)
        ViewPage().heading(facts)
        stdout().lines(["rows", "  12  overlong  the document is longer than any block of this cache"])
    told, lines = piped.getvalue().splitlines(), shown.getvalue().splitlines()
    assert len(told) == 3 and len(lines) == 6 and max(map(len, lines)) <= 40
    assert lines[1] == "   4,096 of 4,096 tokens"
    column = lines[3].index("the document")
    assert column == 16 and all(line[:column].isspace() and not line[column].isspace() for line in lines[4:])


def test_on_a_terminal_lines_are_wrapped_but_for_a_command_to_copy(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stdout", shown := Terminal())
    command = "next: packer build -c first/recipe.yaml -o first/cache"
    stdout().lines(["rows rejected; listed in first/cache/rejected.jsonl", command])
    assert shown.getvalue().splitlines() == ["rows rejected; listed in", "first/cache/rejected.jsonl", command]


def test_lines_show_every_newline():
    assert list(lines_of("a\n\nb")) == ["a↵", "↵", "b"]
    assert list(lines_of("a\n")) == ["a↵"]
    assert list(lines_of("")) == [""]


def test_joiners_of_emoji_and_scripts_stay():
    assert visible("👩‍👩‍👧 می‌خواهم") == "👩‍👩‍👧 می‌خواهم"
    assert visible("\u202eabc\x00") == r"\u202eabc\x00"


def test_lines_show_amount_speed_and_time_left(capsys, monkeypatch):
    clock = iter([0.0, 100.0, 103.0, 110.0, 140.0])
    monkeypatch.setattr("packer.display.time.monotonic", lambda: next(clock))
    lines = Lines()
    lines.stage("documents", 1000, "rows")
    lines.advance(100, 500)
    assert capsys.readouterr().err == ""
    lines.advance(100, 500)
    assert capsys.readouterr().err == "documents: 200 of 1,000 rows (20%), 100 tokens/s, 40 s left\n"
    lines.advance(800, 4000)
    assert capsys.readouterr().err == "documents: 1,000 of 1,000 rows (100%), 125 tokens/s\n"


def test_each_way_of_a_hint_has_a_line_of_its_own_in_a_terminal(monkeypatch):
    hint = "--set a=1 reads it; if `b` is the question, --set a=b; --ignore b leaves it out; jq '.[1]; .[2]' rows"
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    piped, shown = io.StringIO(), Terminal()
    for stream in (piped, shown):
        monkeypatch.setattr(sys, "stderr", stream)
        print_error("no", hint)
    assert piped.getvalue().splitlines()[-1] == f"hint: {hint}"
    assert click.unstyle(shown.getvalue()).splitlines()[-3:] == [
        "hint: --set a=1 reads it;",
        "  if `b` is the question, --set a=b;",
        "  --ignore b leaves it out; jq '.[1]; .[2]' rows",
    ]
