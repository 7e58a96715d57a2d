"""What may be done with two answers in a row, as people write them: some are notes, or one turn is several messages."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

from packer.source.conversations import step
from packer.source.file_bytes import FilePath, quoted
from packer.source.flag_values import TRAIN_FIELDS, WEIGHT_FIELDS
from packer.source.jq_commands import jq_field, row_command
from packer.source.roles import is_answer

_KEYS = (("role", "content"), ("from", "value"))

_TRAINED = {*TRAIN_FIELDS} - {"masked"}
"""Keys of which a yes says that a message is trained."""


def in_a_row_hint(path: FilePath, rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the steps for rows with messages of which an answer follows an answer; None if there are none."""
    for field in dict.fromkeys(chain(*rows)):
        lists = [each for row in rows if isinstance(each := row.get(field), list)]
        messages = [message for each in lists for message in each]
        if all(isinstance(message, dict) for message in messages) and _num_in_a_row(lists):
            ways = [*_without_notes(field, lists, messages)] or [*_as_one_turn(field, messages)]
            return "; ".join(step(when, row_command(path, program)) for when, program in ways) or None
    return None


def _without_notes(
    field: str, lists: Sequence[Any], messages: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, str]]:
    """Yield what leaves out the messages of which a key such as `private` is true, if fewer answers follow others."""
    for key in dict.fromkeys(chain(*messages)):
        if key not in _TRAINED and any(message.get(key) is True for message in messages):
            kept = [[message for message in each if message.get(key) is not True] for each in lists]
            if _num_in_a_row(kept) < _num_in_a_row(lists):
                program = f"{jq_field(field)} |= map(select({jq_field(key)} != true))"
                yield f"if what has a yes under {quoted(key)} is no part of the conversation", program


def _as_one_turn(field: str, messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield what joins texts in a row; none if messages have weights, which one turn has no place for."""
    for role, said in _KEYS:
        names = sorted({name for each in messages if isinstance(name := each.get(role), str) and is_answer(each)})
        if not names or any(key in each for each in messages for key in (*TRAIN_FIELDS, *WEIGHT_FIELDS)):
            continue
        at, text = jq_field(role), jq_field(said)
        are_texts = f'all(.[-1], $one; ({text} | type == "string") and (.tool_calls | IN(null, [])))'
        in_a_row = f".[-1]{at[1:]} == $one{at[1:]} and ($one{at[1:]} | IN({', '.join(map(json.dumps, names))}))"
        both = f'.[-1]{text[1:]} += "\\n\\n" + $one{text[1:]}'
        program = f"reduce .[] as $one ([]; if {in_a_row} and {are_texts} then {both} else . + [$one] end)"
        yield "if such answers are one turn, to be joined", f"{jq_field(field)} |= ({program})"


def _num_in_a_row(lists: Sequence[Sequence[Mapping[str, Any]]]) -> int:
    return sum(is_answer(one) and is_answer(other) for each in lists for one, other in pairwise(each))
