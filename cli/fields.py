"""Views of blocks, documents and rows in JSON."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packer.audit import BlockView, DocumentView, RowView
    from packer.audit.foreign import ForeignRowView


def view_fields(
    view: "BlockView | DocumentView | RowView | ForeignRowView", *, with_ids: bool = False
) -> dict[str, Any]:
    """A view in JSON; ids and labels of runs only where they are asked for."""
    from dataclasses import asdict  # noqa: PLC0415 - not for --help

    from packer.recipe import to_json  # noqa: PLC0415 - as above

    fields = asdict(view)
    if "rejected" in fields:
        fields["rejected"] = [to_json(line) for line in fields["rejected"]]
    for document in fields.get("documents", [fields]):
        for run in (*document.get("runs", ()), document.get("behind"), fields.get("padding")):
            if run is not None and isinstance(run.get("input_ids"), tuple):
                _set_ids(run, with_ids=with_ids)
    return fields


def _set_ids(run: dict[str, Any], *, with_ids: bool) -> None:
    ids = list(run.pop("input_ids"))
    if with_ids and ids:
        run["input_ids"] = ids
        run["labels"] = ids if run["kind"] == "trained" else [-100] * len(ids)
