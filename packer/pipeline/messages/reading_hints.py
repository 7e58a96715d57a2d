"""Hints for rejected rows that are to be read otherwise, or written otherwise: told by reasons and the first rows."""

import json
import os
import re
from itertools import islice
from pathlib import Path
from typing import Any

from packer.questions.conversations import PAGE, conversation_hint
from packer.questions.question_fields import FILL_IN
from packer.questions.schema_errors import columns_hint, schema_hint
from packer.recipe.named_options import as_option, flow_mapping
from packer.rejections import rejection_hint
from packer.source.detect import first_rows
from packer.source.file_bytes import quoted
from packer.source.roles import roles_hint
from packer.source.row import VARIABLES, Columns, composed
from packer.source.rows import InputFile

_TRIED_ROWS = 8

_OTHER_KEYS = re.compile(
    r"\A(?:.* at|no field `(?:role|from)` at) \$\.(?P<field>\w+)\[\d+\]"
    r"(?:; its other keys: `|, which|\.content\[\d+\](?:\.type: |\Z)|\Z)"
)
"""The reason given for a message without a text, or without a role, that has other keys which may contain it."""

_OBJECT = re.compile(r"got `object` at \$\.\w+\[\d+\]\.(?:content|value)\Z")
"""The reason for a row of which a message says an object."""

_OBJECT_AS_TEXT = re.compile(r"expected `str(?: \| null)?`, got `(?:object|array)` at \$\.(?P<field>\w+)\Z")
"""The reason for a row of which a field that is a text has an object or a list, such as an answer in JSON."""

_END = re.compile(r"`(?:[^`]*\.)?(\w+)` is .* at \$: the answer did not end")
"""The reason given for a row with a field that says so."""

_MEMBERS = r"\{((?:\"(?:[^\"\\]|\\.)*\"|[^{}\"])*)\}"

_COLUMNS = re.compile(rf"`columns: {_MEMBERS}` (.*?)(?=, `columns: |; |, which|\Z)")
"""In the reason for a row: columns that read what is not read or leave it out, and which of both."""

_OTHER_FORM = re.compile(r"the text between (\S+) and (\S+) is not a call in the form that the template writes")
"""The reason for a row with a text that stands between the tags of calls, and is none that the template writes."""


def reading_hint(code: str, reason: str, file: InputFile) -> str | None:
    """Suggest how rows of a file that were rejected are read, or are to be written; None if a code is about no such
    thing.
    """
    if code == "unknown_schema":
        return schema_hint(_first(file), file.schema, file.columns)
    if code == "unread_content":
        return _about_variables(file.columns)
    if code == "unknown_role":
        return roles_hint(_first(file), file.columns)
    if code == "pair_no_prompt":
        hint = columns_hint(_first(file), file.columns)
        return hint if "--columns" in hint else None
    if code == "media_missing":
        return _root_hint(file, reason.partition(":")[0])
    if code == "multimodal":
        way = _about_images(reason, file)
        return way and f"{rejection_hint(code)}; {way}"
    if code == "no_content" and reason.endswith("the user message is empty"):
        return "--set rows.empty_user=keep keeps user messages that are empty"
    if code in ("no_content", "wrong_type", "bad_tools") and (keys := _OTHER_KEYS.search(reason)) is not None:
        found = conversation_hint(file.path, _first(file), file.columns.get(keys["field"]) or keys["field"])
        if found is not None:
            return found
    return (
        _about_objects(code, reason, file)
        or _about_cut_rows(code, reason, file)
        or _about_calls_in_text(code, reason, file)
        or _columns_of(code, reason)
    )


def _first(file: InputFile) -> list[dict[str, Any]]:
    return [*first_rows(file.path, file.format, file.columns, every_column=True)]


def _about_variables(columns: Columns) -> str:
    """Suggest what to do with texts that rows give a template which has no such variables."""
    name, without = columns.get(VARIABLES) or VARIABLES, composed(columns, {VARIABLES: None})
    read, left_out = (
        as_option(f"sources.columns={flow_mapping(each)}")
        for each in ({**without, "system": f"{name}.{FILL_IN}"}, without)
    )
    return (
        f"{read} reads one as what the system says (`tools={name}.{FILL_IN}`: as the list of tools), and {left_out} "
        "reads none; both leave out all other variables of rows"
    )


def _about_objects(code: str, reason: str, file: InputFile) -> str | None:
    if code != "wrong_type":
        return None
    if (found := _OBJECT_AS_TEXT.fullmatch(reason)) is not None:
        field = file.columns.get(found["field"]) or found["field"]
        return f"if a model is to read or write {quoted(field)} as JSON, write it as a text, as `json.dumps` does"
    return f"{rejection_hint(code)}; of results of tools, write objects as JSON" if _OBJECT.search(reason) else None


def _columns_of(code: str, reason: str) -> str | None:
    """Return the hint for a reason that names columns with which the row is read."""
    may_name = code in {"wrong_type", "bad_tools", "pair_context_differs"}
    if not may_name and not (code == "preference" and (" reads the rating" in reason or ", but is a text" in reason)):
        return None
    found = _COLUMNS.findall(reason)
    return "; ".join(f"{as_option(f'sources.columns={{{columns}}}')} {effect}" for columns, effect in found) or None


def _about_calls_in_text(code: str, reason: str, file: InputFile) -> str | None:
    """Suggest what to do with calls in texts, or with what stands between their tags."""
    tags = _OTHER_FORM.search(reason)
    if tags is None and not (code == "bad_tools" and "within the text at" in reason):
        return None
    if "<function=" in json.dumps(_first(file), default=str):
        return f"these are calls as XML; {PAGE}#calls-as-xml has the command that makes `tool_calls` of them"
    return tags and (
        f"a server would read what stands between {tags[1]} and {tags[2]} as a call: give calls in `tool_calls`; "
        "if it is code, and no call, write it as a block of code"
    )


def _about_cut_rows(code: str, reason: str, file: InputFile) -> str | None:
    """Return the hint for rows of which a field says that an answer did not end, as it may say of another answer."""
    end = _END.match(reason) if code == "cut_off" else None
    if end is None:
        return None
    said, first = f'"{end[1]}"', _first(file)
    fields = {name: None for row in first for name in row if said in json.dumps({name: row[name]}, default=str)}
    option = as_option(f"sources.columns={flow_mapping(fields)}")
    hint = rejection_hint(code)
    return re.sub(r"--columns \S+, or what the reason names,", lambda _: option, hint) if fields else None


def _about_images(reason: str, file: InputFile) -> str | None:
    """Suggest how a tag that stands for an image stays a word, or where the images are that rows name."""
    if "a question has the tag" in reason:
        return "if the tag is a word of the text, put a blank behind it"
    samples = (sample for row in islice(file.rows(), _TRIED_ROWS) for sample in row.batch.samples)
    sources = (source for sample in samples if sample.images for source in sample.images.sources)
    image = next((source for source in sources if isinstance(source, str)), None)
    return _root_hint(file, image) if image else None


def _root_hint(file: InputFile, image: str) -> str | None:
    """Suggest the folder beside a file that has an image which its rows name from there; None if none has it."""
    if not isinstance(file.path, Path) or image.startswith(("/", "data:")):
        return None
    folders = [file.path.parent, *file.path.parent.glob("*")]
    found = next((folder for folder in folders if os.path.isfile(folder / image)), None)  # noqa: PTH113 - any name is right
    return f"{as_option(f'media.root={found}')} finds {image}" if found in folders[1:] else None
