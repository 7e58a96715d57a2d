"""Conversations whose speakers are numbers, as tools of support have them, with notes and events in between."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

from packer.source.comparisons import is_verdict
from packer.source.file_bytes import quoted
from packer.source.jq_commands import jq_field


def numbered_speakers(
    lists: Sequence[Sequence[Mapping[str, Any]]],
) -> Iterator[tuple[str, list[dict[str, Any]], str]]:
    """Yield the program that picks the messages with a 0 or a 1 where both take turns, and when these are speakers.

    What the one who answers has a yes for in some of them, such as `private`, may be notes, which are no part of it.
    The messages have roles in place of the numbers.
    """
    keys = dict.fromkeys(chain(*chain(*lists)))
    flags = [name for name in keys if any(turn.get(name) is True for turns in lists for turn in turns)]
    for key in keys:
        talks = [[turn for turn in each if type(turn.get(key)) is int and turn[key] in (0, 1)] for each in lists]
        numbers = [[turn[key] for turn in talk] for talk in talks]
        num_changes = sum(one != other for talk in numbers for one, other in pairwise(talk))
        said, told = [*chain(*talks)], [*chain(*numbers)]
        is_order = not any(min(map(talk.count, (0, 1))) > 1 for talk in numbers)
        if is_order or is_verdict(key) or 2 * num_changes < len(told):
            continue
        asks, answers = told[0], 1 - told[0]
        having = {name: [turn[key] for turn in said if turn.get(name) is True] for name in flags}
        notes = [name for name, of in having.items() if {*of} == {answers} and len(of) < told.count(answers)]
        picks = [f"select({jq_field(key)} | IN(0, 1))", *(f"select({jq_field(name)} != true)" for name in notes)]
        names = ["user", "assistant"][:: answers - asks]
        when = f"if {asks} under {quoted(key)} asks and {answers} answers (else, exchange `user` and `assistant`), "
        when += "".join(f"and what has a yes under {quoted(name)} is a note, " for name in notes)
        program = f"{' | '.join(picks)} | {jq_field(key)} |= {json.dumps(names)}[.] | "
        yield program, [{**turn, key: names[turn[key]]} for turn in said], when
