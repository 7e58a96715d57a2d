"""`packer` commands, run in this process as a person types them."""

import atexit
import gc
import json
import os
import pty
import sys
import warnings
from typing import Any, NoReturn

from click.testing import CliRunner, Result

from packer.source import files as source_files
from packer_cli.main import cli, main


def run(
    *arguments: object,
    exit_code: int = 0,
    stdin: bytes | None = None,
    env: dict[str, str | None] | None = None,
    charset: str = "utf-8",
) -> Result:
    """A command that ends with an exit code, 80 columns wide; what it printed."""
    source_files._standard_input.cache_clear()
    runner = CliRunner(charset, env={"COLUMNS": "80", **(env or {})})
    result = runner.invoke(cli, [*map(str, arguments)], input=stdin)
    assert result.exit_code == exit_code, result.output
    return result


def fields(*arguments: object, exit_code: int = 0, stdin: bytes | None = None) -> dict[str, Any]:
    """What a command says with `--json`."""
    found: dict[str, Any] = json.loads(run(*arguments, "--json", exit_code=exit_code, stdin=stdin).stdout)
    assert found["schema"] == 1
    return found


def assert_refused(words: str, *arguments: object, exit_code: int) -> None:
    """The command prints nothing but an error with a hint."""
    told = run(*arguments, exit_code=exit_code)
    assert told.stdout == "" and "\nerror: " in f"\n{told.stderr}" and "Traceback" not in told.stderr
    assert words in told.stderr and "\n\nhint: " in told.stderr


def on_terminal(*arguments: object, exit_code: int = 0, **environment: str) -> str:
    """What a command writes on a terminal of 80 columns and 24 lines that nobody types on.

    It runs in a copy of this process, which has imported already what a new one would import for half a second.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on: there are threads here
        child, controller = pty.fork()
    if not child:
        _run_and_end(["packer", *map(str, arguments)], environment)
    written = b""
    while True:
        try:
            read = os.read(controller, 65536)
        except OSError:  # Linux: the other end is closed
            break
        if not read:
            break
        written += read
    os.close(controller)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == exit_code, written
    return written.decode().replace("\r\n", "\n")


def _run_and_end(words: list[str], environment: dict[str, str]) -> NoReturn:
    code: object = 70
    try:
        gc.freeze()  # what is garbage here is the parent's to end
        source_files._standard_input.cache_clear()
        atexit._clear()  # and what the parent does at its end, which `main` would do here: it removes shared folders
        for name in ("LESS", "NO_COLOR", "FORCE_COLOR"):
            os.environ.pop(name, None)
        terminal = {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24", "TOKENIZERS_PARALLELISM": "false"}
        os.environ.update(terminal | environment)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        sys.argv = words
        main()
    except SystemExit as end:
        code = end.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 70)
