"""`packer` commands, run in this process as a person types them."""

import json
from typing import Any

from click.testing import CliRunner, Result

from packer.source import files as source_files
from packer_cli.main import cli


def run(
    *arguments: object, exit_code: int = 0, stdin: bytes | None = None, env: dict[str, str | None] | None = None
) -> Result:
    """A command that ends with an exit code, 80 columns wide; what it printed."""
    source_files._standard_input.cache_clear()
    result = CliRunner(env={"COLUMNS": "80", **(env or {})}).invoke(cli, [*map(str, arguments)], input=stdin)
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
