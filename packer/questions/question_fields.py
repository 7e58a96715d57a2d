"""Fields that are the question and its answer by their names; where names do not tell, those that may be filled in."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from packer.questions.conversations import PAGE
from packer.questions.field_names import meant_field, words_of
from packer.questions.read_places import shortened
from packer.questions.texts import has_word, is_text, strings
from packer.recipe.named_options import as_option, flow_mapping
from packer.source.decode import decoded_json
from packer.source.file_bytes import quoted
from packer.source.message_parts import is_setting
from packer.source.roles import ROLES, ends_in_question, is_answer
from packer.source.row import ID_FIELDS, Columns, composed
from packer.source.unsupported_rows import SUSPECT_FIELDS, is_preference

_MAX_LISTED = 12
_EXAMPLE_CHARACTERS = 32
_NAME_CHARACTERS = 200  # of a question, as forms have them

_NO_TEXTS = (SUSPECT_FIELDS - {"label"}).union(ID_FIELDS)

_READS = "packer reads messages, questions with answers, texts, and token ids"
_SHAPES = f"{PAGE} shows how to make rows of other shapes"

FILL_IN = "FIELD"
"""In an option, the name of a field that whoever knows the rows says."""


class Fields:
    """The fields of some rows, and of the objects in them, by the paths with which `columns` finds them."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self.is_pair = any(map(is_preference, rows))
        found: dict[str, list[Any]] = {}
        for row in rows:
            for path, value in _values(row):
                found.setdefault(path, []).append(value)
        texts = {path: each for path, each in found.items() if all(isinstance(value, str) for value in each)}
        self._texts = {path: each for path, each in texts.items() if meant_field(path) or any(map(has_word, each))}
        said = {path: each for path, each in found.items() if meant_field(path) == "output"}
        for path, values in said.items():
            if all(isinstance(value, int) for value in values):  # numbers, or yes and no
                self._texts[path] = [*map(str, values)]
        self._lists = {path: values[0] for path, values in found.items() if isinstance(values[0], list)}
        self._no_texts = [path for path in said if path not in self._texts]
        self._asked = [
            path for path, value in self._lists.items() if path not in SUSPECT_FIELDS and ends_in_question(value)
        ]

    def _meant(self, *places: str) -> list[str]:
        return [path for path in self._texts if meant_field(path) in places]

    @property
    def _questions(self) -> list[str]:
        return self._meant("instruction") or self._meant("input")

    @property
    def _answers(self) -> list[str]:
        """The texts that are answers by their names; of several, the one that begins with the word of the reasoning.

        Of JSON and others, the others: they may be tested with it.
        """
        found = self._meant("output")
        found = [path for path in found if decoded_json(self._texts[path][0]) is None] or found
        thoughts = self._meant("reasoning")
        same = [path for path in found if [*map(_first_word, thoughts)] == [_first_word(path)]]
        return same if len(same) == 1 else found

    @property
    def _messages(self) -> dict[str, str]:
        """The lists of messages with an answer, each with the field that it may be."""
        return {path: field for path, value in self._lists.items() if (field := _messages_field(path, value))}

    @property
    def turns(self) -> str:
        """The lists of messages beside a question and its answer: what was said before."""
        return list_names(self._messages) if self._questions and self._answers else ""

    def named(self) -> Iterator[Columns]:
        """Yield columns for a question and its answer as names say them, and for lists of messages."""
        if self.is_pair:
            yield from ({"prompt": path} for path in self._asked)
            yield from ({"instruction": path} for path in self._questions)
            return
        lists = [path for path, field in self._messages.items() if field == "messages"]
        if self._no_texts and not lists:
            return  # the answer may be among them
        answers = [*lists, *(path for path in self._answers if path.rpartition(".")[0] not in lists)]
        for path in self._asked:
            yield from ({"prompt": path, "completion": answer} for answer in answers)
            said = [each for each in self._lists[path] if is_answer(each)]
            yield from [{"messages" if "role" in said[0] else "conversations": path}] if said and not answers else []
        yield from ({field: path} for path, field in self._messages.items() if not self._asked)
        worse = self._meant("rejected")
        for question in self._questions:
            asked = {"instruction": question}
            for answer in self._answers:
                yield from (_renamed(asked | {"chosen": answer, "rejected": each}) for each in worse)
                yield from [_renamed(asked | {"output": answer})] * (not worse)

    def ways(self, columns: Columns) -> str:
        """Return the options in which the fields with text are to be filled in, with an example of each."""
        question, answer = (each[0] if len(each) == 1 else FILL_IN for each in (self._questions, self._answers))
        ways: list[tuple[Columns, str]] = [({"instruction": question, "output": answer}, "a question and its answer")]
        lists = [path for path, each in self._lists.items() if path not in self._no_texts and is_text(*strings(each))]
        if self.is_pair:
            ways = [({"instruction": question}, "the question of both answers")]
        elif self._asked:
            ways = [({"prompt": self._asked[0], "completion": answer}, "messages and their answer")]
        elif len(self._texts) < 2 and lists and not self._no_texts:
            ways = []  # nothing is left for the answer
        elif not self._questions:
            ways = [({"instruction": FILL_IN, "output": FILL_IN}, "a question and its answer")] * bool(self._texts)
            whole = [path for path, each in self._texts.items() if any(map(is_text, each))]
            whole = whole if len(whole) == 1 else [FILL_IN] * bool(self._texts)
            ways += [({"text": path}, "a text that is trained whole") for path in whole]
        if not self._texts and len(lists) == 1 and {*map(type, self._lists[lists[0]])} == {str}:
            ways = [({"conversations": lists[0]}, "texts of a user and the assistant in turn")]
        said = f"{list_names(lists)} {'has' if len(lists) == 1 else 'have'} texts in a list"
        if not ways:
            return f"{said if lists else 'no field of these rows has a text'}; {_READS}" + f"; {_SHAPES}" * bool(lists)
        columns_of = [(flow_mapping(composed(columns, each)), what) for each, what in ways]
        options = "; ".join(f"{as_option(f'sources.columns={each}')} for {what}" for each, what in columns_of)
        texts = [
            f"{quoted(path, _NAME_CHARACTERS)} ({quoted(shortened(each[0], _EXAMPLE_CHARACTERS))})"
            for path, each in self._texts.items()
        ]
        shown = f"; the fields with text: {', '.join(texts[:_MAX_LISTED])}" * bool(texts)
        shown += f"; {said}" * bool(lists and texts)
        no_texts = f"{list_names(self._no_texts)} may be the answer, where packer reads a single text; "
        return f"{no_texts * bool(self._no_texts)}say which field is which: {options}{shown}; {_SHAPES}"


def _first_word(path: str) -> str:
    return words_of(path)[0]


def _renamed(columns: Mapping[str, str]) -> Columns:
    """Return columns without those that keep their names; of a pair, `prompt` is the question as well."""
    is_prompt = "rejected" in columns and columns["instruction"] == "prompt"
    return {new: old for new, old in columns.items() if new != old and not (is_prompt and new == "instruction")}


def _values(row: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values in a row and in the objects in it, but for ids, settings and media."""
    for name, value in row.items():
        path = f"{before}{name}"
        if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
            value = value[0]  # noqa: PLW2901 - as `columns` reads it
        if isinstance(value, dict):
            yield from _values(value, f"{path}.")
            if _messages_field(name, [value]) == "messages":
                yield path, [value]  # a message may have calls and reasoning
        elif isinstance(value, str) and _is_json(value, is_answer=meant_field(path) == "output"):
            yield path, [value]  # which would be trained letter by letter
        elif value not in (None, [], "") and not is_setting(value) and name not in _NO_TEXTS:
            yield path, value


def _is_json(text: str, *, is_answer: bool) -> bool:
    """Whether a text looks like JSON: of an answer, like a list of texts, since it may be calls or an object.

    A list of sentences as Python prints it is a text: a build says that it would be trained as it stands.
    """
    text = text.strip()
    if is_answer:
        return text.startswith("[") and text[1:].lstrip().startswith('"') and text.endswith("]")
    is_of_python = text[:2] in ("['", '["') and is_text(text) and decoded_json(text) is None
    return text[:1] + text[-1:] in ("[]", "{}") and not is_of_python


def _messages_field(name: str, value: Any) -> str | None:
    """Return the field that a list of messages with an answer can be, but never for a side of a preference pair."""
    if not (isinstance(value, list) and value and isinstance(value[0], dict)) or name in SUSPECT_FIELDS:
        return None
    field, key = ("messages", "role") if "role" in value[0] else ("conversations", "from")
    last = value[-1].get(key) if isinstance(value[-1], dict) else None
    return field if ROLES.get(str(last).lower()) == "assistant" else None  # the answer may be in another field


def list_names(names: Iterable[str]) -> str:
    """List names of fields, quoted, and how many were left out."""
    every = list(names)
    more = len(every) - _MAX_LISTED
    shown = [quoted(name, _NAME_CHARACTERS) for name in every[:_MAX_LISTED]]
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
