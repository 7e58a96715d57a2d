"""Finds what answers begin with and may not be said: blocks that may be reasoning, and names of speakers.

No list of tags is needed: text between tags of any name, in front of what an answer says, may be meant for no reader.
Headings are, so one counts only if its name is one of reasoning, or if most rows of a file begin with the same one and
have one other in common, whatever both are called.

Texts of transcripts have the name of who speaks before what is said, such as `Claude:`. Under a template, whose headers
say it already, it would be learned. No list of names is needed: a label that nearly all answers of a source have in
common is a name if nearly all that users say has one, too, and it is another. One that only answers have may be what
they say, as in `Answer: 42`.

A build asks and reads neither: only who made the rows knows what they are.
"""

import operator
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple

from packer.batches import Sample
from packer.questions.read_places import UnreadField
from packer.questions.texts import is_text, spaced

BETWEEN = "..."
"""What stands between the two marks in the name of a block."""

_TAG = re.compile(r"([<\[{(|◁｜]{1,3})([^\W\d_][\w.:-]{0,40})(?:\s[^<>\[\]\n]{0,80})?([>\]})|▷｜]{1,3})")
_NAME_OF_MARK = r"[^\W\d_][\w '-]{0,40}"
_HEADINGS = (
    rf"(#{{1,6}} ){_NAME_OF_MARK}:?(?=\n)",
    rf"(\*\*){_NAME_OF_MARK}(?::\*\*|\*\*:?)",
    rf"(){_NAME_OF_MARK}:",
)
_BEGIN = re.compile(r"(?:begin|start)(?=_)", re.IGNORECASE)
_CLOSES_ANY = re.compile(r"</(\w[\w.:-]{0,40})>")
_CLOSES_LINE = re.compile(rf"^[ \t]*({_CLOSES_ANY.pattern})[ \t]*(?=\n|\Z)", re.MULTILINE)

_FENCE = re.compile(r"(`{3,}|~{3,}|:{3,})[^\S\n]?[\w-]{1,40}(?=\n)")
_COMMENT = "<!--", "-->"
_MARK_ALONE = re.compile(r"(?<=\n)[<\[][^\W\d_][\w.: -]{0,60}[>\]](?=\n)")
_OF_REASONING = re.compile(r"\b(?:think|thinking|thoughts?|reasoning)\b", re.IGNORECASE)
_LONGEST_NAME, _FEWEST_ROWS, _MOST_MARKS, _SHOWN_CHARACTERS = 40, 3, 32, 256
_BRACKETS, _LONGEST_HEADING, _MOST_HEADINGS, _MOST_BLOCKS = "<[{(|◁｜", 64, 8, 8


class Block(NamedTuple):
    opening: str
    """Empty if the prompt opens the block, as R1's does."""

    closing: str
    inside: str

    @property
    def name(self) -> str:
        """What a build calls it, and `ignore` of a source."""
        return f"{self.opening}{BETWEEN}{self.closing}"


def blocks_of(text: str) -> Iterator[Block]:
    r"""Yield the block with which an answer begins, if it is text and is followed by more; or some, of which one is.

    An answer that consists of elements with the same tag, or has elements both in the block and behind it, is markup.

    Example:
        >>> [block.name for block in blocks_of("<plan>First the tide, then the boat.</plan> At six.")]
        ['<plan>...</plan>']
        >>> [block.name for block in blocks_of("## Thinking\nFirst the tide.\n## Answer\nAt six.")]
        ['## Thinking...## Answer']
    """
    for _ in range(_MOST_BLOCKS):
        begun = text.strip()
        if begun[:1] not in _BRACKETS and "</" not in begun and not _OF_REASONING.search(begun[:_LONGEST_HEADING]):
            return  # nearly always
        found = [block for block in _blocks(begun) if is_text(block.inside.strip())]
        found = [block for block in found if begun.partition(block.inside + block.closing)[2]]
        yield from found
        if len(found) != 1 or not _TAG.fullmatch(found[0].opening):
            return
        text = begun.rpartition(found[0].closing)[2]


def _blocks(text: str) -> Iterator[Block]:
    if (tag := _TAG.match(text)) is not None:
        yield from [*_in_tags(text, tag)] or _between_marks(text, tag)
    elif (end := _CLOSES_LINE.search(text)) is not None and f"<{end[2]}" not in text[: end.start()]:
        yield Block("", end[1], text[: end.start(1)])
    fence = _FENCE.match(text)
    opening, closing = (fence[0], fence[1]) if fence and _OF_REASONING.search(fence[0]) else _COMMENT
    inside, closes, _ = text.removeprefix(opening).partition(closing)
    if text.startswith(opening) and closes:
        yield Block(opening, closing, inside)
    for form in _HEADINGS:
        begin = re.match(form, text)
        if begin is None or not _OF_REASONING.search(begin[0]):
            continue
        later = re.compile(rf"(?:^|(?<=\s)(?=\*))(?={re.escape(begin[1])}\w){form}", re.MULTILINE)
        ends = chain(later.finditer(text, begin.end()), _MARK_ALONE.finditer(text, begin.end()))
        for end in islice(ends, _MOST_HEADINGS):
            yield Block(begin[0], end[0], text[begin.end() : end.start()])


def _in_tags(text: str, tag: re.Match[str]) -> Iterator[Block]:
    left, name, right = tag.groups()
    ends = _BEGIN.sub(lambda begin: "END" if begin[0].isupper() else "end", name)
    closing = f"{left}{'/' * (ends == name)}{ends}{right}"
    inside, closes, rest = text[tag.end() :].partition(closing)
    more = re.compile(rf"\A(?:\s*{re.escape(f'{left}{name}{right}')}.*?{re.escape(closing)})*\s*", re.DOTALL)
    rest = more.sub("", rest, count=1)
    is_markup = f"{left}{name}" in rest or (_CLOSES_ANY.search(inside) and _CLOSES_ANY.search(rest))
    if closes and rest and not is_markup:
        yield Block(f"{left}{name}{right}", closing, inside)


def _between_marks(text: str, mark: re.Match[str]) -> Iterator[Block]:
    """Yield the block between two marks that are no pair, as `<unused94>` and `<unused95>`."""
    others = [*islice(_TAG.finditer(text, mark.end()), 2)]
    if mark[1].startswith("<") and len(others) == 1 and others[0][1] == mark[1] and "</" not in text:
        yield Block(mark[0], others[0][0], text[mark.end() : others[0].start()])


def _begun_by_marks(text: str) -> Iterator[Block]:
    """Yield what stands between the mark with which an answer begins, and the first of each other mark of its form.

    A mark is a heading, or bold, at the beginning of a line, or stands in brackets of any script.

    Example:
        >>> [block.name for block in _begun_by_marks("【思考】先看潮汐表，五点转潮，所以船要等。【回答】六点。")]
        ['【思考】...【回答】']
    """
    begun = text.strip()
    num_signs = len(begun) - len(begun.lstrip("#"))
    name = rf"[^\n]{{1,{_LONGEST_NAME}}}"
    if num_signs:
        form = rf"^#{{{num_signs}}} {name}$"
    elif begun.startswith("**"):
        form = rf"^\*\*[^*\n]{{1,{_LONGEST_NAME}}}\*\*[:：]?"
    elif unicodedata.category(begun[:1] or " ") == "Ps":
        end = next((sign for sign in begun[:_LONGEST_NAME] if unicodedata.category(sign) == "Pe"), "")
        form = rf"{re.escape(begun[0])}[^{re.escape(begun[0] + end)}\n]{{1,{_LONGEST_NAME}}}{re.escape(end)}"
    else:
        return
    starts = dict[str, int]()
    for mark in islice(re.finditer(form, begun, re.MULTILINE), _MOST_MARKS):
        starts.setdefault(mark[0].strip(), mark.start())
    opening, *others = [*starts] or [""]
    for closing in others if begun.startswith(opening) else ():
        inside = begun[len(opening) : min(starts[closing], len(opening) + _SHOWN_CHARACTERS)]
        if all(sum(map(str.isalpha, mark)) > 1 for mark in (opening, closing)) and is_text(inside.strip()):
            yield Block(opening, closing, inside)


def blocks_in(samples: Sequence[Sample], known: Collection[str]) -> Iterator[UnreadField]:
    """Yield the blocks with which answers begin: of several that begin alike, the most common, unless one is known.

    One between two marks that may be headings for readers counts if these are the two that most rows have.
    """
    openings = {name.partition(BETWEEN)[0] or name for name in known}
    num_rows, num_marked, first = Counter[str](), Counter[str](), dict[str, Block]()
    for sample in samples:
        contents = (each.fields.get("content") for each in sample.all_messages if each.role == "assistant")
        answers = [text for text in contents if isinstance(text, str)]
        found = {block.name: block for text in answers for block in blocks_of(text)}
        marked = {block.name: block for text in answers for block in _begun_by_marks(text)}
        num_rows.update(found.keys())
        num_marked.update(marked.keys())
        first = marked | found | first
    fewest = max(_FEWEST_ROWS, len(samples) // 2 + 1)
    of_most = [(name, count) for name, count in num_marked.items() if count >= fewest]
    for name, count in [*num_rows.most_common(), *(of_most if len(of_most) == 1 else [])]:
        block = first[name]
        if (begin := block.opening or name) not in openings:
            openings.add(begin)
            yield UnreadField(path=name, kind="block", num_rows=count, example=spaced(block.inside))


# Names of speakers


_WORD = r"[\w'’.-]{1,24}"
_NAME = (
    rf"(?:[#*_\[<(【>|]{{1,6}}\s?)?(?=[^\W\d_]){_WORD}(?: {_WORD}){{0,2}}"
    r"[\])>】*_|]{0,4}\s?[:：][*_\]】]{0,3}"
)
LABEL = re.compile(rf"\s*(?P<label>{_NAME})(?!//)(?=\s*\S)")
"""Matches a label of one to three words with a colon, also in bold, in brackets or in a heading, that text follows."""

_OF_LINE = re.compile(rf"(?P<label>{_NAME}(?!//)|\#{{1,6}} ?{_WORD}(?: {_WORD}){{0,2}}(?=\s*\Z))")
"""Matches a label at the beginning of a line, or a heading without a colon."""

_MOST_LINES = 1000
"""Of a text, and characters of a line, which are searched for labels."""

_FEWEST_ANSWERS = 2
_MOST_WITHOUT = 10
"""One in this many texts may begin otherwise."""


def names_in(samples: Sequence[Sample], roles: Collection[str]) -> Iterator[UnreadField]:
    """Yield the label that nearly all answers begin with if what users say begins with one of theirs, or that `roles`
    names.
    """
    num_texts, num_rows, first = Counter[str](), Counter[str](), dict[str, str]()
    labels: Mapping[str, Counter[str]] = {"assistant": Counter(), "user": Counter()}
    for sample in samples:
        names: set[str] = set()
        for message in sample.messages:
            role, text = message.fields["role"], message.fields.get("content")
            if role not in labels or type(text) is not str or message.trained is False or not text or text.isspace():
                continue
            num_texts[role] += 1
            if (found := LABEL.match(text)) is not None:
                labels[role][found["label"]] += 1
                if role == "assistant":
                    names.add(found["label"])
                    first.setdefault(found["label"], text)
        num_rows.update(names)

    def shared(role: str) -> str | None:
        """Return the label with which nearly all texts of a role begin, or that `roles` names."""
        label, count = next(iter(labels[role].most_common(1)), ("", 0))
        is_shared = count and (num_texts[role] - count) * _MOST_WITHOUT <= num_texts[role]
        return label if is_shared or label in roles else None

    name, label = shared("user"), shared("assistant")
    is_name = name not in (None, label) and num_texts["assistant"] >= _FEWEST_ANSWERS
    if label is not None and (is_name or label in roles):
        yield UnreadField(path=label, kind="name", num_rows=num_rows[label], example=spaced(first[label]))


def speakers_in(texts: Sequence[str]) -> tuple[str, str] | None:
    r"""Return the two labels that lines of most texts begin with in turn; None if there are none, or more are usual.

    Example:
        >>> speakers_in(["Q: Six?\nA: Yes.\nQ: Ten?\nA: No.", "Q: Seven?\nA: No."])
        ('Q:', 'A:')
        >>> speakers_in(["Title: Six\nBy: Ann\nYear: 7\nText: Ho.", "Title: Ten\nBy: Bo\nYear: 8\nText: Ha."])
    """
    lines = [text[: _MOST_LINES * _MOST_LINES].splitlines()[:_MOST_LINES] for text in texts]
    matches = [[_OF_LINE.match(line[:_MOST_LINES].lstrip()) for line in each] for each in lines]
    found = [[label["label"] for label in each if label] for each in matches]
    first = Counter(labels[0] for labels in found if labels)
    others = Counter(label for labels in found for label in {*labels} - {*labels[:1]})
    if len(texts) < _FEWEST_ANSWERS or not others:
        return None
    asked, answered = pair = first.most_common(1)[0][0], others.most_common(1)[0][0]
    turns = [[label for label in labels if label in pair] for labels in found]
    in_turn = [each[:1] == [asked] and len(each) > 1 and all(map(operator.ne, each, each[1:])) for each in turns]
    are_all = 2 * sum(map(len, turns)) > sum(map(len, found))
    return (asked, answered) if asked != answered and are_all and 2 * sum(in_turn) > len(texts) else None
