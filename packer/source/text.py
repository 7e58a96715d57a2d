"""Schema `text`: a text that is trained throughout."""

from typing import Any

import msgspec

from packer.batches import Sample
from packer.source.decode import Refused
from packer.source.row import RowSchema, sample_id, typed
from packer.source.unsupported_rows import refuse_media_tags


class TextRow(msgspec.Struct, frozen=True, kw_only=True):
    text: str


def read(row: dict[str, Any], number: int) -> Sample:
    """``{"text": "…"}``"""
    text = typed(row, TextRow).text
    if not text or text.isspace():
        raise Refused("empty", "`text` is empty")
    refuse_media_tags(text)
    return Sample(kind="text", row=number, text=text, sample_id=sample_id(row))


SCHEMA = RowSchema(
    needs=(("text",),),
    rows=(TextRow,),
    read=read,
    help="`text`, trained throughout",
    is_rated=False,
)
