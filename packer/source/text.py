"""Schema `text`: a text that is trained throughout, or one in segments, of which the last ones are trained."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import msgspec

from packer.batches import Sample
from packer.source.decode import Refused, typed
from packer.source.row import RowSchema, sample_id
from packer.source.unsupported_rows import refuse_media_tags


class TextRow(msgspec.Struct, frozen=True, kw_only=True):
    text: str


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    label: bool


class SegmentsRow(msgspec.Struct, frozen=True, kw_only=True):
    segments: list[Segment]


def read(row: dict[str, Any], number: int) -> Sample:
    """``{"text": "…"}``, or axolotl's ``{"segments": [{"text": "…", "label": false}, …]}``"""
    if row.get("text") is None:
        return _segmented(typed(row, SegmentsRow).segments, row, number)
    text = typed(row, TextRow).text
    if not text or text.isspace():
        raise Refused("empty", "`text` is empty")
    refuse_media_tags(text)
    return Sample(kind="text", row=number, text=text, sample_id=sample_id(row))


def _read_plain(rows: Sequence[Mapping[str, Any]], first: int) -> list[Sample | None]:
    return [
        Sample(kind="text", row=number, text=text, sample_id=own_id)
        if type(text) is str and text and not text.isspace() and "<img>" not in text
        else None
        for number, text, own_id in zip(count(first), [row.get("text") for row in rows], map(sample_id, rows))
    ]


def _segmented(segments: list[Segment], row: dict[str, Any], number: int) -> Sample:
    """Return a completion: masked segments, and then those that are trained."""
    trained = [each.label for each in segments if each.text]
    if not any(trained):
        raise Refused("nothing_trained", "no segment is trained")
    if trained != sorted(trained):
        reason = "a segment that is masked after one that is trained"
        raise Refused("wrong_type", f"{reason}: a text is trained from one place on; give messages, or rows of tokens")
    prompt, text = ("".join(each.text for each in segments if each.label is label) for label in (False, True))
    refuse_media_tags(text)
    return Sample(kind="completion", row=number, prompt=prompt, text=text, sample_id=sample_id(row))


def _accepts(row: Any) -> bool:
    segments = row.get("segments") if row.get("text") is None else []
    return isinstance(segments, list) and all(
        isinstance(each, dict) and {"text", "label"} <= each.keys() for each in segments
    )


SCHEMA = RowSchema(
    needs=(("text", "segments"),),
    rows=(TextRow, SegmentsRow),
    read=read,
    read_plain=_read_plain,
    help="`text`, trained throughout; or `segments` of `text`, masked ones (`label` is false) and then trained ones",
    is_rated=False,
    accepts=_accepts,
    json_fields=("segments",),
)
