"""Suggests other forms of tools and calls than rows have."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import islice
from typing import Any

from msgspec import structs

from packer.batches import RowBatch, Sample, tool_parameters
from packer.questions.conversations import PAGE
from packer.recipe.named_options import as_option
from packer.render.readback import function_of
from packer.source.detect import first_rows
from packer.source.roles import ROLES
from packer.source.row import composed, field_value
from packer.source.rows import InputFile

AreKept = Callable[[Sequence[RowBatch]], bool]
"""Whether a build keeps most of some rows, and trains what they say."""

_TRIED_ROWS = 8

_OTHER_FORM = re.compile(r"the text between (\S+) and (\S+) is not a call in the form that the template writes")
"""The reason for a row with a text that stands between the tags of calls, and is none that the template writes."""

_OBJECT = re.compile(r"got `object` at \$\.(?P<field>\w+)\[\d+\]\.(?P<key>content|value)\Z")
"""The reason for a row of which a message says an object."""

PROPERTIES = (
    f"this template reads the parameters of tools under `properties`; {PAGE}#parameters-of-tools has the command that "
    "puts them there"
)
PARALLEL_CALLS = (
    "this template allows one call per message. Use one that allows several, with --template FILE (for Llama 3, "
    "Functionary's v3.2 does); or, if the calls do not depend on each other, write each as a message of its own, "
    "followed by its result"
)


def _with_properties(sample: Sample) -> Sample:
    """Return a row with the parameters of its tools under `properties`."""
    tools = deepcopy(sample.tools or [])
    functions: Iterable[Any] = map(function_of, tools)
    for function in functions:
        if tool_parameters(function) is not None and "properties" not in function["parameters"]:
            function["parameters"] = {"type": "object", "properties": function["parameters"]}
    return structs.replace(sample, tools=tools or None)


def _with_one_call(sample: Sample) -> Sample:
    """Return a row of which each message has its first call alone."""
    messages = [
        structs.replace(each, fields={**each.fields, "tool_calls": calls[:1]}) if len(calls) > 1 else each
        for each in sample.messages
        for calls in [each.fields.get("tool_calls") or ()]
    ]
    return structs.replace(sample, messages=tuple(messages))


_FORMS: Mapping[str, Callable[[Sample], Sample]] = {PROPERTIES: _with_properties, PARALLEL_CALLS: _with_one_call}
"""Hints about the form of tools and calls, with what they change."""


def other_forms(rows: Sequence[RowBatch], are_kept: AreKept) -> str | None:
    """Suggest other forms of tools and calls, if in these the template writes most of some rows."""
    for forms in ([PROPERTIES], [PARALLEL_CALLS], [PROPERTIES, PARALLEL_CALLS]):
        changed = [replace(batch, samples=tuple(_in_forms(each, forms) for each in batch.samples)) for batch in rows]
        if changed != rows and are_kept(changed):
            return "; ".join(forms)
    return None


def _in_forms(sample: Sample, forms: Iterable[str]) -> Sample:
    for form in forms:
        sample = _FORMS[form](sample)
    return sample


def about_calls_in_text(code: str, reason: str, file: InputFile) -> str | None:
    """Suggest what to do with calls in texts, or with what stands between their tags, by the first rows."""
    tags = _OTHER_FORM.search(reason)
    if tags is None and not (code == "bad_tools" and "within the text at" in reason):
        return None
    rows = [*first_rows(file.path, file.format, file.columns, every_column=True)]
    if "<function=" in json.dumps(rows, default=str):
        return f"these are calls as XML; {PAGE}#calls-as-xml has the command that makes `tool_calls` of them"
    if tags is None:
        return None
    opening, closing = tags.groups()
    return (
        f"a server would read what stands between {opening} and {closing} as a call: give calls in `tool_calls`; "
        "if it is code, and no call, write it as a block of code"
    )


def about_results(reason: str, file: InputFile) -> str | None:
    """Suggest the JSON of results of tools that are objects; None if that is not the reason."""
    if (found := _OBJECT.search(reason)) is None:
        return None
    field = file.columns.get(found["field"]) or found["field"]
    tools = [name for name, role in {**ROLES, **file.roles}.items() if role == "tool"]
    rows = first_rows(file.path, file.format, file.columns, every_column=True)
    messages = (each for row in rows for each in field_value(row, field) or () if isinstance(each, dict))
    if not any(isinstance(each.get(found["key"]), dict) for each in messages if _sender(each) in tools):
        return None
    return "results of tools are texts, so write objects as JSON"


def _sender(message: Mapping[str, Any]) -> Any:
    return message.get("role") or message.get("from")


def about_definitions(reason: str, file: InputFile, are_kept: AreKept) -> str | None:
    """Suggest which of two definitions of the same tools to leave out; None if that is not the reason."""
    if "the system message defines tools, and so does `tools`" not in reason:
        return None
    first = [row.batch for row in islice(file.rows(), _TRIED_ROWS)]
    without = [replace(each, samples=tuple(map(_without_first, each.samples))) for each in first]
    others = replace(file, columns=composed(file.columns, {"tools": None}))  # which reads calls in texts otherwise
    ways = ["if the system message says nothing else, leave it out"] * are_kept(without)
    if are_kept([row.batch for row in islice(others.rows(), _TRIED_ROWS)]):
        columns = as_option("sources.columns={tools: null}")
        ways.append(f"{columns} leaves `tools` out, if the system message defines them")
    return "; ".join(ways) or None


def _without_first(sample: Sample) -> Sample:
    return structs.replace(sample, messages=sample.messages[1:])
