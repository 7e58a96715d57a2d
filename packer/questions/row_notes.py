"""Notes on the first rows of a file: questions and answers that may not be meant to be trained as they are.

Among them are texts that are only the name of a null, such as `None` or `nan`, as tables written from Python have them.
They are read as texts, so an answer `nan` is trained. Where the others are texts, or there are none, such a name is
most likely no part of a prompt or an answer. Among labels, `None` is one. Beside the question, where rows may have
nothing, any label is one that many rows repeat and whose place the others fill with texts that differ, such as
`<noinput>`.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import Any

import msgspec

from packer.batches import REASONING_FIELDS, Message, Sample
from packer.questions.beginnings import LABEL, speakers_in
from packer.questions.read_places import ITEMS, Note
from packer.questions.texts import is_text
from packer.recipe.named_options import as_option
from packer.source.file_bytes import quoted

_MOST_SAMPLES = 64

_QUESTION = re.compile(r"^[^\w\n]*((?:human|user|instruction|question)[^\w\n]{0,8}:)", re.IGNORECASE | re.MULTILINE)
"""A header of a question at the beginning of a line."""

_ANSWER = re.compile(r"[^\w,;]((?:assistant|gpt|bot|response|answer)[^\w\n]{0,8}:)", re.IGNORECASE)

_ASKER, _ANSWERER = (re.compile(rf"^({names})(?=\n|\Z)", re.MULTILINE) for names in ("user|human", "assistant|model"))
"""The name of a role alone in a line, as text has it that was decoded without special tokens."""

_TAG = re.compile(r"<[^<>]*>")
_LAST_WORD = re.compile(r"\s(\S+)\Z")
_GLUED = re.compile(r"([a-z]{4,20})(?=[A-Z])")
"""A word at the beginning that the text goes on behind, such as `analysis` of a channel without its marks."""

_ENDS = tuple(".!?…。！？")

_SEVERAL, _NEARLY_ALL = 0.05, 0.9
"""Shares of all answers that have one mark: a line of its own at the end, and any other, which may be none."""

_SHORTEST_CUT, _FEWEST_CUT = 100, 3  # characters, and answers: others may be as long by chance

_LIST = re.compile(r"\[\s*[\"'].*[\"']\s*\]", re.DOTALL)
"""A list of texts as JSON, or as Python prints it, of which the items may be turns, or answers to one question."""

_LONGEST_QUESTION = 20_000
"""Characters after the header of a question among which that of an answer is searched for."""


def notes_on(samples: Sequence[Sample]) -> Iterator[Note]:
    """Yield what is unusual in the first samples of a file."""
    if samples and samples[0].kind == "text":
        yield from _dialogues([sample.text for sample in samples[:_MOST_SAMPLES]])
        return
    every = [_said(sample) for sample in samples]
    yield from _cut([each[-1][1] for each in every if each[-1][0] == "assistant"])
    samples, said = samples[:_MOST_SAMPLES], every[:_MOST_SAMPLES]
    begun = [each[0][1] for each in said if (each[0][0], each[-1][0]) == ("assistant", "user")]
    if 2 * len({*begun}) > len(said):  # a greeting is the same in all
        yield Note("begin with an answer and end in a question, as where the newest comes first", len(begun), len(said))
    cut = "cut it off if a model gave it with the answer"
    for is_unusual, what in (
        (_repeats_question, f"begins with the whole question, which is trained with it; {cut}"),
        (
            lambda said: any(role == "assistant" and _headers(text) for role, text in said),
            f"has further turns in its text, which are trained as one; {cut}",
        ),
        (
            lambda said: said[-1][0] == "assistant" and _LIST.fullmatch(said[-1][1]),
            "is a list written as text, which is trained with its brackets and quotes",
        ),
    ):
        found = sum(bool(is_unusual(each)) for each in said)
        if 2 * found > len(samples):
            yield Note(f"have an answer that {what}", found, len(said))
    yield from _marks([each[-1][1] for each in said if each[-1][0] == "assistant"])


def _cut(answers: Sequence[str]) -> Iterator[Note]:
    """Report answers that are all cut at one length, as cells of a table are: they are most of the long ones."""
    distinct = {*answers}
    most = max(map(len, distinct), default=0)
    longest = [text for text in distinct if len(text) >= most - 1]  # without a blank at its end
    num_long = sum(10 * len(text) >= 9 * most for text in distinct)
    num_open = sum(text[-1].isalnum() for text in longest) if most >= _SHORTEST_CUT else 0
    if len(longest) >= _FEWEST_CUT and 2 * len(longest) > num_long and 2 * num_open > len(longest):
        says = f"have an answer of {most:,} characters, the most that any has, most of which end in a letter or digit"
        yield Note(f"{says}; leave them out if they were cut off there", len(longest), len(answers))


def _dialogues(texts: Sequence[str]) -> Iterator[Note]:
    """Report texts of which most are dialogues: their questions are trained, too."""
    headers = [each for each in map(_headers, texts) if each is not None]
    in_turn = headers[0] if 2 * len(headers) > len(texts) else speakers_in(texts)
    if in_turn is not None:
        asked, answered = in_turn
        yield Note(
            f"its texts look like dialogues ('{asked}' … '{answered}'), and texts are trained whole; to train only the "
            "answers, give messages, or prompt and completion"
        )


def _said(sample: Sample) -> list[tuple[str, str]]:
    """Return who says what in a sample."""
    if not sample.messages:
        return [("user", sample.prompt.strip()), ("assistant", sample.text.strip())]
    return [(each.role, str(each.fields.get("content") or "").strip()) for each in sample.messages]


def _repeats_question(said: Sequence[tuple[str, str]]) -> bool:
    """Whether an answer begins with the question before it, if that is a text."""
    return any(
        (role, other) == ("user", "assistant") and is_text(asked) and answer.startswith(asked)
        for (role, asked), (other, answer) in pairwise(said)
    )


def _marks(answers: Sequence[str]) -> Iterator[Note]:
    """Report a line, a word or a label with which nearly all answers begin or end, or a line with which several end.

    A word counts at the beginning if the text goes on behind it, and at the end if no sentence ends there.
    """
    distinct = {*answers}
    first = [line for line, _, rest in (text.partition("\n") for text in answers) if rest.strip()]
    glued = [found[1] for text in answers if (found := _GLUED.match(text))]
    labels = [found["label"] for text in answers if (found := LABEL.match(text))]
    last = [line for before, _, line in (text.rpartition("\n") for text in distinct) if before.strip()]
    words = [found[1] for text in distinct if text[-1:] not in _ENDS and (found := _LAST_WORD.search(text))]
    begin = "begin their answer with the {} {}; cut it off if it is not meant to be said"  # headers reject their rows
    end = "end with the {} {}, which is trained with them"
    for says, kinds in (
        (begin, (("line", first, _NEARLY_ALL), ("word", glued, _NEARLY_ALL), ("label", labels, _NEARLY_ALL))),
        (end, (("line", last, _SEVERAL), ("word", words, _NEARLY_ALL))),
    ):
        for what, marks, share in kinds:
            said = Counter(mark for mark in marks if any(map(str.isalpha, mark)) and not _TAG.fullmatch(mark))
            mark, count = next(iter(said.most_common(1)), ("", 0))
            if count > max(2, share * len(answers)):
                yield Note(says.format(what, quoted(mark)), count, len(answers))
                break


def _headers(text: str) -> tuple[str, str] | None:
    """Return the header of the first question in a text, and of an answer after it; None if it is no dialogue.

    Two searches, each in one pass: a single pattern would begin anew in every line of a text of any length.
    """
    for asker, answerer in ((_QUESTION, _ANSWER), (_ASKER, _ANSWERER)):
        asked = asker.search(text)
        answered = None if asked is None else answerer.search(text, asked.end(), asked.end() + _LONGEST_QUESTION)
        if asked is not None and answered is not None:
            return asked[1], answered[1]
    return None


def turns_in_rows(
    samples: Sequence[Sample], rows: Sequence[Mapping[str, Any]], fields: Collection[str]
) -> Iterator[Note]:
    """Yield the fields that number rows of one question, and begin anew: an answer may need the rows before its own."""
    if any(sum(each.role == "user" for each in sample.messages) != 1 for sample in samples):
        return  # the turns before may be in their messages, or in a prompt
    for name in sorted(fields):
        said = [str(each)[:9] for row in rows if isinstance(each := row.get(name), int | str)]
        numbers = [int(each) for each in said if each.isdecimal()]
        first, last = min(numbers, default=2), max(numbers, default=0)
        is_counted = all(each in (before + 1, first) for before, each in pairwise([first - 1, *numbers]))
        if len(numbers) == len(rows) and is_counted and first <= 1 < last - first and numbers.count(first) > 1:
            says = f"its rows are numbered by {quoted(name)}, which begins anew: if they are turns of conversations"
            yield Note(f"{says}, each is trained without those before it; docs/how-to/exports.md#turns joins them")


_NAMES = frozenset({"none", "null", "nan", "nat", "<na>", "n/a", "#n/a"})
_OF_MESSAGES = frozenset({"content", "value", *REASONING_FIELDS})
_LONGEST_NAME = 8
"""Characters of a name, and of white space around it."""

_MOST_OTHERS = 32
"""Other texts of a field that are looked at, and characters of one that is counted."""

_FEWEST, _FEWEST_PERCENT = 3, 10
"""Rows in which such a label stands, and of how many that have the field."""


@dataclass(slots=True)
class _Texts:
    """The texts of a field in some rows, or of one speaker in its messages."""

    names: Counter[str] = field(default_factory=Counter)
    rows: set[int] = field(default_factory=set)
    """Numbers of those with a name."""

    others: list[str] = field(default_factory=list)
    num: int = 0
    short: Counter[str] = field(default_factory=Counter)

    def add(self, text: str, row: int) -> None:
        if len(text) <= _LONGEST_NAME and text.strip().lower() in _NAMES:
            self.names[text.strip()] += 1
            self.rows.add(row)
        elif text.strip():
            self.num += 1
            self.short.update([text.strip()] * (len(text) <= _MOST_OTHERS))
            self.others += [text] * (len(self.others) < _MOST_OTHERS)

    def placeholder(self) -> Iterator[tuple[str, int]]:
        """Yield the label that repeats where other rows have texts that hardly ever do, and its rows."""
        for word, count in self.short.most_common(1):
            texts = [text for text in self.others if text.strip() != word]
            are_texts = 2 * len({*filter(is_text, texts)}) > len(texts) > 1
            if are_texts and not is_text(word) and count >= max(_FEWEST, self.num * _FEWEST_PERCENT / 100):
                yield word, count


def null_names(
    rows: Sequence[Mapping[str, Any]], fields: Collection[str], beside: Collection[str] = ()
) -> Iterator[Note]:
    """Yield the fields of rows that have the name of a null where the others are no labels.

    `fields`: names of those that are read; `beside`: those of them that stand beside the question.
    """
    found: defaultdict[tuple[str, ...], _Texts] = defaultdict(_Texts)
    """By the name of a field, or of a field with messages, their key and their speaker."""

    for (number, row), name in product(enumerate(rows), fields):
        value = row.get(name)
        if type(value) is str:
            found[name,].add(value, number)
        for message in value if type(value) is list else ():
            for key in _OF_MESSAGES & message.keys() if type(message) is dict else ():
                if type(message[key]) is str:
                    found[name, key, str(message.get("role") or message.get("from"))].add(message[key], number)
    for (name, *of_messages), texts in sorted(found.items(), key=lambda each: each[0]):
        num_others = len(texts.others)
        are_texts = 2 * sum(map(is_text, texts.others)) >= num_others
        words = [*texts.placeholder()] if name in beside and not of_messages else []
        if texts.names and are_texts and texts.names.total() + num_others > 1:
            words = [(texts.names.most_common(1)[0][0], len(texts.rows))]
        key, speaker = of_messages or ("", "")
        path = f"{quoted(f'{name}{ITEMS}.{key}', 80)} of {quoted(speaker)}" if key else quoted(name)
        for word, num_rows in words:
            says = f"have only {quoted(word)} in {path}, which is read as a text; give null for nothing"
            yield Note(says, num_rows, len(rows))


_MOST_ROWS_PER_BEGUN = 100
"""Of which one may begin another: short conversations are alike."""

BEGIN_OTHERS = (
    "begin another row, and their answers are trained once in each, as where every request of a session is logged with "
    f"all before it; {as_option('supervision.turns=last')} trains the last answer of each row alone; or keep the last "
    "row of each session, as docs/how-to/exports.md#requests-of-a-session shows"
)


def begun_rows(samples: Sequence[Sample], num_rows: int) -> Iterator[Note]:
    """Yield how many of all rows begin another one, unless they are few.

    Logs have a row for each request, with all that was said before: an answer is then in the row of each later request.
    """
    whole, begun = list[int](), set[int]()
    for sample in samples:
        value, is_trained = 0, False
        for message in sample.messages if sample.preference is None else ():
            if is_trained:
                begun.add(value)
            value = hash((value, _words_of(message)))
            is_trained |= message.role == "assistant" and message.trained is not False
        whole += [value] * is_trained
    num_begin = sum(map(begun.__contains__, whole))
    if num_begin * _MOST_ROWS_PER_BEGUN > num_rows:
        yield Note(BEGIN_OTHERS, num_begin, num_rows)


def _words_of(message: Message) -> tuple[Any, ...]:
    """Return what a message says, but for reasoning, which later requests may leave out."""
    fields = message.fields
    content, calls = fields.get("content"), fields.get("tool_calls")
    told = content if isinstance(content, str) else msgspec.json.encode(content)
    return fields["role"], told, calls and msgspec.json.encode(calls, order="sorted")
