"""What `packer lint` prints, in every place it may be printed to, and how it exits."""

import json
import re

import command_line
import msgspec
import pytest
import twins
from click.testing import CliRunner

from packer.audit.lint import lint_report
from packer.audit.lint.codes import CODES
from packer_cli.main import cli


def run(*arguments, exit_code=0, env=None):
    result = CliRunner(env={"COLUMNS": "80", **(env or {})}).invoke(cli, ["lint", *map(str, arguments)])
    assert result.exit_code == exit_code, result.output
    return result


def fields(*arguments, exit_code=0):
    found = json.loads(run(*arguments, "--json", exit_code=exit_code).stdout)
    assert found["schema"] == 1
    assert found["command"] == "lint"
    return found


@pytest.fixture(autouse=True, scope="module")
def _a_report_is_made_once():
    """Most tests print the same one."""
    made, lint = {}, lint_report.lint

    def once(recipe, *, num_rows):
        key = msgspec.json.encode((recipe, num_rows))
        made[key] = made.get(key) or lint(recipe, num_rows=num_rows)
        return made[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lint_report, "lint", once)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return twins.nfc(tmp_path_factory.mktemp("tokenizer"), template=twins.QWEN3_LIKE)


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    return twins.byte_level(tmp_path_factory.mktemp("refused"), template=twins.NO_TERMINATOR)


@pytest.fixture
def rows(tmp_path):
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    path = tmp_path / "rows [bold].jsonl"
    path.write_text(f"{json.dumps({'messages': messages})}\nnot json\n")
    return path


def test_a_report_ends_with_its_counts(folder):
    out = run("--tokenizer", folder).stdout
    assert out.splitlines()[0].split() == ["tokenizer", str(folder)]
    last = re.fullmatch(r"(\d+) errors, (\d+) warnings?, (\d+) notes?", out.splitlines()[-1])
    assert last is not None
    for count, level in zip(last.groups(), ("error", "warning", "note"), strict=True):
        assert int(count) == len(re.findall(rf"^{level}\[\w+\]:", out, re.MULTILINE))
    assert int(last[2]) + int(last[3]) == 1


def test_an_error_ends_with_exit_code_1_and_says_so(refused):
    result = run("--tokenizer", refused, exit_code=1)
    assert "is rejected as no_terminator: " in " ".join(result.stdout.split())
    assert "--set supervision.no_terminator=append" in result.stdout
    assert f"{refused}: 1 error, 0 warnings, 0 notes (plain_chat_refused)" in result.stderr
    assert "1 error" not in result.stdout, "said twice"
    fixed = run("--tokenizer", refused, "--set", "supervision.no_terminator=append")
    assert fixed.stderr == ""


def test_json_holds_every_text_whole_with_the_place(folder):
    found = fields("--tokenizer", folder)
    assert found["ok"] is True
    assert found["error"] is None
    marked = 0
    for finding in found["findings"]:
        assert finding["level"] == CODES[finding["code"]].level
        for example in finding["examples"]:
            if example["mark"] is not None:
                start, end = example["mark"]
                assert 0 <= start <= end <= len(example["text"])
                marked += 1
    assert marked == 2
    assert sum(found["counts"].values()) == len(found["findings"])
    (rewritten,) = (finding for finding in found["findings"] if finding["code"] == "history_rewritten")
    example = rewritten["examples"][0]
    assert example["text"][slice(*example["mark"])] == "<think>\n\n</think>\n\n"


def test_signs_stand_around_the_marked_place(folder):
    out = run("--tokenizer", folder, env={"COLUMNS": "2000"}).stdout
    assert "¦<think>↵↵</think>↵↵¦" in out
    assert re.search(r"¦¦.*\(differs from here\)", out)


def test_color_is_off_where_it_is_not_wanted(folder):
    forced = run("--tokenizer", folder, env={"FORCE_COLOR": "1"})
    plain = run("--tokenizer", folder, env={"FORCE_COLOR": "1", "NO_COLOR": "1"})
    assert "\x1b[1;33m" in forced.stdout
    assert "\x1b[3" not in plain.stdout


def test_rows_are_counted_and_a_strange_name_is_printed_as_it_is(folder, rows):
    out = run(rows, "--tokenizer", folder).stdout
    flat = " ".join(out.split())
    assert f"all 2 of {rows} (messages): 1 kept, 1 answer" in flat
    assert "warning[rows_rejected]: 1 of 2 rows examined are rejected" in flat
    (entry,) = fields(rows, "--tokenizer", folder)["rows"]
    assert (entry["num_rows"], entry["num_kept"], entry["is_whole"]) == (2, 1, True)
    (first,) = fields(rows, "--tokenizer", folder, "--rows", 1)["rows"]
    assert (first["num_rows"], first["is_whole"]) == (1, False)
    assert fields(rows, "--tokenizer", folder, "--rows", 0)["rows"] == []


def test_a_recipe_gives_tokenizer_rules_and_sources(starter):
    found = fields("-c", starter / "recipe.yaml", "--rows", 40)
    assert sum(entry["num_rows"] for entry in found["rows"]) > 100
    codes = [finding["code"] for finding in found["findings"]]
    assert codes[0] == "rows_rejected"
    assert found["ok"]


def test_quiet_prints_findings_alone(folder):
    lines = run("-q", "--tokenizer", folder).stdout.splitlines()
    assert lines[0].startswith("warning[history_rewritten]:")
    assert not any(line.endswith("notes") for line in lines)


def test_verbose_leaves_nothing_of_a_long_text_out(tmp_path):
    template = "{{- '" + "Be kind and brief. " * 40 + "' }}" + twins.QWEN3_LIKE
    folder = twins.byte_level(tmp_path / "tokenizer", template=template)
    short, whole = (" ".join(run("--tokenizer", folder, *more).stdout.split()) for more in ((), ("-v",)))
    assert "…" in short
    assert "…" not in whole
    assert whole.count("Be kind") > short.count("Be kind")


def test_a_template_cannot_steer_the_terminal(tmp_path):
    template = "{{- '\x1b[2J' }}" + twins.CHATML
    folder = twins.byte_level(tmp_path / "tokenizer", template=template)
    assert "\x1b[2J" not in run("-v", "--tokenizer", folder).stdout


def test_a_template_file_takes_the_place_of_the_tokenizers_own(folder, tmp_path):
    file = tmp_path / "broken.jinja"
    file.write_text("{% for %}")
    result = run("--tokenizer", folder, "--template", file, exit_code=1)
    assert "error[template_refused]" in result.stdout
    assert fields("--tokenizer", folder, "--template", file, exit_code=1)["template"] == str(file)


def test_a_verdict_and_a_preview_say_that_they_apply_no_rules_about_rows(folder, rows):
    rules = ("--set", "deduplicate.exact=bytes")
    words = "the recipe's rules about rows are not applied here"
    assert words in fields(rows, "--tokenizer", folder, *rules)["verdict"]
    assert words in command_line.run("preview", rows, "--tokenizer", folder, *rules).stdout
    assert words not in command_line.run("preview", rows, "--tokenizer", folder).stdout


@pytest.mark.parametrize("columns", [60, 66, 72, 80, 93])
def test_a_key_to_be_copied_stands_beside_its_option(columns, folder, terminal):
    lines = run("--tokenizer", folder, env={"COLUMNS": str(columns)}).stdout.splitlines()
    assert sum(re.search("--history (exact|last|as_rendered)", line) is not None for line in lines) == 3
    assert not any(line.endswith(("--set", "--history")) for line in lines)


def test_nothing_is_said_of_the_template_where_all_rows_bring_their_tokens(folder, refused, tmp_path):
    tokens, chats = tmp_path / "tokens.jsonl", tmp_path / "chats.jsonl"
    tokens.write_text('{"input_ids": [5, 6, 7], "labels": [-100, 6, 7]}\n' * 3)
    turn = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    chats.write_text(json.dumps({"messages": turn * 2}))
    for tokenizer, exit_code in ((folder, 0), (refused, 1)):
        found = fields(tokens, "--tokenizer", tokenizer)
        assert [entry["schema"] for entry in found["rows"]] == ["tokens"]
        assert found["findings"] == []
        assert found["verdict"] == "a build keeps 3 of the 3 rows examined"
        mixed = fields(tokens, chats, "--tokenizer", tokenizer, exit_code=exit_code)
        assert mixed["findings"]


def test_what_the_recipe_asks_for_is_one_line_unless_all_is_asked_for(folder):
    asked = ("--tokenizer", folder, "--set", "supervision.history_rewrite=exact")
    short, whole = (run(*asked, *more).stdout for more in ((), ("-v",)))
    assert "as the recipe asks: history_rewritten (-v shows them)" in short and "note[" not in short
    assert "note[history_rewritten]:" in whole and "as the recipe asks" not in whole
