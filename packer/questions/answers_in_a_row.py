"""Answers in a row, as people write them: several messages that may be one turn."""

import json
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

from packer.questions.conversations import step
from packer.source.file_bytes import FilePath
from packer.source.flag_values import TRAIN_FIELDS, WEIGHT_FIELDS
from packer.source.jq_commands import jq_field, row_command
from packer.source.roles import ROLES

_PLAIN = '(.content // .value | type == "string") and ([del(.role, .from, .content, .value)[]] | all(IN(null, "", [])))'


def in_a_row_hint(path: FilePath, rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the step that joins the texts of answers in a row; None if messages have weights: a turn has one."""
    for field in dict.fromkeys(chain(*rows)):
        lists = [each for row in rows if isinstance(each := row.get(field), list)]
        messages = [message for each in lists for message in each if isinstance(message, dict)]
        keys, names = {*chain(*messages)}, {name for each in lists for name in _in_a_row(each)}
        if names and keys.isdisjoint((*TRAIN_FIELDS, *WEIGHT_FIELDS)):
            role, said = map(jq_field, ("role", "content") if "role" in keys else ("from", "value"))
            are_answers = f"all(.[-1], $one; ({role} | IN({', '.join(map(json.dumps, sorted(names)))})) and {_PLAIN})"
            joined = f'.[-1]{said[1:]} += "\\n\\n" + $one{said[1:]}'
            program = f"reduce .[] as $one ([]; if {are_answers} then {joined} else . + [$one] end)"
            return step("if such answers are one turn", row_command(path, f"{jq_field(field)} |= {program}"))
    return None


def _in_a_row(messages: Sequence[Any]) -> list[str]:
    """Return the names of the assistant in answers in a row."""
    names = [str(one.get("role") or one.get("from")) for one in messages if isinstance(one, dict)]
    pairs = (pair for pair in pairwise(names) if {ROLES.get(name.lower()) for name in pair} == {"assistant"})
    return [*chain(*pairs)]
