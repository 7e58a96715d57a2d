"""Schema `preference`: two answers to one request, one chosen and one rejected.

A pair is read as two rows of another schema, one with each answer, by that schema's own reader: text answers to a text
prompt are completions, all others are chats. The common beginning of the two chats, compared message by message and
never by characters, is the context, which is not trained. After it, each chat continues with an answer of the
assistant's.
"""

import math
import re
from collections.abc import Callable
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from packer.batches import Message, Preference, Sample, has_content, num_common_messages
from packer.source import alpaca, chat, completion, sharegpt
from packer.source.chat import with_flag
from packer.source.decode import Refused, as_number, coalesce_aliases, decoded_json, parse_cell_json, type_name
from packer.source.roles import CALL_ROLES, ROLES
from packer.source.row import ID_FIELDS, RowFields, RowSchema
from packer.source.unsupported_rows import CHOSEN_FIELDS, PREFERENCE_FIELDS, REJECTED_FIELDS, is_preference

Turns: TypeAlias = list[Any]
"""Messages as they are in a row."""

Messages: TypeAlias = tuple[Message, ...]

_CONTEXT_FIELDS = ("prompt", "conversations", "conversation", "messages")
"""Fields that may contain the messages before the answers."""

_OF_REQUEST = ("messages", "tools", "functions")
"""Fields of a request that pairs of OpenAI and Together have in `input`; its others are settings."""

_ALPACA_FIELDS = ("instruction", "query", "input", "context", "history")
_SCORES = (
    ("score_chosen", "score_rejected"),
    ("chosen_score", "rejected_score"),
    ("chosen_rating", "rejected_rating"),
    ("rating_chosen", "rating_rejected"),
    ("chosen-rating", "rejected-rating"),
    ("chosen_avg_rating", "rejected_avg_rating"),
)
_AS_ALPACA = {"instruction": "prompt"}
"""Columns that make a pair of texts one of schema `alpaca`, which has a place for all that a chat has."""

_IDENTICAL = "`chosen` and `rejected` say the same"
_SPEAKER_PATTERN = re.compile(r"\n\n(Human|Assistant):")
_REQUEST_START = re.compile(r"\s*\{(?=.*[\"']messages[\"'])", re.DOTALL)
_MESSAGE_KEYS = ({"from", "value"}, {"role", "content"})

_SHARED_FIELDS = {*RowFields.__struct_fields__, *ID_FIELDS, *_ALPACA_FIELDS}
"""Fields that apply to both answers, except the messages or the text before them."""


class _PairRows(NamedTuple):
    """A pair as two rows: the function that reads them, the field in which they differ, and its two values."""

    read: Callable[[dict[str, Any], int], Sample]
    field: str
    chosen: str | Turns
    rejected: str | Turns


def read(row: dict[str, Any], number: int) -> Sample:
    """``{"prompt": …, "chosen": …, "rejected": …}``, and the other forms of docs/how-to/inputs.md."""
    given, row = row, _with_request(row)
    shared_fields = {name: row[name] for name in row if name in _SHARED_FIELDS}
    prompt = given_prompt if isinstance(given_prompt := row.get("prompt"), str) and given_prompt.strip() else None
    rows = _pair_rows(row, prompt, given)
    if rows.read is completion.read:
        shared_fields["prompt"] = prompt
    chosen, rejected = (_side(name, rows, shared_fields, number) for name in ("chosen", "rejected"))
    if chosen.kind == "chat":
        num_common = num_common_messages(chosen.messages, rejected.messages)
        ours, theirs = chosen.messages[num_common:], rejected.messages[num_common:]
        context = _pair_context(chosen.messages[:num_common], ours, theirs, prompt)
        rejected = msgspec.structs.replace(chosen, messages=context + theirs)
        chosen = msgspec.structs.replace(chosen, messages=context + ours)
    elif chosen.text == rejected.text:
        raise Refused("pair_identical", _IDENTICAL)
    _refuse_better_rejected(row)
    return msgspec.structs.replace(chosen, preference=Preference(rejected=rejected))


def _with_request(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with the messages and tools of its `input` as its own, if it is OpenAI's."""
    request: Any = row.get("input")
    is_one = isinstance(request, dict) or (isinstance(request, str) and _REQUEST_START.match(request) is not None)
    if not is_one or row.get("preferred_output") is None or row.get("instruction") or row.get("query"):
        return row
    if isinstance(request, str):  # a cell of CSV
        request = parse_cell_json(request, "input")
    own = next((name for name in _OF_REQUEST if row.get(name) and request.get(name)), None)
    if own is not None:
        raise Refused("wrong_type", f"`{own}` both in `input` and beside it")
    moved = {name: request[name] for name in _OF_REQUEST if request.get(name)}
    return {name: value for name, value in row.items() if name != "input"} | moved


def _side(name: Literal["chosen", "rejected"], rows: _PairRows, shared_fields: dict[str, Any], number: int) -> Sample:
    try:
        return rows.read({**shared_fields, rows.field: getattr(rows, name)}, number)
    except Refused as refused:
        raise Refused(refused.code, f"with the answer of `{name}`: {refused.reason}") from None


def _pair_rows(row: dict[str, Any], prompt: str | None, given: dict[str, Any]) -> _PairRows:
    raw, is_alpaca = row.get("prompt"), bool(row.get("instruction") or row.get("query"))
    if raw is not None and not isinstance(raw, str | list):
        raise Refused("wrong_type", f"expected `str | array`, got `{type_name(raw)}` at $.prompt")
    chosen, rejected = _answers(row, are_texts=is_alpaca or prompt is not None)
    context = _context_messages(row, chosen)
    if is_alpaca and (context or not isinstance(chosen, str)):
        reason = "`instruction` goes with texts; `columns: {prompt: instruction}` takes it as the prompt of messages"
        raise Refused("wrong_type", reason)
    if is_alpaca:
        return _PairRows(alpaca.read, "output", chosen, rejected)
    if isinstance(chosen, str) and isinstance(rejected, str):
        are_transcripts = chosen.startswith("\n\nHuman:") and rejected.startswith("\n\nHuman:")
        if not context and not are_transcripts:
            if prompt is None:
                reason = "texts without a prompt that do not begin as transcripts do, with `\\n\\nHuman:`"
                raise Refused("pair_no_prompt", f"`chosen` and `rejected` are {reason}")
            completion.refuse_chat_fields(row, columns=_AS_ALPACA)
            return _PairRows(completion.read, "completion", chosen, rejected)
        chosen, rejected = ((_parse_transcript if are_transcripts else _as_turns)(text) for text in (chosen, rejected))
    return _chats(given, context, prompt, _as_turns(chosen), _as_turns(rejected))


def _answers(row: dict[str, Any], *, are_texts: bool) -> tuple[str | Turns, str | Turns]:
    """Return both answers as texts, or both as messages.

    `are_texts`: a text is an answer as it is, and not the JSON of messages. ms-swift has the chosen answer at the end
    of `messages`.
    """
    rejected = _answer(row, REJECTED_FIELDS, are_texts=are_texts)
    chosen: str | Turns
    messages = row.get("messages")
    if messages and isinstance(messages, list) and all(row.get(name) is None for name in CHOSEN_FIELDS):
        if isinstance(rejected, str):
            rejected = _as_turns(rejected)
            messages = messages[-1:]
        chosen = messages
    else:
        chosen = _answer(row, CHOSEN_FIELDS, are_texts=are_texts)
    if isinstance(chosen, str) != isinstance(rejected, str):
        reason = f"`chosen` is `{type_name(chosen)}`, but `rejected` is `{type_name(rejected)}`"
        raise Refused("wrong_type", reason)
    return chosen, rejected


def _answer(row: dict[str, Any], names: tuple[str, ...], *, are_texts: bool) -> str | Turns:
    value: Any = coalesce_aliases({name: row[name] for name in names if name in row}, where="$")
    if isinstance(value, str) and not are_texts:
        value = _parse_turns(value)
    if not value or (isinstance(value, str) and value.isspace()):
        raise Refused("pair_empty_side", f"`{names[0]}` is empty")
    if not isinstance(value, str | list | dict):
        raise Refused("wrong_type", f"expected `str | object | array`, got `{type_name(value)}` at $.{names[0]}")
    return [value] if isinstance(value, dict) else value


def _context_messages(row: dict[str, Any], chosen: str | Turns) -> Turns:
    """Return the messages before the answers, without the chosen answer that `messages` may end with."""
    answer = _as_turns(chosen)
    lists = {name: row[name] for name in _CONTEXT_FIELDS if isinstance(row.get(name), list)}
    messages = lists.get("messages", [])
    if messages[-len(answer) :] == answer:
        lists["messages"] = messages[: -len(answer)]
    return coalesce_aliases(lists, where="$") or []


def _chats(row: dict[str, Any], context: Turns, prompt: str | None, chosen: Turns, rejected: Turns) -> _PairRows:
    """Return the pair as two whole chats: the opening followed by each answer, unless both answers contain it."""
    if context and chosen[: len(context)] == rejected[: len(context)] == context:
        context = []
    speakers = {_speaker(chosen[0]), _speaker(rejected[0])}
    if prompt is not None and not context and speakers == {"assistant"}:
        context = [{"role": "user", "content": prompt}]
    if context and not speakers.isdisjoint({"system", "user"}):
        name = next((name for name in _CONTEXT_FIELDS if isinstance(row.get(name), list)), "input")
        reason = f"the answers neither open with a message of the assistant's nor repeat the messages of `{name}`"
        if name != "input" or not ("tools" in str(row[name]) or "functions" in str(row[name])):  # which would be lost
            reason += f"; `columns: {{{name}: null}}` passes over those"
        raise Refused("pair_context_differs", reason)
    chosen, rejected = [*context, *chosen], [*context, *rejected]
    names = set().union(*(turn for turn in (*chosen, *rejected) if isinstance(turn, dict)))
    if "from" in names and "human" not in names:  # not exchanges, whose turns are two messages
        return _PairRows(sharegpt.read, "conversations", chosen, rejected)
    return _PairRows(chat.read, "messages", chosen, rejected)


def _pair_context(shared: Messages, ours: Messages, theirs: Messages, prompt: str | None) -> Messages:
    """Check the two answers after what both chats share, and return that as their context, not trained.

    `prompt` is a text that may repeat the first or the last user message before the answers.
    """
    if not ours and not theirs:
        raise Refused("pair_identical", _IDENTICAL)
    if any(answer and answer[0].role != "assistant" for answer in (ours, theirs)):
        reason = f"they differ first in messages[{len(shared)}], which is not the assistant's on both sides"
        raise Refused("pair_context_differs", reason)
    refuse_empty_answer(ours, "the answer of `chosen` is empty")
    refuse_empty_answer(theirs, "the answer of `rejected` is empty")
    context = untrained_context(shared)
    if prompt is not None:
        user_texts = [message.fields["content"].strip() for message in context if message.role == "user"]
        if prompt.strip() not in {*user_texts[:1], *user_texts[-1:]}:
            reason = "`prompt` is neither the first nor the last that the user says before the answers"
            raise Refused("pair_context_differs", reason)
    return context


def untrained_context(messages: Messages) -> Messages:
    """Return the messages before a compared or rated answer, none of them trained."""
    if not any(message.role in {"user", "tool"} for message in messages):
        raise Refused("pair_no_prompt", "no user message precedes the answer")
    return tuple(with_flag(message, trained=False) for message in messages)


def refuse_empty_answer(answer: Messages, reason: str) -> None:
    """Refuse an answer in which the assistant has no text, no call and no reasoning."""
    for message in answer:
        if message.role == "assistant" and has_content(message.fields):
            return
    raise Refused("pair_empty_side", reason)


def _as_turns(answer: str | Turns) -> Turns:
    return [{"role": "assistant", "content": answer}] if isinstance(answer, str) else answer


def _parse_turns(text: str) -> Any:
    """Return the message or messages whose JSON a cell of a table contains, or the text if it is not that."""
    value = decoded_json(text)
    messages = value if isinstance(value, list) else [value]
    are_messages = all(
        isinstance(each, dict) and any(keys <= each.keys() for keys in _MESSAGE_KEYS) for each in messages
    )
    return value if messages and are_messages else text


def _parse_transcript(text: str) -> Turns:
    r"""Return the messages of a transcript in the form of the HH datasets; the space after a speaker's name is dropped.

    Example:
        >>> _parse_transcript("\n\nHuman: Hi\n\nAssistant: Hello")
        [{'role': 'user', 'content': 'Hi'}, {'role': 'assistant', 'content': 'Hello'}]
    """
    _, *parts = _SPEAKER_PATTERN.split(text)
    return [
        {"role": "user" if speaker == "Human" else "assistant", "content": content.removeprefix(" ")}
        for speaker, content in zip(parts[::2], parts[1::2], strict=True)
    ]


def _speaker(turn: Any) -> str | None:
    """Return the role of a raw message; None for one that its reader will refuse."""
    name = (turn.get("from") or turn.get("role")) if isinstance(turn, dict) else None
    if not isinstance(name, str):
        return None
    return "assistant" if name in CALL_ROLES else ROLES.get(name.lower())


def _refuse_better_rejected(row: dict[str, Any]) -> None:
    """Refuse a pair of which a `margin`, or else two scores, say that the rejected answer is better."""
    present = ((name, other) for name, other in _SCORES if {name, other} <= row.keys())
    scored = ((name, as_number(row[name]) - as_number(row[other])) for name, other in present)
    for name, margin in (("margin", as_number(row.get("margin"))), *scored):
        if margin < 0:
            reason = f"by `{name}`, the rejected answer is better by {-margin:g}"
            raise Refused("wrong_type", f"{reason}; `columns: {{{name}: null}}` takes the row without it")
        if not math.isnan(margin):
            return


SCHEMA = RowSchema(
    needs=((*CHOSEN_FIELDS, "messages"), REJECTED_FIELDS),
    rows=(RowFields,),
    extra_fields=(*PREFERENCE_FIELDS, *_CONTEXT_FIELDS, *_ALPACA_FIELDS),
    checked_fields=("margin", *chain(*_SCORES)),
    read=read,
    help="`chosen` and `rejected` (also `chosen_messages`, `chosen_response` and so on) after a `prompt`, all texts "
    "or all messages; or with the whole conversation in each of them; or after `messages`, `conversations` or "
    "`instruction`; or `preferred_output` and `non_preferred_output` after an `input` with `messages`; `margin`, or "
    "scores as `score_chosen` and `score_rejected`; `tools`, `system`, `chat_template_kwargs`, `id`",
    compares="pairs",
    accepts=is_preference,
    json_fields=("chosen_messages", "rejected_messages"),
    message_fields=("prompt", "chosen", "rejected", "preferred_output", "non_preferred_output"),
)
