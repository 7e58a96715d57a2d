"""Rows that are no examples to imitate: with pictures or sound in them, or with answers that were compared or rated."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from packer.source.decode import Refused

MEDIA_FIELDS = ("images", "image", "videos", "video", "audios", "audio")
PREFERENCE_FIELDS = (
    "chosen",
    "rejected",
    "chosen_messages",
    "rejected_messages",
    "chosen_response",
    "rejected_response",
)
_FLAGS = ("train", "training", "trainable")
_WEIGHTS = ("weight", "loss_weight")
"""Fields by which a row may say whether, or how much, it is trained as a whole."""

SUSPECT_FIELDS = frozenset({*MEDIA_FIELDS, *PREFERENCE_FIELDS, *_FLAGS, *_WEIGHTS, "label"})
"""A row without any of these is an example to imitate, as far as its fields tell."""

_MEDIA_PART = re.compile(r"(?:input_)?(?:image|video|audio)(?:_url)?")
_MEDIA_TAG = re.compile(r"<img>[^<>\n]+</img>")


def refuse_unsupported(row: dict[str, Any], *, suspect: Collection[str], rated: bool) -> None:
    """Look at the fields of a row.

    Args:
        row: The row, its columns renamed.
        suspect: Those of :data:`SUSPECT_FIELDS` that are no fields of its schema.
        rated: Whether a boolean `label` is a rating of the answer; in plain text it is some label like others.

    Raises:
        Refused: `multimodal`, `preference` or `nothing_trained`.

    """
    if row.keys().isdisjoint(suspect):
        return
    for field in MEDIA_FIELDS:
        if row.get(field):
            raise Refused("multimodal", f"the field `{field}` is not empty")
    for field in (*_FLAGS, *_WEIGHTS):
        if field in row:
            _refuse_weight(field, row[field])
    for field in PREFERENCE_FIELDS:
        if field in suspect and _holds_answer(row.get(field)):
            raise Refused("preference", f"the field `{field}` makes it a preference pair")
    if rated and "label" in suspect and isinstance(row.get("label"), bool):
        raise Refused("preference", "the field `label` rates the answer; `columns: {label: null}` takes the row anyway")


def _refuse_weight(field: str, value: Any) -> None:
    """Refuse a row that is not to be trained; cells of CSV are texts. Weights of whole rows are not there yet."""
    number = {"false": 0.0, "no": 0.0, "true": 1.0, "yes": 1.0}.get(str(value).strip().lower())
    if number is None and isinstance(value, int | float | str):
        try:
            number = float(value)
        except ValueError:
            return
    if number == 0:
        raise Refused("nothing_trained", f"the field `{field}` says that the row is not to be trained")
    if number is not None and 0 < number < 1:
        reason = f"`{field}` weighs the whole row; give its messages weights, or `columns: {{{field}: null}}`"
        raise Refused("wrong_type", reason)


def is_preference(row: Mapping[str, Any]) -> bool:
    """Whether a row has an answer under a name that only a side of a pair has."""
    return any(_holds_answer(row.get(field)) for field in PREFERENCE_FIELDS)


def _holds_answer(value: Any) -> bool:
    """An answer is a text, a message or messages; a flag or a score under such a name is something else."""
    return isinstance(value, str | list | dict) and bool(value)


def is_media_part(part_type: str) -> bool:
    """Whether a content part of this type holds a picture, a film or sound."""
    return _MEDIA_PART.fullmatch(part_type) is not None


def refuse_media_tags(text: str) -> None:
    """Refuse pictures that are named in the text, as in ``<img>https://…</img>``.

    Raises:
        Refused: `multimodal`.

    """
    if "<img>" in text and _MEDIA_TAG.search(text):
        raise Refused("multimodal", "a text holds an <img> tag with a picture's place in it")
