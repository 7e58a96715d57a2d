"""Reads rows with images: with marks in their texts, they are rows of any schema."""

from collections.abc import Mapping
from typing import Any

import msgspec

from packer.batches import Sample
from packer.media.columns import Images
from packer.media.marks import BadImagesError, marked
from packer.source.decode import Refused, decoded_json
from packer.source.row import Columns, rename
from packer.source.schema import read_row
from packer.source.unsupported_rows import IMAGE_FIELDS

_CELLS = (*IMAGE_FIELDS, "messages", "conversations")
"""Fields that are JSON text in tables."""


def read_row_with_images(
    value: dict[str, Any], refused: Refused, *, number: int, schema: str, columns: Columns, roles: Mapping[str, str]
) -> Sample:
    """Read a row that was `refused` because of its media; `packer.source.schema.read_row` has the other arguments."""
    try:
        row = rename(value, columns)
        texts = {name: decoded_json(row[name]) for name in _CELLS if isinstance(row.get(name), str)}
        row, sources = marked(row | {name: cell for name, cell in texts.items() if cell is not None})
    except BadImagesError as error:
        raise Refused(error.code, error.reason) from None
    if not sources:
        raise refused
    images = Images(sources, refused.reason)
    sample = read_row(row, number=number, schema=schema, columns={}, roles=roles)
    sample = msgspec.structs.replace(sample, images=images)
    preference = sample.preference
    if preference is None or preference.rejected is None:
        return sample
    other = msgspec.structs.replace(preference.rejected, images=images)
    return msgspec.structs.replace(sample, preference=msgspec.structs.replace(preference, rejected=other))
