"""Which result belongs to which call: other ids (`rows.call_ids`), and results in the order of their calls.

Ids are for templates that do not take those of the rows. `short`: nine letters and digits. Mistral's templates take no
others: OpenAI's ids (`call_` and 24 letters) and rows without ids make them raise an error. `named`:
`functions.look:0`, with the number of the call in its conversation, as servers of Kimi K2 give them. Its template
writes the id in place of the name. Another template of Kimi K2 makes such ids of its own, with the number of the call
in its message, and writes those of the rows at results alone: these must then have the ids that it makes.

Without ids, templates that compare them give a result to the last call, or to the first, or write an empty id. A server
has given each call one, so rows that lack some get short ids for such a template, whatever the key says.

Order is for templates by which nobody could tell which result is whose. A row may have the results of parallel calls in
any order, each with the id of its call. Most templates write no ids. If the results came back in another order, the
model would then see those of `a` and `b` as those of `b` and `a`: two rows that mean different things would have one
context. So they are put into the order of the calls, as some templates (Kimi K3, GLM 5.3) do by themselves.
"""

import functools
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from packer.render.environment import ChatTemplate, RenderError

_LENGTH = 9
_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SHORT = re.compile(rf"[0-9A-Za-z]{{{_LENGTH}}}")
_RESULT_KEYS = ("tool_call_id", "call_id")

NAMED = re.compile(r"functions\.(?P<name>.+):(?P<number>\d+)", re.DOTALL)
"""Matches an id that names the function."""

_TWO_IDS = ("a00000001", "b00000002")
"""Of nine letters and digits, as Mistral's templates want them."""


def named_id(name: str, number: int) -> str:
    """Return the id of a call, of which the number is counted from 0."""
    return f"functions.{name}:{number}"


def with_short_ids(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with ids of nine letters and digits, in calls and in their results alike.

    Ids of that form are kept. Any other is replaced by a hash of the id and of the first call that has it, so that a
    model does not memorize nine letters for `call_1` that are the same in every row. Equal ids stay equal, and
    different ones different. A call without an id gets one. A result without an id gets that of the first unanswered
    call, of the tool it names if it names one.

    Worked example: of two calls without ids to `a` and `b`, a result with the name `b` and then one without a name get
    the ids of the second and of the first call.
    """
    ids = _Ids(messages)
    return [_renamed(message, ids) for message in messages]


def with_named_ids(messages: Sequence[Mapping[str, Any]], *, by_message: bool = False) -> list[dict[str, Any]]:
    """Return the messages with ids that are made of the names and numbers of calls, in their results alike.

    `by_message`: the calls of each message are numbered anew.
    """
    ids = _Ids(messages, are_named=True, by_message=by_message)
    return [_renamed(message, ids) for message in messages]


class _OpenCall(NamedTuple):
    """A call without a result so far."""

    name: str
    given: str
    """The id that the row gives it."""

    short: str


class _Ids:
    """The ids of one conversation, assigned in the order of its messages."""

    def __init__(
        self, messages: Sequence[Mapping[str, Any]], *, are_named: bool = False, by_message: bool = False
    ) -> None:
        self._are_named = are_named
        self._by_message = by_message
        self._short: dict[str, str] = {}
        self._open: list[_OpenCall] = []
        given = {_id_of(call) for message in messages for call in message.get("tool_calls") or ()}
        given |= {_result_id(message) for message in messages}
        self._taken = {name for name in given if _SHORT.fullmatch(name)}
        self._number = 0

    def of_call(self, call: Mapping[str, Any], place: int) -> str:
        """Return the id for a call, which has a place in its message."""
        self._number += 1
        given, function = _id_of(call), call["function"]
        if self._are_named:  # those that the row has may be used again, in a later turn or beside each other
            number = place if self._by_message else self._number - 1
            short = self._short[given] = named_id(function["name"], number)
        else:
            short = self._of(given, function) if given else self._new([self._number, function])
        self._open.append(_OpenCall(name=str(function.get("name")), given=given, short=short))
        return short

    def of_result(self, message: Mapping[str, Any]) -> str | None:
        """Return the id for a tool result; None if there is no call to answer."""
        given = _result_id(message)
        calls = [each for each in self._open if not given or each.given == given]
        if given and not (calls and self._are_named):
            short = self._of(given, None)
            self._open = [each for each in self._open if each.short != short]
            return short
        call = next((each for each in calls if each.name == message.get("name")), calls[0] if calls else None)
        if call is None:
            return None
        self._open.remove(call)
        return call.short

    def _of(self, given: str, function: Any) -> str:
        if given not in self._short:
            self._short[given] = given if _SHORT.fullmatch(given) else self._new([given, function])
        return self._short[given]

    def _new(self, of: Any) -> str:
        """Return a hash that differs from every other id of the conversation."""
        for attempt in range(len(self._taken) + 1):
            text = json.dumps([attempt, of], sort_keys=True, ensure_ascii=False)
            number = int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
            short = "".join(_LETTERS[number // 62**place % 62] for place in range(_LENGTH))
            if short not in self._taken:
                break
        self._taken.add(short)
        return short


def _renamed(message: Mapping[str, Any], ids: _Ids) -> dict[str, Any]:
    changed = dict(message)
    if message.get("tool_calls"):
        calls = message["tool_calls"]
        changed["tool_calls"] = [{**call, "id": ids.of_call(call, place)} for place, call in enumerate(calls)]
    if message["role"] == "tool":
        short = ids.of_result(message)
        if short is not None:
            changed |= dict.fromkeys([key for key in _RESULT_KEYS if key in message] or _RESULT_KEYS[:1], short)
    return changed


def _id_of(call: Mapping[str, Any]) -> str:
    return str(call.get("id") or "")


def _result_id(message: Mapping[str, Any]) -> str:
    return next((str(message[key]) for key in _RESULT_KEYS if message.get(key)), "")


def _lacks_ids(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether one of the calls, or a result, has no id."""
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    results = [message for message in messages if message["role"] == "tool"]
    return bool(calls) and not (all(map(_id_of, calls)) and all(map(_result_id, results)))


def _mistakes_missing_ids(template: ChatTemplate, kwargs: Mapping[str, Any]) -> bool:
    """Whether a template that tells results apart by their ids takes results without one, and mistakes them."""
    chats = (_answered_calls(form, (0, 1), "name") for form in (dict, json.dumps))
    takes_any = any(template.attempt(chat, kwargs=kwargs) is not None for chat in chats)
    return takes_any and tells_results_apart(template, "tool_call_id", kwargs)


def _numbers_by_message(template: ChatTemplate, kwargs: Mapping[str, Any]) -> bool | None:
    """Whether a template that makes the ids of calls, and not those of results, numbers the calls of each message anew.

    None for all other templates.
    """
    given = ("c00000003", "d00000004")
    for form in (dict, json.dumps):
        question, asking = _answered_calls(form, (), "tool_call_id")
        chat = [question]
        for call, own in zip(asking["tool_calls"], given, strict=True):
            chat += [{**asking, "tool_calls": [call]}, {"role": "tool", "tool_call_id": own, "content": "Result."}]
        text = template.attempt(chat, kwargs=kwargs)
        if text is not None:
            is_made = all(each in text for each in given) and not any(each in text for each in _TWO_IDS)
            made = [number for number in (0, 1) if is_made and named_id(f"tool_{_TWO_IDS[1][0]}", number) in text]
            return made[0] == 0 if made else None
    return None


def tells_results_apart(template: ChatTemplate, key: str, kwargs: Mapping[str, Any]) -> bool:
    """Whether a rendering changes if two results exchange what they have under a key: `tool_call_id` or `name`.

    Of results without ids, the names of their tools are all that a template could tell them by. True for a template
    that takes none. Arguments are tried as objects, and as JSON for templates that add strings.
    `kwargs` are variables of the recipe.
    """
    for form in (dict, json.dumps):
        one, other = (template.attempt(_answered_calls(form, each, key), kwargs=kwargs) for each in ((0, 1), (1, 0)))
        if one is not None and other is not None:
            return one != other
    return True


def _answered_calls(form: Callable[[dict[str, str]], Any], answered: Sequence[int], key: str) -> list[dict[str, Any]]:
    """Return a chat with two calls, whose arguments have a form, and with results that say by a key whose they are."""
    functions = [{"name": f"tool_{each[0]}", "arguments": form({"key": each[0]})} for each in _TWO_IDS]
    calls = [{"id": each, "type": "function", "function": own} for each, own in zip(_TWO_IDS, functions, strict=True)]
    said = {"tool_call_id": _TWO_IDS, "name": [each["name"] for each in functions]}[key]
    return [
        {"role": "user", "content": "Which?"},
        {"role": "assistant", "content": "", "tool_calls": calls},
        *({"role": "tool", key: said[call], "content": f"Result {k}."} for k, call in enumerate(answered)),
    ]


def in_order_of_calls(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with the results after each message with calls in the order of these calls.

    A result without an id belongs to a call as :func:`with_short_ids` has it. Results of which one belongs to no call
    of that message stay as they are.
    """
    ordered = list(messages)
    for k, message in enumerate(messages):
        if len(message.get("tool_calls") or ()) < 2:
            continue
        stop = k + 1
        while stop < len(messages) and messages[stop]["role"] == "tool":
            stop += 1
        if stop < k + 3:
            continue
        asked, *answered = with_short_ids(messages[k:stop])
        places = {call["id"]: place for place, call in reversed([*enumerate(asked["tool_calls"])])}
        of_results = [result.get("tool_call_id") or result.get("call_id") for result in answered]
        if places.keys() >= {*of_results}:
            in_order = sorted(range(len(answered)), key=lambda place: places[of_results[place]])
            ordered[k + 1 : stop] = [messages[k + 1 + place] for place in in_order]
    return ordered


class CallIds:
    """Gives calls and results ids that a template takes, and results the order of their calls where it needs that.

    Templates are tried when a row first needs it, and once.
    """

    def __init__(self, form: Literal["short", "named", "as_given"] | None, kwargs: Mapping[str, Any]) -> None:
        """`form`: `rows.call_ids`; `kwargs`: variables of the recipe."""
        self._form = form
        self._tells_apart = functools.cache(functools.partial(tells_results_apart, kwargs=kwargs))
        self._mistakes = functools.cache(functools.partial(_mistakes_missing_ids, kwargs=kwargs))
        self._by_message = functools.cache(functools.partial(_numbers_by_message, kwargs=kwargs))

    def given(self, messages: list[dict[str, Any]], template: ChatTemplate) -> list[dict[str, Any]]:
        """Return the messages as the template gets them."""
        ordered = in_order_of_calls(messages)
        if ordered != messages:
            have_ids = all(each.get("tool_call_id") for each in messages if each["role"] == "tool")
            keys = ["tool_call_id"] if have_ids else ["tool_call_id", "name"]
            messages = messages if all(self._tells_apart(template, key) for key in keys) else ordered
        if self._form == "named":
            return with_named_ids(messages, by_message=self._by_message(template) is True)
        if self._form == "short" or (_lacks_ids(messages) and self._mistakes(template)):
            return with_short_ids(messages)
        return messages

    def refusal(self, messages: Sequence[Mapping[str, Any]], template: ChatTemplate) -> RenderError | None:
        """Return why messages with ids cannot be rendered: a result would show another one than its call."""
        results = [k for k, message in enumerate(messages) if message["role"] == "tool"]
        by_message = self._by_message(template) if results else None
        if by_message is None:
            return None
        made = with_named_ids(messages, by_message=by_message)
        for k in results:
            shown, right = _result_id(messages[k]), _result_id(made[k])
            if shown != right:
                reason = f"messages[{k}]: the template writes the id {shown!r} here, and {right!r} at the call"
                return RenderError(reason, code="mangled_call", message=k)
        return None
