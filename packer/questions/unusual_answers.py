"""Finds questions and answers in the first rows of a file that may not be meant to be trained as they are."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from packer.batches import Sample
from packer.questions.read_places import Note
from packer.questions.speaker_labels import speakers_in
from packer.source.file_bytes import quoted
from packer.source.prose import is_text

MOST_SAMPLES = 64

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

_FEWEST_LINES, _FEWEST_WORDS = 0.05, 0.9
"""How many of all answers end with one line; or end with one word, or begin with one, if it may be a mark."""

_LIST = re.compile(r"\[\s*[\"'].*[\"']\s*\]", re.DOTALL)
"""A list of texts as JSON, or as Python prints it, of which the items may be turns, or answers to one question."""

_LONGEST_QUESTION = 20_000
"""Characters after the header of a question among which that of an answer is searched for."""

_LONG_ANSWER = 200
"""Characters of an answer, of which many to one question are unusual."""


def notes_on(samples: Sequence[Sample]) -> Iterator[Note]:
    """Yield what is unusual in the first samples of a file."""
    if samples and samples[0].kind == "text":
        yield from _dialogues([sample.text for sample in samples])
        return
    said = [_said(sample) for sample in samples]
    cut = "cut it off if a model gave it with the answer"
    for is_unusual, what in (
        (_repeats_question, f"begins with the whole question, which is trained with it; {cut}"),
        (_runs_on, f"has further turns in its text, which are trained as one; {cut}"),
        (_is_listed, "is a list written as text, which is trained with its brackets and quotes"),
    ):
        found = sum(map(is_unusual, said))
        if 2 * found > len(samples):
            yield Note(f"have an answer that {what}", found, len(said))
    yield from _placeholders(said)
    answers = [each[-1][1] for each in said if each[-1][0] == "assistant"]
    yield from _beginnings(answers)
    yield from _endings(answers)


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


def _runs_on(said: Sequence[tuple[str, str]]) -> bool:
    return any(role == "assistant" and _headers(text) is not None for role, text in said)


def _is_listed(said: Sequence[tuple[str, str]]) -> bool:
    return said[-1][0] == "assistant" and _LIST.fullmatch(said[-1][1]) is not None


def _placeholders(every: Sequence[Sequence[tuple[str, str]]]) -> Iterator[Note]:
    """Report questions that say nothing, and one that most rows have, whose long answers may answer others."""
    talks = [each for each in every if len(each) > 1]
    asked = [" ".join(text for role, text in each if role == "user") for each in talks]
    empty = [each for each in asked if each and not any(map(str.isalnum, each))]
    same = Counter(tuple(each[:-1]) for each in {*map(tuple, talks)} if len(each[-1][1]) > _LONG_ANSWER)
    if len(empty) > 1:
        says = f"ask nothing but {quoted(empty[0])}, which may stand for a question elsewhere"
        yield Note(says, len(empty), len(every))
    for prompt, count in same.most_common(1):
        if 2 * count > len(every) > 1 and prompt[-1][1]:
            yield Note(f"have one prompt, {quoted(prompt[-1][1])}, and long answers that differ", count, len(every))


def _beginnings(answers: Sequence[str]) -> Iterator[Note]:
    """Report a line, or a word that the text goes on behind, with which nearly all answers begin."""
    lines = (text.partition("\n") for text in answers)
    first = [line for line, _, rest in lines if rest.strip() and not _TAG.fullmatch(line)]
    glued = [found[1] for text in answers if (found := _GLUED.match(text))]
    for what, said in (("line", Counter(first)), ("word", Counter(glued))):
        for begin, count in said.most_common(1):
            if count > 2 and count > _FEWEST_WORDS * len(answers) and any(map(str.isalpha, begin)):
                yield Note(f"begin their answer with the {what} {quoted(begin)}, which is trained", count, len(answers))


def _endings(answers: Sequence[str]) -> Iterator[Note]:
    """Report a line with which several answers end, or a word with which nearly all do, as marks of a log do."""
    lines = [text.rpartition("\n") for text in {*answers}]
    lasts = [_LAST_WORD.search(text) for text in {*answers} if text[-1:] not in _ENDS]  # a mark ends no sentence
    words = [found[1] for found in lasts if found]
    of_lines = [end for before, _, end in lines if before.strip()]
    for ends, what, fewest in ((of_lines, "line", _FEWEST_LINES), (words, "word", _FEWEST_WORDS)):
        marks = (end for end in ends if not _TAG.fullmatch(end))  # tags may be read
        said = Counter(end for end in marks if any(map(str.isalpha, end)))
        for end, count in said.most_common(1):
            if count > 2 and count > fewest * len(answers):
                yield Note(f"end with the {what} {quoted(end)}, which is trained with them", count, len(answers))
                return


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
