"""Fields that may be the question and its answer: by their names, or by the choice of whoever knows the rows."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from packer.questions.field_names import meant_field, says_better, words_of
from packer.questions.options import FEWEST, lists_options, siblings
from packer.questions.texts import has_word, is_text
from packer.source.decode import decoded_json
from packer.source.file_bytes import quoted
from packer.source.message_parts import is_setting
from packer.source.roles import ROLES, ends_in_question, is_answer
from packer.source.row import ID_FIELDS, Columns, first_name
from packer.source.unsupported_rows import SUSPECT_FIELDS, is_preference

_MAX_LISTED = 12
_MOST_NAMES = 4

_BETWEEN_WORDS = re.compile(r"[\W_]+")

_NO_TEXTS = (SUSPECT_FIELDS - {"label"}).union(ID_FIELDS)


class Fields:
    """The fields of some rows, and of the objects in them, by the paths with which `columns` finds them."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self.is_pair = any(map(is_preference, rows))
        found: dict[str, list[Any]] = {}
        for row in rows:
            for path, value in _values(row):
                found.setdefault(path, []).append(value)
        self._lists = {path: values[0] for path, values in found.items() if isinstance(values[0], list)}
        says = {path for path, values in found.items() if not _says_nothing(path, values, found)}
        worded = {path for path in says if any(not isinstance(each, str) or has_word(each) for each in found[path])}
        says = {path for path in says if path in worded or meant_field(path)}  # nobody asks with an id, path or date
        other = {path for path in says if meant_field(path) != "output"}
        says -= {path for path in other if 2 * sum(map(lists_options, found[path])) > len(found[path])}
        texts = {path: len("".join(map(str, found[path]))) for path in says if isinstance(found[path][0], str)}
        self._sentences = {path for path in texts if is_text(found[path][0])}
        self._words = {path for path in texts if are_labels(found[path])}
        """Texts that are labels, by which nobody asks."""

        both = [path for path in self._sentences if meant_field(path) in ("output", None)]  # of which one is better
        verdicts = {path for path in found if len(both) > 1 and says_better(path) and path not in self._sentences}
        answers = [path for path in found if meant_field(path) == "output" and path not in verdicts]
        self.no_texts = [
            path for path in answers if any(_texts_in(found[path][0])) or not isinstance(found[path][0], str | list)
        ]
        """Fields that are answers by their names, and numbers, or in a list."""

        self._values = {path for path in texts if decoded_json(found[path][0]) is not None}
        """Texts that are objects or lists as JSON: the answer, or what it is tested with."""

        self._numbers = [path for path in self.no_texts if all(isinstance(value, int) for value in found[path])]
        named = [path for path in found if "label" in words_of(path) and isinstance(found[path][0], str | int)]
        self._labels = [path for path in named if 2 * len({*map(str, found[path])}) <= len(found[path])]
        options = {path for run in siblings(found) if len(run) >= FEWEST for path in run}  # of which one is right
        self._texts = sorted(texts.keys() - verdicts - options - {*self._labels}, key=lambda path: (-texts[path], path))
        self.paths = [path for path in found if path in texts or any(_texts_in(found[path][0]))]
        self._compared: list[tuple[str, str]] = []
        pairs = [(one, other) for one, other, *more in siblings(found) if not more and {one, other} <= texts.keys()]
        if not self.no_texts and self._meant(None, "instruction", "input", but=pairs):
            self._compared = pairs

    def _meant(self, *places: str | None, but: Sequence[tuple[str, str]] = ()) -> list[str]:
        """Return the texts whose names say one of some places: those of packer's own names first, then by length."""
        sides = {path for pair in (*self._compared, *but) for path in pair}
        found = [path for path in self._texts if meant_field(path) in places and path not in sides]
        return sorted(found, key=lambda path: path not in places)[:_MOST_NAMES]

    def __str__(self) -> str:
        texts = (
            f"the fields with texts are {list_names(self.paths)}" if self.paths else "no field of these rows has a text"
        )
        no_texts = f"{list_names(self.no_texts)} may be the answer, and `columns` reads texts alone; "
        return f"{no_texts if self.no_texts else ''}{texts}"

    @property
    def question(self) -> str | None:
        """The field that is the question by its name."""
        return next(iter(self._questions), None)

    @property
    def turns(self) -> str:
        """What lists may have: what was said before an answer, or what each of several questions is answered."""
        texts = {path: each for path, each in self._lists.items() if all(isinstance(text, str) for text in each)}
        asked = [path for path in texts if meant_field(path) == "instruction"]
        said = [path for path in texts if "output" in (meant_field(path), meant_field(first_name(path)))]
        for one, other in product(asked, said):
            if len(texts[one]) == len(texts[other]):
                return f"the texts in {quoted(other)} answer those in {quoted(one)}"
        told = self._told[:1] if self._answers and not self._questions else []
        if self._questions and self._answers:
            told = [path for path, value in self._lists.items() if _messages_field(path, value)]
        return f"{list_names(told)} may have several turns of a conversation" if told else ""

    @property
    def _told(self) -> list[str]:
        """The fields with several texts in a list, which may be a conversation."""
        lists = ((path, each) for path, each in self._lists.items() if path not in self.no_texts and len(each) > 1)
        return [path for path, each in lists if all(isinstance(text, str) for text in each) and is_text(*each)]

    @property
    def longest(self) -> str | None:
        """The field with the longest texts, of those whose names say nothing."""
        return next(iter(self._meant(None)), None)

    @property
    def _questions(self) -> list[str]:
        return self._meant("instruction") or self._meant("input")

    @property
    def _either(self) -> list[str]:
        """The fields that are all questions by their names, such as `question` and `query`: one may answer another."""
        found = self._questions
        return found if len(found) > 1 and not any(siblings(found)) else []

    @property
    def _answers(self) -> list[str]:
        """The fields that are answers by their names, but for JSON where others are."""
        found = self._meant("output")
        plain = [path for path in found if path not in self._values]
        return plain or ([] if self.no_texts else found)

    @property
    def _asked(self) -> list[str]:
        return [path for path, value in self._lists.items() if path not in SUSPECT_FIELDS and ends_in_question(value)]

    def _answered(self, path: str) -> Iterator[str]:
        """Yield the field for messages that end with a question, if there are answers before it."""
        answers = [each for each in self._lists[path] if is_answer(each)]
        yield from ["messages" if "role" in each else "conversations" for each in answers[:1]]

    def named(self) -> Iterator[Columns]:
        """Yield columns for a question and its answer, by their names; those come first whose answers are longest."""
        sentences = [path for path in self._meant(None) if path in self._sentences]
        questions = self._questions or (sentences if len(sentences) == 1 else [])
        asked: list[dict[str, str | None]] = [{"instruction": question} for question in questions]
        if self.is_pair:
            yield from ({"prompt": path} for path in self._asked)
            yield from asked
            return
        yield from ({**question, **said} for question in asked for said in self._models())
        answers, worse = self._answers, self._meant("rejected")
        lists = [path for path, value in self._lists.items() if _messages_field(path, value) == "messages"]
        for path in self._asked:
            yield from ({"prompt": path, "completion": answer} for answer in [*lists, *answers])
        for path, value in self._lists.items():
            if (field := _messages_field(path, value)) is not None:
                yield {field: path}
        for question in self._questions:
            for answer in answers:
                yield from (_pair(question, answer, rejected) for rejected in worse)
                both = {new: old for new, old in (("instruction", question), ("output", answer)) if new != old}
                if both and not worse:
                    yield both

    def _models(self) -> Sequence[Columns]:
        """Return what each of several models thinks and answers, if the names of both begin with the same word."""
        thoughts = self._meant("reasoning")
        words = {path: _BETWEEN_WORDS.split(path)[0] for path in self._texts}
        said = [(path, thought) for thought in thoughts for path in self._texts if words[path] == words[thought]]
        own = {thought: path for path, thought in reversed(said) if path not in thoughts}  # the longest
        are_several = len(own) > 1 and len({*own.values()}) == len(thoughts)
        return [{"output": path, "reasoning": thought} for thought, path in own.items()] if are_several else []

    def unnamed(self) -> Iterator[tuple[str, Columns]]:
        """Yield when columns for a question and its answer are right, where names do not say it, and these columns.

        Two fields whose names differ in a last letter are two answers, of which either may be the better one. Two that
        nothing else is known of may be so.
        """
        yield from (("", {field: path}) for path in self._asked for field in self._answered(path))
        if not self._questions and not self._answers:
            said = "if the texts in `{}` are a user's and the assistant's in turn, "
            yield from ((said.format(path), {"conversations": path}) for path in self._told)
        unknown = self._meant(None)
        asked = [path for path in unknown if path not in self._words]
        questions = self._questions or [path for path in unknown if path in self._sentences] or asked
        sentences = [path for path in unknown if path in self._sentences]
        if self.is_pair:
            yield from ((f"if `{path}` is the question, ", {"instruction": path}) for path in sentences[:_MOST_NAMES])
            return
        alike = [(sentences[0], sentences[1])] if len(sentences) == 2 and self._questions else []
        for one, other in self._compared or alike:
            for question in questions[:1]:
                yield f"if `{one}` is always better than `{other}`, ", _pair(question, one, other)
                yield f"if `{other}` is always better than `{one}`, ", _pair(question, other, one)
        if self._compared:
            return
        answers = self._answers or self._labels or self._numbers or ([] if self.no_texts else [*self._either, *unknown])
        pairs = [(answer, question) for answer in answers for question in questions[:2] if question != answer]
        yield from (
            (f"if `{a}` answers `{q}`, ", {"prompt": q, "completion": a}) for q in self._asked for a in answers[:1]
        )
        yield from ((f"if `{a}` answers `{q}`, ", {"instruction": q, "output": a}) for a, q in pairs[:_MOST_NAMES])
        whole = asked or answers
        if whole and not self._asked and not self._questions and (asked or self._sentences.issuperset(whole)):
            yield f"if `{whole[0]}` is trained whole, ", {"text": whole[0]}


def _says_nothing(path: str, values: Sequence[Any], paths: Collection[str]) -> bool:
    """Whether a field only names other fields, as `better: response_a` does, or is a label that all rows have."""
    if meant_field(path) is None and len(values) > 1 and all(value == values[0] for value in values):
        return True
    return all(isinstance(value, str) and len(value) > 1 and value != path and value in paths for value in values)


def are_labels(values: Sequence[Any]) -> bool:
    """Whether values are short texts of which most repeat: what is asked differs."""
    are_short = all(isinstance(value, str) and not is_text(value) for value in values)
    return are_short and 2 * len({*values}) < len(values)


def _pair(question: str, chosen: str, rejected: str) -> Columns:
    """Return columns of two answers to a question; `prompt` keeps its name."""
    return {**({} if question == "prompt" else {"instruction": question}), "chosen": chosen, "rejected": rejected}


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


def _texts_in(value: Any) -> Iterator[str]:
    """Yield the texts in a list."""
    for each in value if isinstance(value, list) else ():
        yield from [each] if isinstance(each, str) else _texts_in([*each.values()] if isinstance(each, dict) else each)


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
    return ", ".join(quoted(name) for name in every[:_MAX_LISTED]) + (f" and {more} more" if more > 0 else "")
