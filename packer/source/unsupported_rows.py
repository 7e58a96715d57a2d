"""Detects rows that are not examples to imitate: with images or sound, with compared, rated or cut answers."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from packer.source.decode import WEIGHT_FIELDS, Refused, as_weight, decoded_json
from packer.source.file_bytes import quoted

IMAGE_FIELDS = ("images", "image")
MEDIA_FIELDS = (*IMAGE_FIELDS, "videos", "video", "audios", "audio")
CHOSEN_FIELDS = ("chosen", "chosen_messages", "chosen_response", "preferred_output")
REJECTED_FIELDS = ("rejected", "rejected_messages", "rejected_response", "non_preferred_output")
PREFERENCE_FIELDS = (*CHOSEN_FIELDS, *REJECTED_FIELDS)
ROW_FLAGS = ("train", "training", "trainable", "keep", *WEIGHT_FIELDS)
"""Fields in which a row may say whether it is trained as a whole, or its weight."""

_RATING = "kto_tag"
"""What LLaMA-Factory calls the rating of an answer; the schema of rated answers reads it as `label`."""

_END = re.compile(
    r"(?<!rejected_)(?P<reason>(?:finish|stop|done)\w*?(?:reasons?|details))\b|\b(?:is_?)?(?P<cut>truncated)\b|\bis_?completed?\b",
    re.IGNORECASE,
)
"""Names under which servers and tools say why, or whether, an answer ended. Responses has a `status`."""

_NO_LOGS = frozenset({"content", "tool_calls", "function_call", "parts"})
"""Keys of a message with what it says; its arguments may have any name."""

_CUT = re.compile(
    r"\w*(?:length|max_?\w*token|user_?stop|window|filter|incomplete|progress|pause|refusal|safety|recitation|blocklist|prohibited|"
    r"spii|guardrail|malformed|error|abort|cancel|fail)\w*",
    re.IGNORECASE,
)

SUSPECT_FIELDS = frozenset({*MEDIA_FIELDS, *PREFERENCE_FIELDS, *ROW_FLAGS, "label", _RATING})
"""A row with none of these is an example to imitate, as far as its fields tell."""

_MEDIA_PART = re.compile(r"(?:input_)?(?:image|video|audio)(?:_url)?")
_MEDIA_TAG = re.compile(r"<img>[^<>\n]+</img>")
_PLACE = re.compile(r"^<(image|video|audio)>(?! )(?!(?s:.*)</\1>)", re.MULTILINE)
"""Matches what stands for an image where a line begins; what is closed is XML, and what a blank follows a word."""


def refuse_unsupported(row: dict[str, Any], *, suspect: Collection[str], rated: bool) -> None:
    """Check the fields of a row, its columns renamed; `suspect` are the suspect ones that its schema does not read."""
    for field in MEDIA_FIELDS:
        if row.get(field):
            raise Refused("multimodal", f"the field `{field}` is not empty")
    for field in ROW_FLAGS:
        if field in row:
            _refuse_weight(field, row[field])
    for field in PREFERENCE_FIELDS:
        if field in suspect and _holds_answer(row.get(field)):
            raise Refused("preference", f"the field `{field}` makes it a preference pair")
    if rated and "label" in suspect and _is_rating(row.get("label")):
        rates = "rates the answer" if isinstance(row["label"], bool) else "seems to rate the answer, but is a text"
        raise Refused("preference", f"the field `label` {rates}; `columns: {{label: null}}` takes the row anyway")
    if rated and "label" in suspect and _is_rating(row.get(_RATING)):
        reads = f"`columns: {{label: {_RATING}}}` reads the rating"
        hides = f"`columns: {{{_RATING}: null}}` takes the row anyway"
        raise Refused("preference", f"the field `{_RATING}` rates the answer; {reads}, {hides}")


END_IN_TEXT = r"(?i)(?:finish|stop|done)\w*(?:reason|details)|truncated|completed?\b"
"""Matches, as RE2 does, every text in which one of these names may be a key."""


def may_say_end(names: str) -> bool:
    """Whether one of some names, such as a field and those in its type, can say whether an answer ended."""
    return _END.search(names) is not None


def refuse_cut(answer: Mapping[str, Any], *, where: str, more: tuple[str, ...] = ()) -> None:
    """Refuse an answer whose own log says, at any depth or under one of the names `more`, that it did not end."""
    stack = [(name, value) for name, value in answer.items() if name not in _NO_LOGS]
    while stack:
        name, value = stack.pop()
        if isinstance(value, dict):
            stack += ((f"{name}.{key}" if may_say_end(str(name)) else key, each) for key, each in value.items())
        elif isinstance(value, list):
            stack += ((name, each) for each in value if isinstance(each, str | dict))
        elif isinstance(value, bool | str) and (name in more or may_say_end(str(name))) and _is_cut(name, value):
            raise Refused("cut_off", f"`{name}` is {quoted(str(value))} at {where}: the answer did not end")
        elif isinstance(value, str) and value.startswith(("{", "[")) and may_say_end(value):
            stack.append((name, decoded_json(value)))  # of a cell, such as `metadata`


def _is_cut(name: str, value: Any) -> bool:
    end = _END.search(name)
    if end is None or end["reason"]:
        return isinstance(value, str) and _CUT.fullmatch(value) is not None
    return str(value).lower() == ("true" if end["cut"] else "false")


def _is_rating(value: Any) -> bool:
    """Whether a value is true or false, or a text that says so, as what was CSV once has it."""
    return str(value).lower() in {"true", "false"}


def _refuse_weight(field: str, value: Any) -> None:
    """Refuse a row that is not to be trained, or with a fraction of its weight.

    The value may be a text, as in cells of CSV.
    """
    number = as_weight(value)
    if number == 0:
        raise Refused("nothing_trained", f"the field `{field}` says that the row is not to be trained")
    if 0 < number < 1:
        carried = f"`columns: {{{field}: null}}` trains it as any other, and `document_columns` carries the number"
        raise Refused("wrong_type", f"`{field}` weights the whole row; {carried}")


def is_preference(row: Mapping[str, Any]) -> bool:
    """Whether a row has an answer in a field that only a side of a pair has."""
    return any(_holds_answer(row.get(field)) for field in PREFERENCE_FIELDS)


def _holds_answer(value: Any) -> bool:
    """Whether a value can be an answer: a text, a message or messages, but not a flag or a score."""
    return isinstance(value, str | list | dict) and bool(value)


def is_media_part(part_type: str) -> bool:
    """Whether a content part of this type contains an image, a video or audio."""
    return _MEDIA_PART.fullmatch(part_type) is not None


def may_have_media_tags(text: str, *, is_asked: bool) -> bool:
    return "<img>" in text or (is_asked and ("<image>" in text or "<video>" in text or "<audio>" in text))


def refuse_media_tags(text: str, *, is_asked: bool = False) -> None:
    """Refuse images referenced in the text, as in ``<img>https://…</img>``, and in a question the place of one."""
    if not may_have_media_tags(text, is_asked=is_asked):
        return
    if _MEDIA_TAG.search(text):
        raise Refused("multimodal", "a text has an <img> tag that refers to an image")
    if is_asked and (found := _PLACE.search(text)):
        raise Refused("multimodal", f"a question has the tag {found[0]}, and the row nothing to show in its place")
