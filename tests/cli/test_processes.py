"""The program as a process: signals, pipes, colors, and what it imports."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
import reference
from command_line import fields, on_terminal, run
from processes import HANG_S, wait_until

from packer_cli import reply

CODE = "from packer_cli.main import main; main()"
HEAVY = ("numpy", "pyarrow", "rich", "tokenizers", "jinja2", "yaml", "msgspec", "torch")


def packer(*arguments, check=0, env=None, **options):
    command, own = [sys.executable, "-c", CODE, *map(str, arguments)], {**os.environ, **(env or {})}
    done = subprocess.run(command, capture_output=True, env=own, check=False, **options)
    assert done.returncode == check, done.stderr.decode()
    return done


def test_help_imports_nothing_heavy():
    code = f"""
import sys
from packer_cli.main import cli
for words in (["--help"], ["build", "--help"], ["--version"], ["verify", "-h"]):
    try:
        cli.main(words)
    except SystemExit as end:
        assert end.code == 0
print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert done.stdout


def test_python_m_packer_is_the_same_program():
    module = subprocess.run([sys.executable, "-m", "packer", "--version"], capture_output=True, check=True)
    assert module.stdout == packer("--version").stdout


def test_a_pipe_gets_no_escapes_and_only_data(starter_cache):
    done = packer("stats", starter_cache, env={"PAGER": f"{sys.executable} -c \"print('PAGED')\"", "LINES": "5"})
    assert done.stdout.startswith(b"  rows ") and b"PAGED" not in done.stdout
    assert b"\x1b" not in done.stdout and done.stderr == b""


def test_no_color_has_no_escapes_even_where_color_is_forced_by_a_terminal(starter_cache):
    output = on_terminal("verify", starter_cache, "--expect", "00", exit_code=1, NO_COLOR="1")
    plain = output.replace("\x1b[?25l", "").replace("\x1b[?25h", "")
    assert "fingerprint" in plain
    assert "\x1b[3" not in plain  # colors of text
    assert "\x1b[9" not in plain


def test_a_terminal_gets_colors_and_no_line_beyond_its_edge(starter_cache):
    from packer_cli.output import cells

    output = on_terminal("inspect", starter_cache, "--ids", "--block", "7", COLUMNS="60")
    assert "\x1b[1;32m" in output
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output).splitlines()
    texts = [line for line in lines if re.match(r"[ \d]{2}[ ▌] ", line)]
    assert len(texts) > 10
    assert all(sum(map(cells, line)) <= 60 for line in texts)
    assert any(sum(map(cells, line)) > len(line) for line in texts), "some letters take two cells"


def test_a_build_on_a_terminal_draws_a_bar_and_a_quiet_one_nothing(starter, tmp_path):
    words = ["build", "-c", starter / "recipe.yaml", "--limit", "9", "-j", "1", "-o"]
    drawn = on_terminal(*words, tmp_path / "a")
    assert "documents" in drawn
    assert "━" in drawn
    assert "fingerprint" in drawn.rpartition("\x1b[2K")[2], "the bar is gone before the result"
    assert on_terminal(*words, tmp_path / "b", "-q") == ""


def test_a_note_on_a_terminal_is_wrapped_at_spaces(starter, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    row = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}
    row |= {f"some_field_{number}": 1 for number in range(9)}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    told = on_terminal("preview", "rows.jsonl", "--tokenizer", starter / "tokenizer", NO_COLOR="1")
    lines = ("note: " + told.partition("note: ")[2]).split("\n")[:3]
    assert "some_field_8" in lines[2]
    assert " ".join(lines).startswith("note: rows.jsonl: fields of rows that are not read: `some_field_0`")
    assert all(len(line) <= 80 for line in lines)


def test_a_reader_that_leaves_is_no_error(starter_cache):
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, "inspect", str(starter_cache), "--ids"], stdout=writing, stderr=subprocess.PIPE
    )
    os.close(writing)
    _, told = process.communicate()
    assert told == b""
    assert process.returncode == 141


@pytest.mark.parametrize(
    ("number", "code"), [pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow), (signal.SIGINT, 130)]
)
def test_a_signal_ends_a_build_cleanly_and_the_next_one_finishes_it(tmp_path, starter, interruptible, number, code):
    row = (starter / "data" / "chat.jsonl").read_text().splitlines()[2]
    (tmp_path / "rows.jsonl").write_text("".join(f"{row.replace('git', f'git {i}', 1)}\n" for i in range(900)))
    arguments = [
        "build", str(tmp_path / "rows.jsonl"), "--tokenizer", str(starter / "tokenizer"), "-o", str(tmp_path / "cache"),
        "--set", "partition_bytes=40000",
    ]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, *arguments, "-j", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    done = tmp_path / "cache" / ".packer" / "partitions"
    wait_until(lambda: len(list(done.glob("*.json"))) > 4 or process.poll() is not None)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=HANG_S)
    assert process.returncode == code, stderr
    assert stdout == ""
    assert "Traceback" not in stderr
    assert ("interrupted" if number == signal.SIGINT else "terminated") in stderr
    assert "the same command continues from there" in stderr
    assert not (tmp_path / "cache" / "manifest.json").exists()
    assert not list((tmp_path / "cache").rglob(".tmp-packer-*"))
    assert fields(*arguments, "-j", "1")["partitions_reused"] > 0
    run("verify", tmp_path / "cache", "--full")


def test_a_stale_reference_page_is_found(tmp_path, monkeypatch):
    # Not of the pages as they are: how msgspec writes a schema depends on its version, and `make check` has the pinned one.
    for page in ("reference/recipe.md", "reference/api.md", "site/mkdocs.yml", "how-to/train.md"):
        (tmp_path / page).parent.mkdir(exist_ok=True)  # of these a part is generated, or read
        shutil.copy(reference.FOLDER.parent / page, tmp_path / page)
    monkeypatch.setattr(reference, "FOLDER", tmp_path / "reference")
    assert [reference.main(words) for words in (["--check"], [], ["--check"])] == [1, 0, 0]
    page = tmp_path / "reference" / "cli.md"
    page.write_text(page.read_text().replace("build", "built", 1))
    assert reference.main(["--check"]) == 1
    assert reference.main(["--nonsense"]) == 2


@pytest.mark.parametrize("command", ["build", "export", "verify", None])
def test_only_a_build_that_was_ended_is_said_to_go_on(command, capsys):
    ended = reply.Signalled(signal.SIGTERM)
    assert reply.answer(ended, command=command, as_json=False, verbose=False) == 143
    told = capsys.readouterr().err
    assert told.startswith("error: terminated")
    assert ("what a build has finished is kept" in told) == (command == "build")
