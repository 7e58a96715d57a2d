"""Writes the generated reference pages: `python docs/site/reference.py`; `--check` only compares them."""

import copy
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from packer.rejections import CODES, rejection_hint
from packer_cli.main import COMMANDS, cli
from packer_cli.output import stderr

if TYPE_CHECKING:
    from packer.load.trainers import Trainer

FOLDER = Path(__file__).resolve().parent.parent / "reference"

_EXIT_CODES = (
    (0, "it worked, or there was nothing to do"),
    (1, "a check failed: bytes or rows are not what they should be, caches differ, or too much is left out"),
    (2, "the command or the recipe asks for something impossible"),
    (3, "an input is missing or unreadable, or no row could be kept"),
    (4, "another process is writing this cache"),
    (5, "the disk refused, or a worker process was killed"),
    (70, "a bug in packer"),
    (130, "Ctrl-C"),
    (141, "whoever read the output stopped reading"),
    (143, "SIGTERM"),
)

_COMMON = {"-v", "-q", "--json", "--version"}

_EXIT_TABLE = "| code | meaning |\n| ---: | --- |\n" + "\n".join(
    f"| {code} | {meaning} |" for code, meaning in _EXIT_CODES
)

_OPENING = """\
# Command line

Data goes to stdout, progress and errors to stderr. Every command has `-h`; `-v` to print more; `-q` for only data and
errors; and `--json` for one JSON object on stdout with `"schema": 1`, an error under the key `error`. `NO_COLOR` is
honored. For completion with the Tab key, put `eval "$(_PACKER_COMPLETE=bash_source packer)"` into `~/.bashrc`; for zsh
and fish it is `zsh_source` and `fish_source`."""

_REJECTIONS = """\
# Rejections

Every row that is not in the cache, and every part of a document that is in no block, has an entry in `rejected.jsonl`:
`source`, `row` (from 0, blank lines not counted), `code` and `reason`; for rows of JSON lines and CSV also `line` (from
1, blank lines counted); for a part of a document `document` (its doc_id), `split`, `start` (first token) and `tokens`.
`packer inspect CACHE --row FILE:N` shows the line of a row, and `packer explain CODE` prints a line of this table.
Codes are part of the file format: some may be added, none will change.

| code | meaning | what to do |
| --- | --- | --- |
"""

_FINDINGS = """
## Findings

What `packer preview` reports of a template, from a plain chat of two turns. A `--set` in a hint was tried under your
recipe: it ends what is found.

| code | meaning |
| --- | --- |
"""


def pages() -> dict[str, str]:
    """Return the text of every generated page by file name; partly generated pages include their hand-written part."""
    from packer.load.trainers import TRAINERS  # noqa: PLC0415 - not for a page of the command line
    from packer.recipe.named_options import recipe_keys  # noqa: PLC0415 - as above
    from packer.source.schema import SCHEMAS  # noqa: PLC0415 - as above

    schemas = "".join(f"| `{name}` | {schema.help} |\n" for name, schema in SCHEMAS.items())
    recipe = _with_part(_page("recipe.md"), "```yaml\n", recipe_keys(), "```")
    trainers = "".join(_api_entry(name, entry) for name, entry in TRAINERS.items())
    linked = dict.fromkeys(re.findall(r"\(trainers/([^)#]+)", _page("../how-to/train.md")))
    pages_of_trainers = "".join(f"          - how-to/trainers/{page}\n" for page in linked)
    return {
        "cli.md": _command_line(),
        "rejections.md": _rejections(),
        "recipe.md": _with_part(recipe, "| schema | fields |\n| --- | --- |\n", schemas, "\nA row that fits"),
        "api.md": _with_part(_page("api.md"), "## Trainers\n", trainers, ""),
        "../site/mkdocs.yml": _with_part(
            _page("../site/mkdocs.yml"), "      - With a trainer:\n", pages_of_trainers, "      - how-to/preference.md"
        ),
    }


def _page(name: str) -> str:
    return (FOLDER / name).read_text("utf-8")


def _with_part(page: str, before: str, part: str, after: str) -> str:
    """Replace the part of a page from the first `before` to the next `after`, or to the end."""
    head, begins, rest = page.partition(before)
    tail = rest[rest.index(after) :] if after else ""
    return head + begins + part + tail


def _api_entry(name: str, entry: "Trainer") -> str:
    members = f"    options:\n      members: [{', '.join(entry.members)}]\n" if entry.members else ""
    return f"\n::: packer.load.trainers.{entry.module}.{name}\n{members}"


def _command_line() -> str:
    parts = [_OPENING, "## Exit codes", _EXIT_TABLE]
    with click.Context(cli, info_name="packer") as context:
        found = {name: cli.get_command(context, name) for name in COMMANDS}
        commands = {name: command for name, command in found.items() if command is not None}
        homes: dict[str, str] = {}
        for name in ("build", *COMMANDS):
            for option in _options(commands[name]):
                homes.setdefault(_words(option), name)
        for name, command in commands.items():
            parts += [f"## packer {name}", _help(_without(command, name, homes), f"packer {name}")]
            known = [option for option in _options(command) if homes[_words(option)] != name]
            for home in dict.fromkeys(homes[_words(option)] for option in known):
                names = ", ".join(f"`{option.opts[-1]}`" for option in known if homes[_words(option)] == home)
                parts.append(f"Also, as in [packer {home}](#packer-{home}): {names}.")
    return "\n\n".join(parts) + "\n"


def _options(command: click.Command) -> list[click.Option]:
    """Return the options of a command, without those that every command has."""
    found = [option for option in command.params if isinstance(option, click.Option)]
    return [option for option in found if option.opts[0] not in _COMMON]


def _words(option: click.Option) -> str:
    return f"{option.opts} {option.help}"


def _without(command: click.Command, name: str, homes: dict[str, str]) -> click.Command:
    """Return a command without the options that its help shares with that of another one, their home."""
    own = [option for option in _options(command) if homes[_words(option)] == name]
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    shown = copy.copy(command)
    shown.params, shown.add_help_option = [*arguments, *own], False
    return shown


def _help(command: click.Command, name: str) -> str:
    # Width is given, or the page would depend on the terminal it was made in.
    context = click.Context(
        command, info_name=name, terminal_width=80, max_content_width=80, help_option_names=["-h", "--help"]
    )
    return f"```text\n{command.get_help(context)}\n```"


def _rejections() -> str:
    from packer.audit import TEMPLATE_CODES  # noqa: PLC0415 - not for a page of the command line

    rejections = "".join(
        f"| `{code}` | {meaning} | {rejection_hint(code).replace('|', '&#124;')} |\n" for code, meaning in CODES.items()
    )
    findings = "".join(f"| `{code}` | {meaning} |\n" for code, meaning in TEMPLATE_CODES.items())
    return _REJECTIONS + rejections + _FINDINGS + findings


def main(arguments: list[str]) -> int:
    """Write the pages; with `--check`, only report stale ones and return 1 if there are any."""
    texts = pages()
    stale = [name for name, text in texts.items() if not (FOLDER / name).is_file() or _page(name) != text]
    if arguments == ["--check"]:
        for name in stale:
            stderr().line(f"{FOLDER / name} is stale; `make docs` writes it")
        return int(bool(stale))
    if arguments:
        stderr().line("usage: python docs/site/reference.py [--check]")
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (FOLDER / name).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
