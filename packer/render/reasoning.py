"""Reasoning before an answer: its tags, where a message stores it, and prompts that open a block of it.

Templates disagree about reasoning. Some take it from a field of the message, some expect it inline in `<think>` tags,
some drop it. Some write the opening tag into the prompt, so that the model continues inside the block.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from packer.batches import REASONING_FIELDS

Reasoning = Literal["as_given", "field", "inline"]

_REASONING = frozenset(REASONING_FIELDS)

_NAME = r"(?:[\w:.-]{0,40}?(?i:think|thought|reasoning)[\w:.-]{0,40}|(?i:reason))"
_CAPITALS = r"(?:[A-Z_]{0,40}?(?:THINK|THOUGHT|REASONING)[A-Z_]{0,40}|(?<![\w\\}]\[)(?i:think)|(?<=/)(?i:think))"
_ATTRIBUTES = r"(?:(?:[\"']|\s[\w:.-]{1,20}=)[^<>\n]{0,80}(?<!/))?"
_PAIRS = {
    "<|channel>thought": "<channel|>",
    "<|channel|>analysis<|message|>": "<|end|><|start|>assistant<|channel|>final<|message|>",
    "<|open|>think<|sep|>": "<|close|>think<|sep|><|open|>response<|sep|>",
}
"""Markers of Gemma 4, gpt-oss and Kimi K3 that stand in place of tags."""


def _tags(begins: str, *others: str, left: str = "(?<=<)") -> str:
    """Return a pattern of what follows the first character of a tag; `begins`: of what stands before its name."""
    inside = rf"\s{{0,3}}{begins}{_NAME}{_ATTRIBUTES}\s{{0,3}}"
    angles = rf"(?:{left}[|\uff5c]?|(?<=&)lt;|(?<=◁)){inside}(?:[|\uff5c]?>|&gt;|▷)"
    square = rf"(?<=\[){begins}{_CAPITALS}\]"
    return "|".join([angles, square, *(re.escape(each[1:]) for each in others)])


_OPENS = _tags(r"(?!(?i:end)[_-])(?:[\w-]{1,20} type=[\"']?)?", *_PAIRS, left="(?<=<)(?!(?<=[A-Za-z]<)[A-Z])")
_CLOSES = _tags(r"(?:/\s{0,3}|(?=(?i:end)[_-]))", *_PAIRS.values())
_OPENINGS, _CLOSINGS, _EITHER = (rf"[<&◁\[](?:{form})" for form in (_OPENS, _CLOSES, f"{_OPENS}|{_CLOSES}"))

OPENING = re.compile(_OPENINGS)
"""Matches an opening tag of reasoning: `<think>`, `< seed:think a="b">`, `[THINK]`, `◁think▷`, `<|START_THINKING|>`.

Its form makes it one, and that its name contains *think*, *thought* or *reasoning*, or is *reason*. `<answer>` is none,
nor is the type of `List<Thought>`, nor an element that closes itself.
"""

CLOSING = re.compile(_CLOSINGS)

ANY_TAG = re.compile(_EITHER)
"""Matches any opening or closing tag."""

_CODE = re.compile(rf"```[\w-]*\s*+(?!{_OPENINGS}).*?(?:```|\Z)|`[^`\n]+`", re.DOTALL)

_QUOTED = re.compile(rf"`[^`\n]*(?:{_CLOSINGS})[^`\n]*`")

_AT_END, _CLOSING_AT_END = re.compile(rf"{_EITHER}\Z"), re.compile(rf"{_CLOSINGS}\Z")
LONGEST_TAG = 240
"""No tag has more characters."""

_BLOCK = rf"(?P<opening>{_OPENINGS})(?P<inside>\s*)(?P<closing>{_CLOSINGS})"
_EMPTY_BLOCK = re.compile(rf"{_BLOCK}\s*")

_OWN_EMPTY_BLOCK = re.compile(r"(?P<opening><([^\W\d_][\w:.-]{0,40})>)(?P<inside>\s{0,8})(?P<closing></\2>)\Z")
"""Matches a block at the end of a prompt that a template writes to have no reasoning, whatever it calls it."""

_PARTS = re.compile(r"(<[|\uff5c]?|&lt;|◁|\[)\s*([\w:.-]+)[^<>\n]*?([|\uff5c]?>|&gt;|▷|\])")
_BEGINS_TAG = re.compile(r"(?:<|&lt;|\[|◁)[^<>\[\]\n]*\Z")
_ENDS_TAG = re.compile(r"[^<>\[\]\n]*(?:>|&gt;|\]|▷)")

MARKED_ANSWER = re.compile(
    r"(?P<opening><\|(?:begin|start)_(\w+)\|>)(?P<text>.*?)(?:<\|end_\2\|>\s*)?", re.IGNORECASE | re.DOTALL
)
"""Matches an answer in markers like those around reasoning: `<|START_RESPONSE|>`, `<|begin_of_solution|>`."""

Message = Mapping[str, Any]


class ReasoningOpening(NamedTuple):
    """The ending of a prompt that opens the reasoning, such as `<think>⏎`, or also closes it: `<think></think>`."""

    start: int
    """Position of the opening tag in the prompt."""

    open_tag: str
    space: str
    """White space after the opening tag."""

    closed: bool


class InlineBlock(NamedTuple):
    """A text that starts with a block of reasoning."""

    block: str
    """The block with its tags."""

    reasoning: str
    answer: str
    """The text after the block."""

    opening: str
    """The tag that opens it; empty if none does."""


def closing_of(opening: str) -> str:
    """Return the closing tag that belongs to an opening one: `</think>`, `[/THINK]`, `<|END_THINKING|>`."""
    if opening in _PAIRS:
        return _PAIRS[opening]
    parts = _PARTS.fullmatch(opening)
    assert parts is not None
    left, name, right = parts.groups()
    begin, separator, rest = name.partition("_")
    if begin.lower() in ("begin", "start") and separator:
        return f"{left}{'END' if begin.isupper() else 'end'}_{rest}{right}"
    return f"{left}/{name}{right}"


def _closing_in(text: str, opening: str, begin: int) -> re.Match[str] | None:
    """Return the first tag that closes another, be it with white space in it, or letters of another size."""
    pieces = re.findall(r"[\w:.-]+|\W", closing_of(opening))
    return re.compile(r"\s{0,3}".join(map(re.escape, pieces)), re.IGNORECASE).search(text, begin)


def may_make_tag(before: str, behind: str) -> bool:
    """Whether a text that is inserted between two others may form a tag with one of them."""
    return _BEGINS_TAG.search(before[-LONGEST_TAG:]) is not None or _ENDS_TAG.match(behind[:LONGEST_TAG]) is not None


def has_tag(text: str) -> bool:
    """Whether a text contains a tag of reasoning; of most texts, letters that one has tell that it does not."""
    if "<" not in text and "[" not in text and "&" not in text and "◁" not in text:
        return False
    lowered = text.lower()
    return any(word in lowered for word in ("think", "thought", "reason", "channel")) and bool(ANY_TAG.search(text))


def without_tags(text: str, marks: str, *, in_code: bool = False) -> str:
    """Return a text without the tags that another text, `marks`, does not have; perhaps only without those in code."""
    if in_code:
        return _CODE.sub(lambda code: without_tags(code[0], marks), text)
    return ANY_TAG.sub(lambda tag: tag[0] if tag[0] in marks else "", text)


def empty_block(text: str) -> tuple[int, int] | None:
    """Return the place of the first empty block of reasoning, with the white space after it; None without one."""
    found = (each for each in _EMPTY_BLOCK.finditer(text) if each["closing"] == closing_of(each["opening"]))
    return next((each.span() for each in found), None)


def tag_at_end(text: str) -> str:
    """Return the tag that a text without white space at its end ends with; empty without one."""
    found = _AT_END.search(text[-LONGEST_TAG:])  # no search of it all: prompts are long
    return found[0] if found else ""


def opened_by(prompt: str) -> ReasoningOpening | None:
    """Return the block of reasoning that a prompt ends with, open or empty; None if there is none."""
    bare = prompt.rstrip()
    if (own := _OWN_EMPTY_BLOCK.search(bare[-LONGEST_TAG:])) is not None:
        return ReasoningOpening(len(bare) - len(own[0]), own["opening"], own["inside"], closed=True)
    last = tag_at_end(bare)
    if not last:  # nearly always
        return None
    close = last if CLOSING.fullmatch(last) else ""
    before = bare.removesuffix(close)
    inner = before.rstrip() if close else bare
    open_tag = tag_at_end(inner)
    if not OPENING.fullmatch(open_tag) or close not in ("", closing_of(open_tag)):
        return None
    space = (before if close else prompt)[len(inner) :]
    return ReasoningOpening(len(inner) - len(open_tag), open_tag, space, bool(close))


def opens_reasoning(prompt: str) -> bool:
    """Whether a prompt ends with a block of reasoning that it does not close."""
    opened = opened_by(prompt)
    return opened is not None and not opened.closed


def without_ending(prompt: str) -> str:
    """Return a prompt without the tags and the white space at its end, in which its modes may differ."""
    bare = prompt.rstrip()
    while tag := tag_at_end(bare):
        bare = bare.removesuffix(tag).rstrip()
    return bare


def closes_reasoning(prompt: str) -> bool:
    """Whether a prompt ends with a closing tag, so that the model is to answer without reasoning."""
    end = prompt.rstrip()[-LONGEST_TAG:]
    return end.endswith((">", "]", ";", "▷")) and bool(_CLOSING_AT_END.search(end) or _OWN_EMPTY_BLOCK.search(end))


def goes_on(prompt: str, completion: str, *, is_reasoned: bool = True) -> bool:
    """Whether a completion closes the block of reasoning that its prompt opens, and does not open it once more.

    Nemotron Nano's template writes the prompt and then the text of the last answer as it stands. Of a turn without
    reasoning, nothing may stand in the block: the tag that closes it would be one of the arguments of a call.
    """
    opened = opened_by(prompt)
    if opened is None or opened.closed:
        return True
    before, closed, _ = completion.partition(closing_of(opened.open_tag))
    return bool(closed) and (is_reasoned or not before.strip()) and not completion.lstrip().startswith(opened.open_tag)


def shows_as_reasoning(reasoning: str, prompt: str, completion: str) -> bool:
    """Whether a completion shows a reasoning, and not behind a block of reasoning that is closed already.

    Some templates know reasoning in a field only. They write the block that a text starts with as part of the answer:
    after a prompt that ends in `</think>`, or after an empty block of their own.
    """
    place = completion.find(reasoning)
    if place < 0:
        return False
    before = (prompt + completion[:place]).rstrip()  # no search: prompts are long
    if OPENING.fullmatch(tag := tag_at_end(before)):
        before = before.removesuffix(tag).rstrip()
    return not closes_reasoning(before)


def continuation(opened: ReasoningOpening, reasoning: str, answer: str) -> str:
    """Return what a model writes after such a prompt: the reasoning, its closing tag, and the answer.

    The closing tag mirrors the opening one: if white space after that includes a newline, the closing tag is on a line
    of its own and followed by an empty line; otherwise there is no white space. `answer` is what the template writes
    for the turn; a block of reasoning at its start is not repeated.

    Worked example: after a prompt that ends in `<think>⏎`, reasoning `r` and answer `a` yield `r⏎</think>⏎⏎a`; without
    reasoning they yield `⏎</think>⏎⏎a`.
    """
    close_tag = closing_of(opened.open_tag)
    inline = split_inline(answer)
    if inline is not None and (inline.opening or inline.reasoning == reasoning):
        answer = inline.answer
        reasoning = inline.reasoning or reasoning
    answer = re.sub(rf"\A\s*{re.escape(close_tag)}", "", answer)
    if opened.closed:
        return answer
    before, after = ("\n", "\n\n") if "\n" in opened.space else ("", "")
    return f"{reasoning.strip()}{before}{close_tag}{after}{answer}"


def split_inline(content: Any) -> InlineBlock | None:
    """Split off the block of reasoning that a text starts with, be it without its opening tag, as R1 writes it.

    None if there is no such block, or if the text after it contains another closing tag: then it is ambiguous where the
    block ends. Nor does a tag that is quoted as code end what nothing opened.
    """
    if not isinstance(content, str) or not has_tag(content):
        return None
    text = content.lstrip()
    opening = OPENING.match(text)
    begin = opening.end() if opening else 0
    found = _closing_in(text, opening[0], begin) if opening else ANY_TAG.search(text)
    if found is None or CLOSING.search(text, found.end()):
        return None
    if not opening and not (found.start() and CLOSING.fullmatch(found[0])):
        return None
    if not opening and any(found.start() in range(*quoted.span()) for quoted in _QUOTED.finditer(text)):
        return None
    before, answer = text[: found.end()], text[found.end() :].lstrip()
    return InlineBlock(before, text[begin : found.start()].strip(), answer, opening[0] if opening else "")


def cut_off(message: Message) -> str | None:
    """Return how an answer shows that its generation was cut off within its reasoning, or None."""
    content = message.get("content")
    text = content.lstrip() if isinstance(content, str) else ""
    opening = OPENING.match(text)
    if opening is not None and _closing_in(text, opening[0], opening.end()) is None:
        return "its text opens a block of reasoning and does not close it"
    inline = split_inline(content)
    answer = inline.answer if inline and (inline.opening or not reasoning_fields(message)) else text
    if reasoning_of(message) and not answer.strip() and not message.get("tool_calls"):
        return "its reasoning is followed by no text and no call"
    return None


def has_two_reasonings(message: Message) -> bool:
    """Whether an assistant message has different reasoning in a field and inline: templates would write both."""
    inline = split_inline(message.get("content"))
    return (
        inline is not None
        and inline.reasoning != reasoning_of(message)
        and "" not in (inline.opening, inline.reasoning)
    )


def reasoning_fields(message: Message) -> list[str]:
    """Return the names of the fields in which a message has reasoning."""
    if _REASONING.isdisjoint(message):  # nearly always
        return []
    return [name for name in REASONING_FIELDS if isinstance(message.get(name), str) and message[name].strip()]


def reasoning_of(message: Message) -> str:
    """Return the reasoning of an assistant message, from its field or else inline; empty if there is none."""
    for name in reasoning_fields(message):
        return str(message[name]).strip()
    inline = split_inline(message.get("content"))
    return inline.reasoning if inline else ""


def with_reasoning_as(message: Message, form: Reasoning) -> dict[str, Any]:
    """Return the message; an assistant's has its reasoning where `supervision.reasoning` wants it, without tags."""
    changed = dict(message)
    content = changed.get("content")
    is_plain = _REASONING.isdisjoint(changed) and not (isinstance(content, str) and has_tag(content))
    if is_plain or changed.get("role") != "assistant":
        return changed
    blank = [name for name in REASONING_FIELDS if isinstance(value := changed.get(name), str) and value.isspace()]
    changed |= dict.fromkeys(blank, "")  # a template would write it in a block
    fields = reasoning_fields(changed)
    for name in fields:
        block = split_inline(changed[name])
        if block is not None and not block.answer:  # the tags are the row's, and the template would write its own
            changed[name] = block.reasoning
    twice = split_inline(content) if fields else None
    if twice is not None and twice.reasoning == changed[fields[0]].strip():
        changed["content"] = content = twice.answer  # most templates would write both
    if form == "as_given":
        return changed
    inline = split_inline(content)
    if form == "inline" and fields and not (inline and inline.opening):
        text = changed[fields[0]].strip()
        changed["content"] = f"<think>\n{text}\n</think>\n\n{content or ''}"
        return {name: value for name, value in changed.items() if name not in REASONING_FIELDS}
    if form == "inline" and inline is not None and not inline.opening:  # R1's texts, whose prompts open the block
        changed["content"] = f"<think>\n{inline.reasoning}\n</think>\n\n{inline.answer}"
    if inline is not None and form == "field" and not fields:
        marked = MARKED_ANSWER.fullmatch(inline.answer)
        changed["content"] = marked["text"].strip() if marked else inline.answer
        if inline.reasoning:  # an empty field is a block of its own to some templates
            changed |= {"reasoning_content": inline.reasoning, "thinking": inline.reasoning}
    return changed
