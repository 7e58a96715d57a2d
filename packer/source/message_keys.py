"""What may be done with a text that `columns` cannot read: programs of jq, each with its condition.

`columns` renames fields of rows. A key of messages is moved in the file: tools to the row, and a text of answers to the
reasoning, or to the beginning of what is said. A list or an object beside messages is written into the question.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from packer.source.field_names import meant_field
from packer.source.roles import is_answer
from packer.source.row import field_value

_KEY = re.compile(r"(?P<list>[^\[\]]+)\[\]\.(?P<key>[^\[\].]+)")


def programs_for_key(
    path: str, rows: Sequence[Mapping[str, Any]], roles: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield what a key such as ``messages[].tools``, or a field, may be: a condition, and the program that moves it."""
    if (found := _KEY.fullmatch(path)) is None:
        yield from _into_question(path, rows)
        return
    key = found["key"]
    lists = [value for row in rows if isinstance(value := field_value(row, found["list"]), list)]
    having = [each for value in lists for each in value if isinstance(each, dict) and each.get(key)]
    messages = "." + "".join(f"[{json.dumps(name)}]" for name in found["list"].split("."))
    at = f".[{json.dumps(key)}]"
    move = f"({messages}[]? | select({at})) |= (%s | del({at}))"
    if meant_field(key) == "tools":
        each = f'{messages}[]?{at[1:]} // empty | if type == "string" then fromjson else . end'
        yield (
            f"if `{key}` has the tools of the row",
            f'.tools = [{each} | if type == "array" then .[] else . end] | del({messages}[]?{at[1:]})',
        )
    elif having and all(isinstance(each[key], dict) and is_answer(each, roles) for each in having):
        inner = {name for each in having for name, value in each[key].items() if value}
        if len(inner) == 1 and meant_field(name := inner.pop()) == "reasoning":  # LangChain's `additional_kwargs` may
            yield "if it is the reasoning before the answer", move % f".reasoning_content = {at}[{json.dumps(name)}]"
    elif having and all(isinstance(each[key], str) and is_answer(each, roles) for each in having):
        yield f"if `{key}` is the reasoning before the answer", move % f".reasoning_content = {at}"
        said = '.["value"]' if all("value" in each for each in having) else '.["content"]'
        if not any(isinstance(each.get("value", each.get("content")), list) for each in having):
            both = f'([{at}, {said}] | map(select(. != null and . != "")) | join("\\n"))'
            yield f"if `{key}` is what the answer says first", move % f"{said} = {both}"


def _into_question(field: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield what writes a field into the first question of a row with messages, as JSON; nothing if it is a text."""
    values = [row[field] for row in rows if row.get(field)]
    if not values or isinstance(values[0], str):
        return
    at = f".[{json.dumps(field)}]"
    for name, speaker, said in (("messages", "role", "content"), ("conversations", "from", "value")):
        lists = [row.get(name) for row in rows]
        turns = [turn for each in lists if isinstance(each, list) for turn in each]
        if all(lists) and turns and all(isinstance(turn, dict) and isinstance(turn.get(said), str) for turn in turns):
            is_asked = f'.{speaker} | IN("user", "human")'
            asked = f"(first(.{name}[] | select({is_asked})) | .{said})"
            written = f'{asked} += "\\n\\n" + {json.dumps(f"{field}: ")} + ($more | tojson)'
            yield (
                f"if `{field}` belongs to the question",
                f"{at} as $more | if $more and any(.{name}[]?; {is_asked}) then {written} | del({at}) else . end",
            )
