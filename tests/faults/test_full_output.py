"""Where output cannot be written: one error on stderr with its exit code, for every command, as text and as JSON."""

import json
import shutil
from pathlib import Path

import pytest
from processes import in_a_process

RUN = """
import io, json, sys
from packer_cli.main import cli

kept = sys.stdout
for line in json.loads(sys.argv[1]):
    out, stderr = (open("/dev/full", "w") if name == "full" else io.StringIO() for name in line[:2])
    sys.stdout, sys.stderr = out, stderr
    try:
        cli.main(line[2:], prog_name="packer")
    except SystemExit as end:
        code = end.code
    told = stderr.getvalue() if line[1] != "full" else ""
    sys.stdout, sys.stderr = kept, sys.__stderr__
    try:
        out.close()
    except OSError:
        pass
    print(json.dumps([code, told]))
"""

pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a device that is full")


def ends(lines: list[list[str]]) -> list[tuple[int, str]]:
    found = in_a_process(RUN, json.dumps(lines))
    assert len(found) == len(lines)
    return [(code, told) for code, told in found]


def test_no_room_for_the_output_is_one_error_of_every_command(
    starter_cache: Path, starter: Path, tmp_path: Path
) -> None:
    cache = str(starter_cache)
    rows, tokenizer = str(next((starter / "data").iterdir())), str(starter / "tokenizer")
    commands = [
        [],
        ["--help"],
        ["--version"],
        ["preview", rows, "--tokenizer", tokenizer],
        ["build", rows, "--tokenizer", tokenizer, "-j", "1", "-o", str(tmp_path / "built")],
        ["inspect", cache],
        ["verify", cache],
        ["check", cache],
        ["stats", cache],
        ["report", cache, "-o", str(tmp_path / "page.html")],
        ["diff", cache, cache],
        ["export", cache, "--to", "datasets", "-o", str(tmp_path / "exported")],
        ["explain", "overlong"],
    ]
    for option in ([], ["--json"]):
        commands[0] = ["init", str(tmp_path / f"new{len(option)}")]
        shutil.rmtree(tmp_path / "exported", ignore_errors=True)
        lines = [
            ["full", "text", *command, *option] for command in commands if not (option and command[0].startswith("--"))
        ]
        for line, (code, told) in zip(lines, ends(lines), strict=True):
            assert code == 5, line
            (error,) = [each for each in told.splitlines() if each.startswith("error: ")]
            assert error == "error: the output cannot be written: No space left on device"
            assert "Traceback" not in told


def test_an_error_keeps_its_code_where_it_cannot_be_told(tmp_path: Path) -> None:
    command = ["stats", str(tmp_path / "nowhere")]
    lines = [["full", "text", *command, "--json"], ["text", "full", *command], ["full", "full", *command, "--json"]]
    (first, *others) = ends(lines)
    assert first[0] == 3 and first[1].startswith(f"error: {tmp_path / 'nowhere'} is not a cache")
    assert [code for code, _ in others] == [3, 3]


def test_a_panic_of_a_library_is_an_error_of_what_it_read(capsys: pytest.CaptureFixture[str]) -> None:
    from packer_cli.reply import answer

    class PanicException(BaseException):
        """As Rust's libraries raise it."""

    panic = PanicException("index out of bounds: the len is 0\nbut the index is 3")
    assert answer(panic, command="inspect", as_json=False, verbose=False) == 3
    told = capsys.readouterr().err
    assert told.startswith("error: a library gave up on what it read: index out of bounds: the len is 0\n\nhint: ")
