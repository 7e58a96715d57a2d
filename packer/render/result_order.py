"""Results of tools in the order of their calls, for templates by which nobody could tell which result is whose.

A row may have the results of parallel calls in any order, each with the id of its call. Most templates write no ids. If
the results came back in another order, the model would then see those of `a` and `b` as those of `b` and `a`: two rows
that mean different things would have one context. So they are put into the order of the calls, as some templates (Kimi
K3, GLM 5.3) do by themselves.

Whether a template tells results apart is tried: two calls of different tools are rendered with their results, and again
with the ids of the results exchanged. If nothing changes, it does not. Of results without ids, the names of their tools
are all that it could tell them by, or put in order.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from packer.render.call_ids import with_short_ids
from packer.render.environment import ChatTemplate, RenderError

_IDS = ("a00000001", "b00000002")
"""Of nine letters and digits, as Mistral's templates want them."""


def tells_results_apart(template: ChatTemplate, key: str, kwargs: Mapping[str, Any]) -> bool:
    """Whether a rendering changes if two results exchange what they have under a key: `tool_call_id` or `name`.

    True for a template that takes none. Arguments are tried as objects, and as JSON for templates that add strings.
    `kwargs` are variables of the recipe.
    """
    for form in (dict, json.dumps):
        texts = []
        for calls in ((0, 1), (1, 0)):
            messages = _answered_calls(form, calls, key)
            try:
                texts.append(template.render(messages, tools=None, add_generation_prompt=False, kwargs=kwargs))
            except RenderError:
                break
        else:
            return texts[0] != texts[1]
    return True


def _answered_calls(form: Callable[[dict[str, str]], Any], answered: Sequence[int], key: str) -> list[dict[str, Any]]:
    """Return a chat with two calls, whose arguments have a form, and with results that say by a key whose they are."""
    functions = [{"name": f"tool_{each[0]}", "arguments": form({"key": each[0]})} for each in _IDS]
    calls = [{"id": each, "type": "function", "function": own} for each, own in zip(_IDS, functions, strict=True)]
    said = {"tool_call_id": _IDS, "name": [each["name"] for each in functions]}[key]
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
