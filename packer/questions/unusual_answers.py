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

_SEVERAL, _NEARLY_ALL = 0.05, 0.9
"""Shares of all answers that have one mark: a line of its own at the end, and any other, which may be none."""

_LIST = re.compile(r"\[\s*[\"'].*[\"']\s*\]", re.DOTALL)
"""A list of texts as JSON, or as Python prints it, of which the items may be turns, or answers to one question."""

_LONGEST_QUESTION = 20_000
"""Characters after the header of a question among which that of an answer is searched for."""


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
    yield from _marks([each[-1][1] for each in said if each[-1][0] == "assistant"])


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


def _marks(answers: Sequence[str]) -> Iterator[Note]:
    """Report a line or a word with which nearly all answers begin or end, or a line with which several end.

    A word counts at the beginning if the text goes on behind it, and at the end if no sentence ends there.
    """
    distinct = {*answers}
    first = [line for line, _, rest in (text.partition("\n") for text in answers) if rest.strip()]
    glued = [found[1] for text in answers if (found := _GLUED.match(text))]
    last = [line for before, _, line in (text.rpartition("\n") for text in distinct) if before.strip()]
    words = [found[1] for text in distinct if text[-1:] not in _ENDS and (found := _LAST_WORD.search(text))]
    begin, end = "begin their answer with the {} {}, which is trained", "end with the {} {}, which is trained with them"
    for says, kinds in (
        (begin, (("line", first, _NEARLY_ALL), ("word", glued, _NEARLY_ALL))),
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
