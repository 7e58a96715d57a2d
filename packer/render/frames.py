"""Prompts of other models within texts: `[INST] … [/INST]`, `### Instruction: … ### Response:`, `Human: … Assistant:`.

Rows that were written for a model without a chat template, or rendered for another one, have the headers of turns as
letters in their texts. Under a template they would stand within a user's turn, or be learned as the beginning of
answers. What a user asks has such a frame if it ends with the header of an answer, or with a mark, and also has the
header of a question. So has any text that begins with the header of its role, or with the name of a role in a line.
Several turns stand in a text whose lines begin with marks of one form that name those who ask and answer, in turn.

A text may also be itself, its message or its list of parts, written out as JSON or Python by whatever made it a text.
"""

import ast
import itertools
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from packer.batches import Rejection, Sample
from packer.recipe.recipe import Recipe
from packer.render.control import FOREIGN_ENDS, FOREIGN_MARKS
from packer.render.readback import function_of

_MARK = r"(?:<[|\uff5c]\w[^<>\s]*>|</?(?:start|end)_of_turn>|</?s>)"
_ANSWERER = r"(?:assistant|chatgpt|gpt|bot|model|response)"
_IN_MARKS = rf"{_MARK}\s*[a-z]\w*\s*{_MARK}"
_IN_WORDS = rf"(?:#+\s*(?:answer|{_ANSWERER})|(?:\*\*)?{_ANSWERER}(?:\*\*)?):(?:\*\*)?"

_ENDS = re.compile(
    rf"(?:\[/INST\]|(?:\A|(?<=[\s>])){_IN_WORDS}|(?:{_MARK}\s*(?:assistant|model)?\s*)+)\s*\Z", re.IGNORECASE
)
"""Matches what a prompt ends with."""

_BEGINS = re.compile(
    r"(?:<s>\s*)?\[INST\]|(?:^[^\w\n]*(?i:human|user|instruction|question)|\b(?:USER|HUMAN))[^\w\n]{0,8}:\**"
    rf"|\A\s*(?:{_MARK}\s*)+(?:system|user)\b\s*{_MARK}?|\A\s*<[|\uff5c](?:system|user|prompter|human)[|\uff5c]>",
    re.MULTILINE,
)
"""Matches what its question begins with."""

_DECORATED = (
    r"(?:[<\[{(][^\w\s'\"|\uff5c]*|(?:#+|={2,}|>)[^\S\n]*)(?:\w+\s+role\s*=\s*['\"]?)?(?i:assistant)['\"]?"
    r"[^\S\n]*(?:(?![@/-]|=(?!=)|\]\()[^\w\s'\",.;]+|\n)|\*\*(?i:assistant)\*\*[^\S\n]*\n"
)
"""Matches the role of an answer in marks: `[ASSISTANT]`, `## Assistant`, `<message role="assistant">`.

Bullets, prompts of a shell, options and components may name an assistant, too.
"""

_NAMED = r"(?i:(?:chatgpt|gpt|bot|ai)(?:\s+said)?\s*:)"
"""Matches what a model is called before what it says, as pages have it from which answers were copied."""

_CLOSED = re.compile(r"(?<!\s)\s*+[<\[]/(?i:assistant|message|turn)[>\]]\s*\Z")
"""Matches what closes such a mark at the end of the answer."""

_HEADERS = {
    role: re.compile(
        rf"\s*(?:(?:user|human|system|assistant|model)[^\S\n]*\n|(?i:(?:{names})\s*[:\n]|#+\s*(?:{names}|{more}):|"
        rf"\*\*(?:{names})(?::\*\*|\*\*:)){marked})"
    )
    for role, names, more, marked in (
        ("assistant", "assistant", "response", rf"|{_DECORATED}|{_NAMED}"),  # it would be learned
        ("user", "user|human", "question", rf"|<<SYS>>|{_IN_MARKS}|{_MARK}\s*user\s*\n"),
        ("system", "system", "system", rf"|<<SYS>>|{_IN_MARKS}|{_MARK}\s*system\s*\n|<[|\uff5c]system[|\uff5c]>"),
    )
}
"""Match the header of a role, in words as a text has it that was decoded without special tokens, or in marks."""

_SYSTEM = re.compile(r"<</?SYS>>\n?")
"""Matches what Llama 2 has around what the system says, within the first question."""

_LINE = re.compile(r"(?:\A|\n)(?:user|assistant|model)\n")
"""Matches a header within a text that was decoded as a whole."""

_WRITTEN_OUT = re.compile(
    r"\s*(?:(?:\[\s*)?\{\s*(['\"])(?:type|text|role|content)\1\s*:|(['\"])(?=[^\n\\]*\\)[^\n]*\2\s*\Z)"
)
"""Matches what a message or a list of parts begins with, or a text in quotes with an escape in it."""

_ASKERS = ("user", "human", "prompter")
_SPEAKER = re.compile(
    r"^(?P<opening>(?:[<\[{]|\*\*|#++)[^\w\s'\"]*+(?:\w+[^\w\s]+)?)\s?"
    rf"(?:(?P<asks>{'|'.join(_ASKERS)})|assistant|chatgpt|gpt|bot|ai|model)\b(?P<closing>[^\w\s]*)",
    re.IGNORECASE | re.MULTILINE,
)
"""Matches a mark that names a speaker: `<extra_id_1>User`, `[|AI|]`, `### Human:`."""

_OTHERS = {"user": (), "assistant": FOREIGN_MARKS}
"""What marks begin with that have a rule of their own in what is trained."""

_BEGINS_LINE = re.compile(r"\n(?:[<\[{#]|\*\*)")
_LAST_LETTERS = (":", "]", ">", "}", "*", "assistant", "model", "gpt", "bot", "ai")
_LONGEST_NAME = 9
_LONGEST_END = 200


def framed(text: str) -> tuple[re.Match[str], re.Match[str]] | None:
    """Return where the frame of a question begins and ends; None if it has none."""
    if not text.rstrip()[-_LONGEST_NAME:].lower().endswith(_LAST_LETTERS):  # nearly always
        return None
    ends = _ENDS.search(text, max(0, len(text) - _LONGEST_END))
    begins = _BEGINS.search(text, 0, ends.start()) if ends else None
    turns = [] if begins else headers_in(text)
    if turns and turns[-1].end() == len(text.rstrip()) and not turns[-1]["asks"]:
        begins, ends = turns[0], turns[-1]
    return (begins, ends) if begins and ends and text[begins.end() : ends.start()].strip() else None


def begin_of_prompt(text: str) -> str:
    """Return the header of a question, or of what a system says, with which a text begins; nothing without one."""
    begun = _BEGINS.match(text.lstrip())
    return begun[0].strip() if begun else (_header_of(text, "user") or _header_of(text, "system")).strip()


def headers_in(text: str) -> list[re.Match[str]]:
    """Return the marks of one form with which lines of a text begin, if they name in turn who asks and who answers.

    The form is that of the last one. In a heading or in bold, a name is that of a speaker if a colon follows it. Code
    may show such marks.
    """
    if not _BEGINS_LINE.search(text) or not any(map(text.lower().__contains__, _ASKERS)):
        return []  # nearly always
    found = [each for each in _SPEAKER.finditer(text) if each["opening"][0] in "<[{" or ":" in each["closing"]]
    form = (found[-1]["opening"].lower(), found[-1]["closing"]) if len(found) > 1 else None
    turns = [each for each in found if (each["opening"].lower(), each["closing"]) == form]
    alternate = all(bool(one["asks"]) != bool(other["asks"]) for one, other in itertools.pairwise(turns))
    return turns if len(turns) > 1 and alternate and "```" not in text else []


def _header_of(text: str, role: str) -> str:
    """Return the header of its role that a text begins with, white space before it included; nothing without one."""
    found = _HEADERS[role].match(text)
    if found is None and (begin := len(text) - len(text.lstrip())) < len(text) and text[begin] in "<[":
        named = _SPEAKER.match(text, begin)
        is_own = named is not None and bool(named["asks"]) == (role == "user") and role != "system"
        is_mark = named is not None and (":" in named["closing"] or "|" in named[0] or ">" in named["opening"])
        found = named if is_own and is_mark and not text.startswith(_OTHERS[role], begin) else None
    return text[: found.end()] if found else ""


def is_header(label: str, role: str) -> bool:
    """Whether a label before a text is the header of a role."""
    return bool(_header_of(f"{label} …", role))


def begins_with_system(text: str) -> bool:
    """Whether a text begins with the header of what a system says, which is no part of a question."""
    return bool(_header_of(text, "system"))


def _turns_within(text: str, role: str) -> list[str]:
    """Return the headers of the last two turns in what a role says; nothing if there are none.

    Who asks may quote a talk that ends with an answer. An answer may tell one, under names in bold or in brackets.
    """
    headers = headers_in(text)
    if not headers or (role == "user" and not headers[-1]["asks"]):
        return []
    is_told = role == "assistant" and "<" not in headers[0]["opening"] and "|" not in headers[0]["opening"]
    return [] if is_told else [each[0].strip() for each in headers[-2:]]


def _text_of_written(text: str, role: str) -> str | None:
    """Return the text that is written out, or that of a role's message or of its parts; None if nothing is."""
    begun = _WRITTEN_OUT.match(text)
    if begun is None:  # nearly always
        return None
    try:
        value = msgspec.json.decode(text) if '"' in begun.groups() else ast.literal_eval(text.strip())
    except (ValueError, msgspec.DecodeError, SyntaxError, MemoryError, RecursionError):
        return None
    if isinstance(value, Mapping):
        value = value.get("content") if value.get("role") == role else None
    parts = [_text_of_part(part) for part in value] if isinstance(value, list) else [value]
    return "".join(filter(None, parts)) if parts and all(isinstance(part, str) for part in parts) else None


def _without_end(text: str) -> str:
    """Return a text without the stop token of another model that it may end with."""
    end = next(filter(text.rstrip().endswith, FOREIGN_ENDS), None)
    return text if end is None else text.rstrip().removesuffix(end)


def _declared(text: Any) -> str | None:
    """Return the header behind which a text has nothing but a list of definitions of tools, as JSON."""
    header = _HEADERS["system"].match(text) if type(text) is str else None
    if header is None:  # nearly always
        return None
    try:
        value = msgspec.json.decode(_without_end(text[header.end() :]))
    except (ValueError, msgspec.DecodeError, RecursionError):
        return None
    are_tools = isinstance(value, list) and value and all(function_of(each).get("name") for each in value)
    return header[0].strip() if are_tools else None


def _text_of_part(part: Any) -> Any:
    return part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None


def unframed(sample: Sample, recipe: Recipe) -> Sample | Rejection:
    """Return a sample if no text of it has a frame; by ``rows.wrapped: unwrap``, without them, unless others stand in
    between. By ``supervision.control_tokens: allow``, frames that stay are words.

    What stands before the header of a question stays, but for what a system says under a header of its own: such a row
    is rejected. An answer loses the end of a turn as well, and the white space
    that followed its header.
    """
    first = sample.messages[0] if sample.messages else None
    declared = _declared(first.fields.get("content")) if first is not None and first.role == "system" else None
    if declared is not None:
        reason = f"messages[0]: its text is definitions of tools behind '{declared}'; they belong in `tools`"
        return Rejection(row=sample.row, code="wrapped_twice", reason=reason, message=0)
    unwrap, are_words = recipe.rows.wrapped == "unwrap", recipe.supervision.control_tokens == "allow"
    plain = {} if are_words and not unwrap else _plain_texts(sample, unwrap=unwrap)
    if isinstance(plain, Rejection):
        return sample if are_words else plain
    if not plain:
        return sample
    messages = []
    for k, message in enumerate(sample.messages):
        text = plain.get(k, message.fields.get("content") if message.role == "assistant" else None)
        fields = {**message.fields, "content": text.strip()} if isinstance(text, str) else message.fields
        messages.append(msgspec.structs.replace(message, fields=fields))
    return msgspec.structs.replace(sample, messages=tuple(messages))


def _plain_texts(sample: Sample, *, unwrap: bool) -> dict[int, str] | Rejection:
    """Return the texts of a sample, by message, that are others without their frames."""
    plain: dict[int, str] = {}
    for k, message in enumerate(sample.messages):
        role, text = message.fields["role"], message.fields.get("content")
        if type(text) is not str:
            continue
        if role == "assistant" and unwrap and (bare := _without_end(text)) != text:
            text = plain[k] = bare
        if role == "user" and (frame := framed(text)):
            begins, ends = frame
            shown = f"stands between '{begins[0].strip()}' and '{ends[0].strip()}', as in a prompt of another model"
            plain[k] = _SYSTEM.sub("", text[: begins.start()] + text[begins.end() : ends.start()].strip())
        elif role in _HEADERS and (header := _header_of(text, role)) and (inner := text[len(header) :]).strip():
            shown = f"begins with '{header.strip()}', the header of a turn"
            inner = _without_end(inner) if role != "assistant" else _CLOSED.sub("", inner)
            plain[k] = _SYSTEM.sub("", inner) if "SYS" in header else inner
        elif role in _HEADERS and (said := _text_of_written(text, role)):
            shown, plain[k] = "is written out as JSON or Python", said
        elif "\n" in text and role in ("user", "assistant") and (headers := _turns_within(text, role)):
            shown, plain[k] = f"has several turns, with the headers '{headers[0]}' and '{headers[1]}'", text
        else:
            continue
        is_framed = _header_of(plain[k], role) or _BEGINS.search(plain[k]) or _LINE.search(plain[k])
        has_system = role == "user" and begins_with_system(plain[k])
        is_alone = not (is_framed or headers_in(plain[k]) or has_system)
        if not (unwrap and is_alone):
            more = "; what a system says before it belongs in a message of its own" * has_system
            reason = f"messages[{k}]: its text {shown}; the template has its own{more}"
            return Rejection(row=sample.row, code="wrapped_twice", reason=reason, message=k)
    return plain
