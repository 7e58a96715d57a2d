"""Finds what answers begin with and may not be said: blocks that may be reasoning, and names of speakers.

No list of tags is needed: text between tags of any name, in front of what an answer says, may be meant for no reader.
Headings are, so one counts only if its name is one of reasoning, or if most rows of a file begin with the same one and
have one other in common, whatever both are called. The one that ends a block begins what the answer says, and stays
there.

Texts of transcripts have the name of who speaks before what is said, such as `Claude:`. Under a template, whose headers
say it already, it would be learned. No list of names is needed: a label that nearly all answers of a source have in
common is a name if nearly all that users say has one, too, and it is another. One that only answers have may be what
they say, as in `Answer: 42`. :mod:`packer.source.beginnings` reads a block as `roles` says, and takes names off.
"""

import operator
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple

from packer.batches import Sample
from packer.questions.question_fields import list_names
from packer.questions.read_places import UnreadField
from packer.questions.texts import is_text, spaced
from packer.recipe.named_options import as_option, flow_mapping
from packer.source.beginnings import BETWEEN, HEADINGS, NAME, TAG

_BEGIN = re.compile(r"(?:begin|start)(?=_)", re.IGNORECASE)
_CLOSES_ANY = re.compile(r"</(\w[\w.:-]{0,40})>")
_CLOSES_LINE = re.compile(rf"^[ \t]*({_CLOSES_ANY.pattern})[ \t]*(?=\n|\Z)", re.MULTILINE)

_FENCE = re.compile(r"(`{3,}|~{3,}|:{3,})[^\S\n]?[\w-]{1,40}(?=\n)")
_COMMENT = ("<!--", "-->")
_LABEL = re.compile(rf"^{NAME}:", re.MULTILINE)
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
        """What `roles` calls it."""
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
        if len(found) != 1 or not TAG.fullmatch(found[0].opening):
            return
        text = begun.rpartition(found[0].closing)[2]


def _blocks(text: str) -> Iterator[Block]:
    if (tag := TAG.match(text)) is not None:
        yield from [*_in_tags(text, tag)] or _between_marks(text, tag)
    elif (end := _CLOSES_LINE.search(text)) is not None and f"<{end[2]}" not in text[: end.start()]:
        yield Block("", end[1], text[: end.start(1)])
    elif text.startswith(_COMMENT[0]):
        inside, closes, _ = text.removeprefix(_COMMENT[0]).partition(_COMMENT[1])
        yield from [Block(*_COMMENT, inside)] if closes else ()
    fence = _FENCE.match(text)
    if fence is not None and _OF_REASONING.search(fence[0]):
        inside, closes, _ = text[fence.end() :].partition(fence[1])
        yield from [Block(fence[0], fence[1], inside)] if closes else ()
    for form in HEADINGS:
        opening = re.match(form, text)
        if opening is None or not _OF_REASONING.search(opening[0]):
            continue
        later = re.compile(rf"(?:^|(?<=\s)(?=\*))(?={re.escape(opening[1])}\w){form}", re.MULTILINE)
        ends = chain(later.finditer(text, opening.end()), _MARK_ALONE.finditer(text, opening.end()))
        for end in islice(ends, _MOST_HEADINGS):
            yield Block(opening[0], end[0], text[opening.end() : end.start()])


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
    """Yield the block between two marks that are no pair, as `<unused94>thought` and `<unused95>`."""
    others = [*islice(TAG.finditer(text, mark.end()), 2)]
    if mark[1].startswith("<") and len(others) == 1 and others[0][1] == mark[1] and "</" not in text:
        named = _OF_REASONING.match(text, mark.end())
        start = named.end() if named else mark.end()
        yield Block(text[:start], others[0][0], text[start : others[0].start()])


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


def blocks_in(samples: Sequence[Sample], known: Mapping[str, str]) -> Iterator[UnreadField]:
    """Yield the blocks with which answers begin, but for those known by `roles` of the source, if not only few rows
    have them: of several that begin alike, the most common.

    One between two marks that may be headings for readers counts if these are the two that most rows have.
    """
    said = {name.partition(BETWEEN)[0] for name, role in known.items() if role == "assistant"} - {""}

    def unknown(blocks: Iterable[Block]) -> dict[str, Block]:
        return {each.name: each for each in blocks if each.name not in known and each.opening not in said}

    num_rows, num_marked, first = Counter[str](), Counter[str](), dict[str, Block]()
    labels: dict[str, Sequence[str]] = {}
    """Those in an answer that has that of a block again behind it: a thought, say, and a result of a tool."""

    for sample in samples:
        contents = (each.fields.get("content") for each in sample.all_messages if each.role == "assistant")
        answers = [text for text in contents if isinstance(text, str)]
        found = unknown(block for text in answers for block in blocks_of(text))
        marked = unknown(block for text in answers for block in _begun_by_marks(text))
        num_rows.update(found.keys())
        num_marked.update(marked.keys())
        first = marked | found | first
        for text in answers if found else ():
            own = [each.strip() for each in _LABEL.findall(text)]
            labels |= {name: own for name, block in found.items() if own.count(block.opening) > 1}
    openings, fewest = set(), max(_FEWEST_ROWS, len(samples) // 2 + 1)
    of_most = [(name, count) for name, count in num_marked.items() if count >= fewest]
    for name, count in [*num_rows.most_common(), *(of_most if len(of_most) == 1 else [])]:
        block = first[name]
        if (block.opening or name) not in openings:
            openings.add(block.opening or name)
            inner = tuple(dict.fromkeys(labels.get(name, ())))
            yield UnreadField(path=name, kind="block", num_rows=count, example=spaced(block.inside), inner=inner)


# Names of speakers


_WORD = r"[\w'’.-]{1,24}"
_NAME = (
    rf"(?:[#*_\[<(【>|]{{1,6}}\s?)?(?=[^\W\d_]){_WORD}(?: {_WORD}){{0,2}}"
    r"[\])>】*_|]{0,4}\s?[:：][*_\]】]{0,3}"
)
_SPEAKER = re.compile(rf"\s*(?P<label>{_NAME})(?!//)(?=\s*\S)")
"""Matches a label of one to three words with a colon, also in bold, in brackets or in a heading, that text follows."""

_OF_LINE = re.compile(rf"(?P<label>{_NAME}(?!//)|\#{{1,6}} ?{_WORD}(?: {_WORD}){{0,2}}(?=\s*\Z))")
"""Matches a label at the beginning of a line, or a heading without a colon."""

_MOST_LINES = 1000
"""Of a text, and characters of a line, which are searched for labels."""

_FEWEST_ANSWERS = 2
_MOST_WITHOUT = 10
"""One in this many texts may begin otherwise."""


def labels_of(samples: Iterable[Sample]) -> Iterator[UnreadField]:
    """Yield the label that nearly all answers begin with; it is a name if what users say begins with one of theirs."""
    num_texts, num_rows, first = Counter[str](), Counter[str](), dict[str, str]()
    labels: Mapping[str, Counter[str]] = {"assistant": Counter(), "user": Counter()}
    for sample in samples:
        names: set[str] = set()
        for message in sample.messages:
            role, text = message.fields["role"], message.fields.get("content")
            if role not in labels or type(text) is not str or message.trained is False or not text or text.isspace():
                continue
            num_texts[role] += 1
            if (found := _SPEAKER.match(text)) is not None:
                labels[role][found["label"]] += 1
                if role == "assistant":
                    names.add(found["label"])
                    first.setdefault(found["label"], text)
        num_rows.update(names)

    def shared(role: str) -> str | None:
        """Return the label with which nearly all texts of a role begin."""
        label, count = next(iter(labels[role].most_common(1)), ("", 0))
        return label if count and (num_texts[role] - count) * _MOST_WITHOUT <= num_texts[role] else None

    name, label = shared("user"), shared("assistant")
    if label is not None and num_texts["assistant"] >= _FEWEST_ANSWERS:
        roles = ((label, "assistant"), (name, "user")) if name is not None and name != label else ()
        example = spaced(first[label])
        yield UnreadField(path=label, kind="label", num_rows=num_rows[label], example=example, roles=roles)


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


def ways_to_read(found: Sequence[UnreadField], roles: Mapping[str, str]) -> Iterator[str]:
    """Yield options that read what answers begin with, blocks or names, as one thing or the other."""
    blocks = [each for each in found if each.kind == "block"]
    for role, effect in (("reasoning", "reads it as reasoning"), ("assistant", "trains it as what they say")):
        if blocks:
            given = {**roles, **{block.path: role for block in blocks}}
            yield f"{as_option(f'sources.roles={flow_mapping(given)}')} {effect}"
    if labels := list_names(label for block in blocks for label in block.inner):
        yield f"either way, all that follows is trained, also behind {labels}: a tool's words need own messages"
    for each in found:
        if each.kind == "label":
            names = list_names([name for name, _ in each.roles])
            yield f"{as_option(f'sources.roles={flow_mapping({**roles, **dict(each.roles)})}')} takes {names} off"
            yield f"{as_option('supervision.control_tokens=allow')} trains them as words"
