"""Finds the fields of rows with text that nothing reads, so that a build can ask about them before it begins.

What a row says is in its texts, whatever their names are. A field that holds a text which does not stand in any text
that is read from its row would be lost. So it is asked about: `columns` reads it, `ignore` of its source leaves it out.

What counts as text is in :mod:`packer.questions.texts`. Paths are written as ``metadata.tools[].name``. Flags
that may say what is trained, and orders in which messages do not stand, are asked about in the same way.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from packer.batches import Sample
from packer.questions.beginnings import blocks_in, blocks_of, names_in
from packer.questions.message_order import out_of_order
from packer.questions.named_media import names_media
from packer.questions.read_places import ITEMS, Note, Path, UnreadField, shortened, shown_path
from packer.questions.row_notes import begun_rows, notes_on, null_names, turns_in_rows
from packer.questions.row_texts import ReadTexts, RowTexts
from packer.questions.texts import (
    MESSAGE_FIELDS,
    are_all_in,
    texts_read,
)
from packer.questions.training_flags import Flags
from packer.source.comparisons import VERDICTS
from packer.source.decode import Refused, decoded_json
from packer.source.row import ANSWERS, VARIABLES, Columns, first_name
from packer.source.schema import SCHEMAS, read_row
from packer.source.tools_and_calls import KEYS_OF_CALLS

_MOST_ROWS_PER_FIELD = 100
"""One in this many rows may have a text in a field: a build names it, and does not stop to ask."""

_BESIDE_QUESTION = ("input", "context", "system")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """What some rows have that nothing reads."""

    fields: tuple[UnreadField, ...]
    rare: tuple[UnreadField, ...]
    """Fields with such text in so few rows that nobody is asked about them."""

    blocks: tuple[UnreadField, ...]
    """Blocks with which answers begin, and of which nothing says whether they are reasoning, and names."""

    notes: tuple[Note, ...]
    num_rows: int
    num_read: int
    """Rows that are not refused."""

    names: frozenset[str]
    """All fields of these rows."""

    keys: frozenset[str]
    """Keys of messages that packer does not read, and their templates may."""

    is_chat: bool
    """Whether any of them is rendered by a template."""

    plain: Counter[tuple[str, str]]
    """Rows without any reasoning in answers, by a variable that they give the template and its value as JSON."""

    labels: Mapping[str, Counter[str]]
    """Short values of other fields, also in objects, by their paths, as JSON, and those of variables of a template."""


def _uncalled_tools(sample: Sample) -> set[str]:
    called = {call["function"]["name"] for each in sample.messages for call in each.fields.get("tool_calls") or ()}
    return {tool["function"]["name"] for tool in sample.tools or ()} - called


_SPEAKER = f"{ITEMS}.name"
_OF_CALLS = f".tool_calls{ITEMS}."
"""What paths of names of those who speak, and of keys of calls, have."""


def _settings(samples: Iterable[Sample]) -> tuple[Counter[tuple[str, str]], dict[str, Counter[str]]]:
    """Return `plain` of :class:`Unread`, and what rows say beside their texts, as JSON, by its path: names of those who
    speak, and variables of the template.
    """
    plain, speakers, said = Counter[tuple[str, str]](), Counter[str](), dict[str, Counter[str]]()
    for sample in samples:
        named = (each.fields.get("name") for each in sample.all_messages if each.role != "tool")
        speakers.update(json.dumps(name) for name in named if name)
        values = sample.template_kwargs.items()
        given = [(name, json.dumps(value)) for name, value in values if isinstance(value, str | int | float)]
        for name, value in given:
            said.setdefault(f"{VARIABLES}.{name}", Counter()).update([value])
        plain.update([] if _is_reasoned(sample) else given)
    return plain, said | ({_SPEAKER: speakers} if speakers else {})


def _is_reasoned(sample: Sample) -> bool:
    """Whether an answer has reasoning, in its field or in tags; calls alone need none."""
    answers = [each.fields for each in sample.messages if each.role == "assistant"]
    said = [each for each in answers if each.get("content") or each.get("reasoning_content")]
    return not said or any(each.get("reasoning_content") or any(blocks_of(str(each["content"]))) for each in said)


_USUAL = MESSAGE_FIELDS | {"from", "value"}
_USUAL_OF_CALLS = KEYS_OF_CALLS | {"function"}


def _says_more(row: Mapping[str, Any], known: set[str], messages: Collection[str]) -> bool:
    """Whether a row has other fields than those known, or a message or a call a key that nothing reads.

    Of such rows alone it is asked what may be a flag, and what says an order. Parts and JSON text may have such keys.
    """
    if not row.keys() <= known:
        return True
    given = [row.get(name) for name in messages]
    lists = [value if type(value) is list else [value] for value in given]
    stack = [(each, _USUAL) for items in lists if not _are_numbers(items) for each in items]
    while stack:
        value, usual = stack.pop()
        if type(value) is dict and value.keys() <= usual and not (usual is _USUAL and _has_inner(value)):
            calls = value.get("tool_calls") or []
            inner = [*(calls if type(calls) is list else [calls]), value.get("function")]
            stack += [(each, _USUAL_OF_CALLS) for each in inner if each is not None]
        elif isinstance(value, dict | list) or (type(value) is str and decoded_json(value) is not None):
            return True
    return False


def _are_numbers(items: Sequence[Any]) -> bool:
    """Whether a list is one of numbers, by its first: there may be one for each token."""
    return isinstance(next((each for each in items if each is not None), None), int | float)


def _has_inner(message: Mapping[str, Any]) -> bool:
    """Whether a message has an object or a list under any key but those of calls."""
    return any(isinstance(value, dict | list) and key != "tool_calls" for key, value in message.items())


def find_unread(
    rows: Sequence[Mapping[str, Any]],
    *,
    schema: str,
    columns: Columns,
    roles: Mapping[str, str],
    known: Collection[str] = (),
) -> Unread:
    """Return the fields of some rows with text that nothing reads.

    A row that is not read has a rejection of its own, and is not searched. A path leads as deep as needed to tell what
    is not read from what is. `known` are paths that are not asked about, with all that is below them.
    """
    hidden = {*known, *(new for new, old in columns.items() if old is None)}
    own = {columns.get(name) or name for name in SCHEMAS[schema].fields}
    contents = ("value", "content", "from", "role") if schema == "sharegpt" else ("content", "role")
    tools = {columns.get(name) or name for name in ("tools", "functions")}
    said: set[Path] = {(name, *inner, key) for name in own - tools for inner in ((ITEMS,), ()) for key in contents}
    said |= {(columns.get(name) or name,) for name in SCHEMAS[schema].fields.intersection(ANSWERS)}
    read: set[Path] = set()
    names, keys, found, samples = set[str](), set[str](), list[RowTexts](), list[Sample]()
    known_fields = {*own, *hidden, *(VERDICTS if schema == "preference" else ())}
    says_more = any(_says_more(row, known_fields, own - tools) for row in rows)
    flags = Flags(read=known_fields, roles=roles) if says_more else None
    rows_read: list[Mapping[str, Any]] = []
    for row in rows:
        names.update(row)
        try:
            sample = read_row(row, number=0, schema=schema, columns=columns, roles=roles)
        except Refused:
            continue
        samples.append(sample)
        rows_read.append(row)
        keys.update(*(each.fields for each in sample.all_messages))
        shown = {name: value for name, value in row.items() if name not in hidden}
        as_it_stands = {text for text in texts_read(sample) if text and not text.isspace()}
        uncalled = _uncalled_tools(sample)
        called = as_it_stands - uncalled
        left = {
            name: value
            for name, value in shown.items()
            if name not in own | tools or not are_all_in(value, as_it_stands if name in tools else called)
        }
        if flags is not None:
            flags.add(shown, sample.template_kwargs)
        if left:
            texts = RowTexts(left, ReadTexts(sample, as_it_stands), own, said, uncalled)
            read |= {path[:end] for path in texts.read for end in range(1, len(path) + 1)}
            if texts.unread or texts.phrases or texts.choices:
                found.append(texts)
    num_rows, differing = len(rows), [] if flags is None else [*flags.differing()]
    lists = {f"{flag.path}{each}" for flag in differing for each in ("", ITEMS)}  # of which the texts may be flags
    found_fields = _fields(found, read, lists, hidden)
    texts_at = {field.path for field in found_fields}  # whoever ignores one has to see the flags in it
    found_fields += [flag for flag in differing if not is_below(flag.path, hidden) and flag.path not in texts_at]
    is_rare = [field.num_rows * _MOST_ROWS_PER_FIELD <= num_rows for field in found_fields]
    broken = out_of_order(rows, own - tools, roles) if says_more else ()
    plain, settings = _settings(samples)
    labels = (flags.labels() if flags else {}) | settings
    of_calls = [first_name(path.partition(_OF_CALLS)[2]) for path in labels if _OF_CALLS in path]
    return Unread(
        fields=(
            *(field for field, rare in zip(found_fields, is_rare, strict=True) if not rare),
            *(field for field in broken if not is_below(field.path, hidden)),
        ),
        rare=tuple(compress(found_fields, is_rare)),
        blocks=(
            *(block for block in blocks_in(samples, known) if block.num_rows * _MOST_ROWS_PER_FIELD > num_rows),
            *names_in(samples, roles),
        ),
        notes=(
            *notes_on(samples),
            *null_names(rows_read, own - tools - hidden, {columns.get(name) or name for name in _BESIDE_QUESTION}),
            *begun_rows(samples, num_rows),
            *turns_in_rows(samples, rows_read, names - own - hidden),
        ),
        num_rows=num_rows,
        num_read=len(samples),
        names=frozenset(names),
        keys=frozenset(keys - MESSAGE_FIELDS - (set() if _SPEAKER in settings else {"name"})).union(of_calls),
        is_chat=any(sample.kind == "chat" for sample in samples),
        plain=plain,
        labels={path: said for path, said in labels.items() if not is_below(path, hidden)},
    )


def _fields(
    rows: Sequence[RowTexts], read: Collection[Path], lists: Collection[str], hidden: Collection[str]
) -> list[UnreadField]:
    """Return the fields with unread texts, but for `lists`, of which the texts may be flags, and those `hidden`."""
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    inner: dict[str, set[str]] = {}
    worded = set[str]()
    for unread in _with_phrases(rows):
        paths = {path for path in unread if not any(path[:end] in unread for end in range(1, len(path)))}
        paths = {path for path in paths if shown_path(path) not in lists and not is_below(shown_path(path), hidden)}
        fields = {_field(path, read): unread[path] for path in sorted(paths, reverse=True)}
        counts.update(fields.keys())
        examples = fields | examples
        worded |= {_field(path, read) for path in paths if not names_media(unread[path])}
        for path in paths:
            whole = shown_path(path)
            is_key = path[1:2] == (ITEMS,) and len(path) == 3
            inner.setdefault(_field(path, read), set()).update(
                {whole.partition(ITEMS)[0], *([whole] if is_key else [])}
            )
    return [
        UnreadField(
            path=path,
            kind="text" if path in worded else "media",
            num_rows=count,
            example=shortened(examples[path]),
            inner=tuple(sorted(inner[path])),
        )
        for path, count in sorted(counts.items())
    ]


def _with_phrases(rows: Sequence[RowTexts]) -> Iterable[dict[Path, str]]:
    """Yield what is unread in each of some rows, with short texts where they hardly ever repeat, and with options."""
    said: dict[Path, Counter[str]] = {}
    for row in rows:
        for path, texts in row.phrases.items():
            said.setdefault(path, Counter()).update(texts)
    differ = {path for path, texts in said.items() if 2 * len(texts) > texts.total()}
    others = {path for row in rows for path, options in row.choices.items() if options is None}
    for row in rows:
        phrases = {path: ", ".join(texts) for path, texts in row.phrases.items() if path in differ}
        yield row.unread | phrases | {path: said for path, said in row.choices.items() if said and path not in others}


def _field(path: Path, read: Collection[Path]) -> str:
    """Return the path of the outermost value around a text in which nothing is read."""
    end = next((end for end in range(1, len(path)) if path[:end] not in read), len(path))
    return shown_path(path[:end])


def is_below(path: str, fields: Collection[str]) -> bool:
    """Whether a path is one of some fields, or below one."""
    return any(path == field or path.startswith((f"{field}.", f"{field}{ITEMS}")) for field in fields)
