"""`packer explain`: say what a code or a key means, and what to do about it."""

import inspect
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from packer_cli.options import Command
from packer_cli.output import stdout
from packer_cli.reply import Reply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from packer.audit.explanations import Explanation


def _codes(_context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    from packer.audit.explanations import explanations  # noqa: PLC0415 - not for --help

    return sorted({each.name for each in explanations() if each.name.startswith(begun)})


@click.command("explain", cls=Command)
@click.argument("name", metavar="[NAME]", required=False, shell_complete=_codes)
@click.pass_context
def command(context: click.Context, *, name: str | None, reply: Reply) -> None:
    """Explain a code, a schema, a key of a recipe, or a command.

    `packer explain recipe` lists every key of a recipe with its values. Without NAME, all codes, schemas and keys are
    listed.
    """
    from packer.audit.explanations import explain, explanations  # noqa: PLC0415 - not for --help

    found = explanations() if name is None else explain(name, _commands(context))
    reply.data({"explanations": [asdict(each) for each in found]}, lambda: _print(found, listed=name is None))


def _commands(context: click.Context) -> "Iterator[Explanation]":
    from packer.audit.explanations import Explanation  # noqa: PLC0415 - not for --help

    group = context.find_root().command
    assert isinstance(group, click.Group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        meaning = inspect.cleandoc(found.help or "").partition("\n\n")[0]
        way_out = f"packer {name} --help lists its options. {found.epilog}"
        yield Explanation(name=name, kind="command", meaning=meaning, way_out=way_out)


def _print(found: "list[Explanation]", *, listed: bool) -> None:
    out = stdout()
    if listed:
        out.table([(each.name, each.kind) for each in found])
        return
    for place, each in enumerate(found):
        if place:
            out.line()
        out.line((f"{each.name}  ", "bold"), (each.kind, "dim"))
        _paragraph(each.meaning)
        if each.values:
            out.line()
            out.table(list(each.values.items()))
        if each.way_out is not None:
            _paragraph(f"hint: {each.way_out}")


def _paragraph(text: str) -> None:
    """Keep a text that has lines of its own; wrap any other at the terminal's width."""
    out = stdout()
    out.line()
    if "\n" not in text:
        out.words(text, indent=2)
        return
    for line in text.splitlines():
        out.line(f"  {line}".rstrip())
