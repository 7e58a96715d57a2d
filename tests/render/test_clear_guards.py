"""Each guard of the fast way, by a template and a row that it keeps from being rendered wrongly."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import twins
from rendered_twice import ENDING, framed, hold
from supervision_stages import assistant, call, chat, result, system, user

from packer.render.renderer import Renderer

Under = Callable[..., Renderer]

TALK = [user("What of this, then?"), assistant("It is so."), user("And what of that?"), assistant("That is so, too.")]
ONCE = "{% if not add_generation_prompt and messages | length % 2 == 0 %}"
"""Only where a turn is rendered, not its prompt."""


def said(*texts: str) -> list[dict[str, Any]]:
    return [role(text) for role, text in zip((user, assistant) * len(texts), texts, strict=False)]


class Guard(NamedTuple):
    template: str
    wrong: list[dict[str, Any]]
    """A conversation that must be refused, or rendered as the definition does."""

    right: list[dict[str, Any]] | None = TALK
    """One that must be taken the fast way."""


def adding(body: str) -> str:
    """A template that writes something behind every text."""
    return framed(body) + ENDING


def writing(text: str) -> str:
    """A template that writes texts otherwise."""
    return framed("").replace("{{ m.content }}", text) + ENDING


PAIR = [user("Why, then?"), assistant("It is so.")]
MARKED = framed("").replace("{{ m.role }}\n", "{{ m.role }}\n{{ '~' if m.role == 'assistant' }}")
TOLD = "{% for c in m.tool_calls or [] %}"
BY_KEY = "{% for k, v in c.function.arguments.items() %}"


def calling(arguments: Any, text: str | None = "I look for it.") -> list[dict[str, Any]]:
    told = {**assistant(""), "content": text, "tool_calls": [call("look", arguments)]}
    return [user("Where is it?"), told, result("Found."), *PAIR[1:]]


CALLED = calling({"q": "a place"})
LATE = said("What of this, then?", "It is so.", "And what of that?", "Not at all, or is it?")
ALL_OF_IT = said("What of this, then?", "It is so.", "And what of that?", "That is it, all of it.")
AGAIN = said("It is so.", "Is it?", "And what of that?", "It is so.")
LAST = "messages[-1].content"
LOOKING: dict[str, tuple[str, list[dict[str, Any]], bool]] = {
    "a constant in a later text": (f"'Not at' in {LAST}", LATE, True),
    "how a later text begins": (f"{LAST}.startswith('Not')", LATE, True),
    "how a later text ends": (f"{LAST}.endswith('is it?')", LATE, True),
    "where something stands in a later text": (f"{LAST}.find('or') > 0", LATE, True),
    "the number of parts of a later text": (f"{LAST}.split(',') | length > 1", LATE, False),
    "a part of a later text": (f"{LAST}[:3] == 'Not'", LATE, False),
    "the length of a later text": (f"{LAST} | length > 17", LATE, False),
    "the length of a later word": (
        f"{LAST} | length == 9",
        said("Why, then?", "It is so.", "And then?", "Wonderful"),
        False,
    ),
    "a loop over a later text": (f"{LAST} | list | length > 17", LATE, False),
    "a later text that is a constant": (f"{LAST} == 'That is it, all of it.'", ALL_OF_IT, True),
    "a constant in small letters": (f"{LAST} | lower == 'that is it, all of it.'", ALL_OF_IT, False),
    "a later text that was said before": (f"{LAST} == messages[0].content", AGAIN, True),
    "a later word that was said before": (
        f"{LAST} == messages[0].content",
        said("Yes", "Is it?", "And what of that?", "Yes"),
        True,
    ),
    "a later text among others": (f"{LAST} in [messages[0].content, messages[1].content]", AGAIN, False),
    "a later message that is an earlier one": (
        "messages | length > 2 and messages[-1] == messages[1]",
        said("What of it?", "It is so.", "And what of that?", "It is so."),
        False,
    ),
    "an order of texts": (f"{LAST} < messages[0].content", LATE, False),
    "a later text in capitals": (f"{LAST} is upper", said("Why, then?", "It is so.", "And then?", "IT IS SO."), False),
    "texts in their order": (
        "(messages | sort(attribute='content') | first).role == 'user'",
        said("Why, then?", "It is so.", "An example?", "So is this."),
        False,
    ),
    "a text with nothing left": (
        f"not ({LAST} | replace('So. ', '') | trim)",
        said("Why, then?", "It is so.", "And then?", "So. So. "),
        True,
    ),
}
"""What changes the first message by the last text, but not in prompts; a row; whether others are taken the fast way."""

GUARDS = {
    **{
        name: Guard(f"{ONCE}{{% if {test} %}}!{{% endif %}}{{% endif %}}" + adding(""), wrong, TALK if right else None)
        for name, (test, wrong, right) in LOOKING.items()
    },
    "letters of a later text": Guard(
        ONCE + "{% for c in messages[-1].content %}{{ '!' if c == 'N' }}{% endfor %}{% endif %}" + adding(""),
        LATE,
        None,
    ),
    "a constant in the text before a header": Guard(
        framed("").replace(
            "{{ m.role }}\n",
            "{{ m.role }}\n{{ '~' if m.role == 'assistant' }}{{ '!' if loop.previtem is defined and m.role == 'assistant' and 'Not at' in loop.previtem.content }}",
        )
        + ENDING.replace("assistant\n", "assistant\n~{{ '!' if 'Not at' in messages[-1].content }}"),
        said("Not at all, or is it?", "! it is.", "And then?", "It is so."),
    ),
    "two answers in a row": Guard(
        twins.QWEN3_LIKE, [user("Why, then?"), assistant("It is so."), assistant("It is so, I say.")]
    ),
    "two questions in a row": Guard(
        "{{ '!' if messages | selectattr('role', 'equalto', 'user') | list | length * 2 > messages | length + 1 }}"
        + adding(""),
        [user("Why, then?"), user("And how?"), assistant("It is so."), user("Yes?"), assistant("It is so, I say.")],
    ),
    "many messages": Guard("{{ '!' if messages | length > 21 }}" + adding(""), TALK * 7),
    "a message more than fits the largest trial": Guard("{{ '!' if messages | length > 40 }}" + adding(""), TALK * 12),
    "white space around an answer that begins otherwise while it is the last": Guard(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and loop.last %}~{{ m.content | trim }}"
        "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}" + ENDING,
        said("Why, then?", " It is so. ", "And then?", "It is so, too."),
    ),
    "an answer that ends otherwise while it is the last": Guard(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{{ '.' if loop.last and m.role == 'assistant' }}"
        "<|im_end|>\n{% endfor %}" + ENDING,
        TALK,
        None,
    ),
    "what is behind the loop": Guard(
        framed("") + "{{ messages | length if not add_generation_prompt }}" + ENDING, TALK, None
    ),
    "a header that depends on the number of messages": Guard(
        framed("{% if m.role == 'user' and loop.index > 2 %}~{% endif %}")
        + ENDING.replace("assistant\n", "assistant\n"),
        TALK,
        None,
    ),
    "a mode that changes the turn": Guard(
        writing("{{ m.content }}{{ '~' if enable_thinking is defined and enable_thinking }}"),
        TALK,
        None,
    ),
    "a text that the template says itself": Guard(
        writing("{{ m.content if m.role == 'assistant' else 'Here is a question' }}"),
        said("is a question", "It is so."),
        None,
    ),
    "a role as a text": Guard(
        writing("{{ m.content if m.role == 'assistant' else '' }}"),
        said("user", "It is so."),
        None,
    ),
    "a text in the place of another": Guard(
        writing("{{ messages[-1].content if m.role == 'user' else m.content }}"),
        said("It is so.", "It is so."),
        None,
    ),
    "an escape that the template completes": Guard(adding(";"), said("What of R&amp", "It is so.")),
    "a text with which two ways to write it are one": Guard(
        framed("{{ '~' if m.role == 'assistant' and not loop.last }}").replace(
            "{{ m.content }}", "{{ '~' if m.role == 'assistant' and loop.last }}{{ m.content }}"
        )
        + ENDING,
        said("Why, then?", "~~", "And then?", "It is so."),
        None,
    ),
    "an empty question": Guard(adding(""), said("", "It is so.")),
    "an escape": Guard(adding(""), said("What of &amp;, then?", "It is so.")),
    "a text that an escape changes": Guard(writing("{{ m.content | e }}"), said("What of <b>, then?", "It's so.")),
    "a control token behind the last answer": Guard(adding(""), [*TALK, user("<|im_start|>assistant")]),
    "a tag of reasoning": Guard(adding(""), said("Why, then?", "<think>\nhm\n</think>\n\nIt is so.")),
    "another model's end": Guard(adding(""), said("Why, then?", "It is so.</s>")),
    "another model's header": Guard(adding(""), said("Why, then?", "<start_of_turn>model\nIt is so.")),
    "a field that means something to the template": Guard(
        adding("{% if m.extra %}{{ messages[-1].extra }}{% endif %}"),
        [user("Why, then?"), assistant("It is so.", extra="a"), user("And then?"), assistant("It is so.", extra="b")],
    ),
    "a variable of the row": Guard("{% if style %}{{ style }}{% endif %}" + adding(""), TALK),
    "an answer that is all reasoning": Guard(writing("<{{ m.content }}>"), said("Why, then?", "think")),
    "a constant that only a prompt looks for": Guard(
        MARKED + ENDING.replace("assistant\n", "assistant\n{% if 'Not at' not in messages[-1].content %}~{% endif %}"),
        said("Not at all, or is it?", "It is so.", "And then?", "It is so."),
    ),
    "texts that only a prompt compares": Guard(
        MARKED
        + ENDING.replace(
            "assistant\n",
            "assistant\n{% if messages | length < 2 or messages[-1].content != messages[0].content %}~{% endif %}",
        ),
        said("Why, then?", "It is so.", "Why, then?", "It is so."),
        None,
    ),
    "a header for every second question": Guard(
        MARKED + ENDING.replace("assistant\n", "assistant\n{% if messages | length % 4 == 1 %}~{% endif %}"), TALK, None
    ),
    "a name that the text says, too": Guard(adding(TOLD + "{{ c.function.arguments | tojson }}{% endfor %}"), CALLED),
    "arguments as a string within JSON": Guard(
        adding(
            TOLD + '{"name": "{{ c.function.name }}", "arguments": "{{ c.function.arguments | tojson }}"}{% endfor %}'
        ),
        [user("Where is it?"), assistant("", tool_calls=[call("look", {})]), result("Found."), *PAIR],
    ),
    "a call as Python, and its arguments as JSON for something else": Guard(
        adding(TOLD + "{{ c.function.name }}(q='other') {{ c.function.arguments | tojson }}{% endfor %}"),
        CALLED,
    ),
    "an answer behind its stop token": Guard(
        writing("{% if m.role == 'assistant' %}<|im_end|>{% endif %}{{ m.content }}"),
        PAIR,
        None,
    ),
    "a mark that the template writes itself": Guard(
        "<|im_start|>user\n{{ messages[0].content }}<|im_end|>\n"
        + framed("")
        .replace("in messages", "in messages[1:]")
        .replace("{{ m.content }}", "{{ '\ue0f5' if loop.last and m.role == 'assistant' }}{{ m.content }}")
        + ENDING,
        PAIR,
        None,
    ),
    "messages outside of the loop": Guard(
        framed("").replace("in messages", "in messages[:2]")
        + framed("").replace("in messages", "in messages[2:]")
        + ENDING,
        TALK,
        None,
    ),
    "a prompt that begins otherwise": Guard("{{ '!' if add_generation_prompt else '.' }}" + adding(""), TALK, None),
    "a mode that refuses longer chats": Guard(
        "{% if enable_thinking and messages | length > 2 %}{{ raise_exception('no') }}{% endif %}"
        + framed("")
        + ENDING.replace("assistant\n", "assistant\n{{ '~' if enable_thinking }}"),
        said("Why, then?", "~It is so.", "And then?", "~That is so."),
        None,
    ),
    "the last question": Guard(
        "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}"
        "{% endif %}{% endfor %}" + adding("{{ '!' if loop.index0 == ns.last }}"),
        TALK,
        None,
    ),
    "a stop token behind the loop": Guard(
        framed("").replace("<|im_end|>", "")
        + "{% if not add_generation_prompt %}{{ messages | length }}<|im_end|>{% endif %}"
        + ENDING,
        TALK,
        None,
    ),
    "reasoning that is not closed": Guard(
        framed("").replace("{{ m.content }}", "{{ '<think>' if m.role == 'assistant' }}{{ m.content }}")
        + ENDING.replace("assistant\n", "assistant\n<think>"),
        TALK,
        None,
    ),
    "an answer with a name": Guard(
        framed("")
        .replace("{{ m.role }}", "{{ m.name or m.role }}")
        .replace("{{ m.content }}", "{{ '~' if loop.last and m.role == 'assistant' }}{{ m.content }}")
        + ENDING,
        [user("Why, then?"), {**assistant("It is so."), "name": "assistant_bob"}, *TALK[2:]],
    ),
    "a null that is printed": Guard(
        adding(TOLD + "{{ c.function.name }}: {{ c.function.arguments | tojson }}{% endfor %}"),
        calling({"q": "a place"}, None),
    ),
    "an escaped quotation mark beside a call": Guard(
        adding(TOLD + '{{ c.function.name }}: {{ c.function.arguments }} \\"x\\"{% endfor %}'),
        calling({"q": "a place"}),
    ),
    "arguments once more without quotation marks": Guard(
        adding(
            TOLD
            + "{{ c.function.name }}: "
            + BY_KEY
            + "<{{ k }}>{{ v }}</{{ k }}> ({{ k }}={{ v }}){% endfor %}{% endfor %}"
        ),
        calling({"q": "a place"}),
    ),
    "an argument with quotation marks": Guard(
        adding(TOLD + "{{ c.function.name }}: " + BY_KEY + '"{{ k }}": "{{ v }}"; {% endfor %}{% endfor %}'),
        calling({"q": 'a "place" or so'}),
    ),
}
"""Rows for which a template is not what it is for others."""


@pytest.mark.parametrize("name", GUARDS)
def test_a_row_for_which_one_rendering_does_not_serve_is_not_taken_for_clear(name: str, under: Under) -> None:
    template, wrong, right = GUARDS[name]
    renderer = under(template)
    usual = [chat(*talk, row=row) for row, talk in enumerate([right or TALK, TALK[:2]])]
    taken = hold(renderer, usual).cut
    assert taken == 2 or right is None, name
    hold(renderer, [chat(*wrong, row=9), chat(*wrong, row=9)])


CLOSING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and m.reasoning_content %}<think>"
    "{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}"
    "<|im_start|>assistant\n{% if enable_thinking is defined and enable_thinking %}{% else %}<think></think>{% endif %}{% endif %}"
)
OPENING = CLOSING.replace("{% else %}<think></think>", "{% else %}<think>")
BEHIND = CLOSING.replace("<think>{{ m.reasoning_content }}</think>", "<think></think>{{ m.reasoning_content }}")


@pytest.mark.parametrize("template", [CLOSING, OPENING, BEHIND])
def test_reasoning_is_shown_as_the_definition_has_it(template: str, under: Under) -> None:
    answers = [
        assistant(text, **more)
        for text in ("It is so.", "so, so", "It may be so. It is so.")
        for more in ({}, {"reasoning_content": "It may be so."}, {"reasoning_content": "so"})
    ]
    for answer in answers:
        renderer = under(template)
        talk = [user("Why, then?"), answer, user("And then?"), answer]
        hold(renderer, [chat(*talk), chat(*talk[:2])])


def test_calls_with_blank_and_null_contents_are_no_one_kind(under: Under) -> None:
    template = framed("{{ '!' if m.content is none }}").replace(
        "{{ m.content }}",
        "{{ '~' if m.content is none and loop.last }}{{ m.content or '' }}{{ m.tool_calls | tojson if m.tool_calls }}",
    )
    renderer = under(template + ENDING)
    for contents in (("", ""), (None, None), ("", None), (None, "")):
        talk = [user("Why, then?")]
        for content in contents:
            talk += [
                {**assistant(""), "content": content, "tool_calls": [call("look", {"q": "this one"})]},
                result("Found it."),
            ]
        hold(renderer, [chat(*talk, assistant("It is so.")), chat(system("Be brief."), *talk, assistant("It is so."))])


def test_variables_of_a_row_are_part_of_its_kind(under: Under) -> None:
    template = "{{ '!' if flag and messages | length > 2 }}" + adding("")
    renderer = under(template)
    rows = [chat(*TALK, row=row, flag=flag) for row, flag in enumerate((False, True, False, True))]
    assert hold(renderer, rows).cut >= 2


@pytest.mark.parametrize("answer", ["It is so.", "<no> It is so."])
def test_a_mode_that_changes_turns_is_rendered_as_the_definition_does(answer: str, under: Under) -> None:
    template = framed("").replace(
        "{{ m.content }}", "{{ '~' if enable_thinking and m.role == 'assistant' and loop.last }}{{ m.content }}"
    )
    template += ENDING.replace("assistant\n", "assistant\n{{ '~' if enable_thinking }}")
    renderer = under(template)
    hold(renderer, [chat(*said("Why, then?", answer)), chat(*said("Why, then?", f"~{answer}"))])


CALLS = TOLD + "{{ c.function.name }}: {{ c.function.arguments | tojson }}{% endfor %}"


@pytest.mark.parametrize("where", ["nowhere", "behind", "tools", "calls"])
def test_a_row_with_a_token_anywhere_is_for_the_definition(where: str, under: Under) -> None:
    template = "{{ tools | tojson }}" + adding(CALLS)
    renderer = under(template, "supervision.control_tokens=reject")
    said = {where: "<|im_start|>"}
    tool = {"name": "look", "description": said.get("tools", "Looks."), "parameters": {"type": "object"}}
    talk = [*calling({"q": said.get("calls", "a place")}), user(said.get("behind", "And then?"))]
    found = hold(renderer, [chat(*talk, tools=[{"type": "function", "function": tool}])] * 2)
    assert (found.cut, found.kept) == ((2, 2) if where == "nowhere" else (0, 0))


@pytest.mark.parametrize(
    ("written", "told", "text"),
    [
        ("{{ m.content if not m.tool_calls }}" + CALLS, {"q": "a place"}, "place"),
        ("{{ m.content if not m.tool_calls }}" + CALLS, {"q": 275}, "275"),
        ("{{ m.content if m.role != 'tool' else m.tool_call_id }}" + CALLS, {"q": "a place"}, "7"),
        ("{{ m.content if m.role != 'tool' else m.name }}" + CALLS, {"q": "a place"}, "finder"),
    ],
)
def test_a_text_that_another_field_contains_is_not_taken_for_shown(
    written: str, told: dict[str, Any], text: str, under: Under
) -> None:
    template = framed("").replace("{{ m.content }}", written) + ENDING
    renderer = under(template)
    called = assistant(text, tool_calls=[{**call("look", told), "id": "call_7"}])
    found = {**result(text), "tool_call_id": "call_7", "name": "the finder"}
    assert hold(renderer, [chat(user("Where is it?"), called, found, *PAIR[1:])] * 2).kept == 0


@pytest.mark.parametrize(
    ("written", "text", "reasoning"),
    [
        ("{{ m.reasoning_content or m.content }}", "It is so.", "It may be that it is. It is so."),
        ("{{ m.content }}", "It is so, I know.", "It is so"),
        ("{{ m.content }}{{ m.reasoning_content }}", "It is so.", "It is so."),
    ],
)
def test_reasoning_and_text_are_both_shown(written: str, text: str, reasoning: str, under: Under) -> None:
    renderer = under(framed("").replace("{{ m.content }}", written) + ENDING)
    hold(renderer, [chat(user("Why, then?"), assistant(text, reasoning_content=reasoning))] * 2)


def test_a_turn_that_lacks_its_reasoning_may_continue_another_prompt(under: Under) -> None:
    opened = "assistant\n{{ '' if enable_thinking is defined and not enable_thinking else '<think>\n' }}"
    template = framed("") + ENDING.replace("assistant\n", opened)
    renderer = under(template, "supervision.on_prompt_mismatch=continue")
    found = hold(renderer, [chat(user("Why, then?"), assistant("It is so.", reasoning_content="It may be."))] * 2)
    assert (found.cut, found.kept) == (0, 2)


def test_tools_that_rows_of_one_kind_show_may_be_lost_in_others(under: Under) -> None:
    template = "{{ tools | tojson if messages[0].role == 'system' }}" + adding("")
    renderer = under(template)
    tool = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}}
    found = hold(renderer, [chat(*talk, tools=[tool]) for talk in ([system("Be brief, so."), *PAIR], PAIR)])
    assert found.cut == 1


def test_reasoning_that_a_call_contains_is_not_taken_for_shown(under: Under) -> None:
    renderer = under(adding(CALLS))
    told = assistant("I look for it.", tool_calls=[call("look", {"q": "a place"})], reasoning_content="a place")
    assert hold(renderer, [chat(user("Where is it?"), told, result("Found."), *PAIR[1:])] * 2).kept == 0


def test_tools_are_those_of_another_row_only_if_they_are_the_same(under: Under) -> None:
    template = "{{ tools | tojson }}" + adding("")
    renderer = under(template)
    values = [None, float("nan"), 1, 1.0, True, {"a": 1, "b": 2}, {"b": 2, "a": 1}, "1", None, 1]
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"default": value}}} for value in values]
    assert hold(renderer, [chat(*PAIR, tools=[tool]) for tool in tools]).cut == len(tools)


def test_a_mark_that_a_turn_contains_is_not_cut_out_of_it(under: Under) -> None:
    """It stands where the loop lacks one, so that only the text of the whole rendering tells."""
    written = "<|im_start|>{{ m.role }}\n{{ m.content }}"
    template = (
        f"{{% for m in messages[:-1] %}}{written}<|im_end|>\n{{% endfor %}}{{% set m = messages[-1] %}}{written}"
        "{{ '\ue0f5' if not add_generation_prompt }}<|im_end|>\n"
    )
    renderer = under(template + ENDING)
    found = hold(renderer, [chat(*PAIR), chat(*said("And how?", "Like this."))])
    assert (found.cut, found.kept) == (0, 2)


def test_a_call_without_arguments_is_not_shown_by_the_name_of_another(under: Under) -> None:
    """The template leaves it out, and its name is the beginning of the other one's."""
    written = TOLD + "{% if c.function.arguments %}<call={{ c.function.name }}>" + BY_KEY
    written += "<{{ k }}>{{ v }}</{{ k }}>{% endfor %}{% endif %}{% endfor %}"
    renderer = under(framed(written) + ENDING)
    asked, told, *rest = calling({"q": "a place"})
    both = [asked, {**told, "tool_calls": [call("loo", {}), *told["tool_calls"]]}, result("None."), *rest]
    found = hold(renderer, [chat(asked, told, *rest)] * 4 + [chat(*both)])
    assert (found.cut, found.kept) == (4, 4)


def test_a_text_with_which_a_rendering_begins_is_shown(under: Under) -> None:
    template = "{% for m in messages %}{{ '>' if m.role == 'assistant' }}{{ m.content }}<|im_end|>\n{% endfor %}"
    template += "{% if add_generation_prompt %}>{% endif %}"
    found = hold(under(template), [chat(*PAIR), chat(*TALK)])
    assert (found.cut, found.kept) == (2, 2)


def test_answers_to_the_last_question_may_begin_otherwise_than_those_to_earlier_ones(under: Under) -> None:
    """As Qwen3.5 has it: an empty block before each of them, calls too, which is gone once another question is asked."""
    last = "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}"
    block = "{{ '<think>\n\n</think>\n\n' if m.role == 'assistant' and loop.index0 > ns.last }}{{ m.content }}"
    template = last + "{% endif %}{% endfor %}" + framed(CALLS).replace("{{ m.content }}", block)
    header = ENDING.replace("assistant\n", "assistant\n<think>\n\n</think>\n\n")
    renderer = under(template + header)
    found = hold(renderer, [chat(*CALLED[:3], *PAIR[1:], *CALLED[:3], *PAIR[1:])])
    assert (found.cut, found.kept) == (1, 1)
