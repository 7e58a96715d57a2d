"""`packer diff`: why two caches differ, section by section."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packer.display import number
from packer_cli.options import Command
from packer_cli.output import ARROW, stdout
from packer_cli.reply import Reply, fields_of

if TYPE_CHECKING:
    from packer.audit.diff import CacheDiff
    from packer.pipeline.messages.changes import Change


@click.command("diff", cls=Command)
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
def command(*, old: Path, new: Path, reply: Reply) -> None:
    """Say why two caches differ.

    It compares rules, inputs, template, tokenizer, documents and blocks. Exit code 1 if their content or their recipe
    differs.
    """
    from packer.audit.diff import diff  # noqa: PLC0415 - not for --help
    from packer.names import shown  # noqa: PLC0415 - as above

    found = diff(old, new)
    message = None if found.same else f"{shown(found.old)} and {shown(found.new)} differ: {found.meaning}"
    fields = {"same": found.same, "meaning": found.meaning, **fields_of(found)}
    reply.verdict(fields, lambda: None if reply.quiet else _print(found, whole=reply.verbose), message)


def _print(found: "CacheDiff", *, whole: bool) -> None:
    out = stdout()
    out.words(found.meaning)
    if found.same and (found.same_bytes or not whole):
        return

    def change(each: "Change") -> list[str]:
        return [each.key, f"{_value(each.old)} {ARROW} {_value(each.new)}"]

    inputs = [[": ".join(change(each))] for each in found.inputs]  # a path is too long for a column
    documents = []
    for split in found.documents:
        documents.append([split.split, number(split.both), "in both"])
        for name, count, rows in (
            ("old", split.only_old, split.first_old),
            ("new", split.only_new, split.first_new),
        ):
            first = f", the first of {', '.join(rows)}" if rows else ""
            documents.append([split.split, number(count), f"only in {name}{first}"])
    sections: dict[str, Iterable[Any]] = {
        "recipe": map(change, found.recipe),
        "inputs": inputs,
        "tokenizer and template": map(change, found.model),
        "documents": documents,
        "totals": map(change, found.totals),
        "software": map(change, found.software),
    }
    for heading, section in sections.items():
        out.table(list(section), heading=heading)


def _value(value: object) -> str:
    """Return a value as text; a digest is abbreviated."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value)
    if isinstance(value, str) and len(value) == 64 and value.isalnum():
        return value[:16]
    return "none" if value is None else json.dumps(value, ensure_ascii=False)
