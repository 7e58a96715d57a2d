"""Each guard of the fast way, by a template and a row that it keeps from being rendered wrongly."""

from typing import Any, NamedTuple

import pytest
import twins
from rendered_twice import assert_same, batch, hold, literal
from supervision_stages import Stages, assistant, call, chat, result, system, user

from packer.recipe import make_recipe

ENDING = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


def framed(body: str) -> str:
    """A loop over messages as ChatML has it, with something more in each."""
    return f"{{% for m in messages %}}<|im_start|>{{{{ m.role }}}}\n{{{{ m.content }}}}{body}<|im_end|>\n{{% endfor %}}"


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


def looking_ahead(test: str) -> str:
    """A template that changes the first message if the last text passes a test, but not in prompts."""
    return f"{ONCE}{{% if {test} %}}!{{% endif %}}{{% endif %}}" + framed("") + ENDING


PAIR = [user("Why, then?"), assistant("It is so.")]
MARKED = framed("").replace("{{ m.role }}\n", "{{ m.role }}\n{{ '~' if m.role == 'assistant' }}")
TOLD = "{% for c in m.tool_calls or [] %}"
CALLED = [
    user("Where is it?"),
    assistant("I look for it.", tool_calls=[call("look", {"q": "a place"})]),
    result("Found."),
    *PAIR[1:],
]
LATE = said("What of this, then?", "It is so.", "And what of that?", "Not at all, or is it?")
GUARDS = {
    "a constant in a later text": Guard(looking_ahead("'Not at' in messages[-1].content"), LATE),
    "how a later text begins": Guard(looking_ahead("messages[-1].content.startswith('Not')"), LATE),
    "how a later text ends": Guard(looking_ahead("messages[-1].content.endswith('is it?')"), LATE),
    "where something stands in a later text": Guard(looking_ahead("messages[-1].content.find('or') > 0"), LATE),
    "the number of parts of a later text": Guard(
        looking_ahead("messages[-1].content.split(',') | length > 1"), LATE, None
    ),
    "a part of a later text": Guard(looking_ahead("messages[-1].content[:3] == 'Not'"), LATE, None),
    "the length of a later text": Guard(looking_ahead("messages[-1].content | length > 17"), LATE, None),
    "the length of a later word": Guard(
        looking_ahead("messages[-1].content | length == 9"),
        said("Why, then?", "It is so.", "And then?", "Wonderful"),
        None,
    ),
    "a loop over a later text": Guard(looking_ahead("messages[-1].content | list | length > 17"), LATE, None),
    "letters of a later text": Guard(
        ONCE + "{% for c in messages[-1].content %}{{ '!' if c == 'N' }}{% endfor %}{% endif %}" + framed("") + ENDING,
        LATE,
        None,
    ),
    "a later text that is a constant": Guard(
        looking_ahead("messages[-1].content == 'That is it, all of it.'"),
        said("What of this, then?", "It is so.", "And what of that?", "That is it, all of it."),
    ),
    "a later text that is a constant in small letters": Guard(
        looking_ahead("messages[-1].content | lower == 'that is it, all of it.'"),
        said("What of this, then?", "It is so.", "And what of that?", "That is it, all of it."),
        None,
    ),
    "a later text that was said before": Guard(
        looking_ahead("messages[-1].content == messages[0].content"),
        said("It is so.", "Is it?", "And what of that?", "It is so."),
    ),
    "a later word that was said before": Guard(
        looking_ahead("messages[-1].content == messages[0].content"), said("Yes", "Is it?", "And what of that?", "Yes")
    ),
    "a later text among others": Guard(
        looking_ahead("messages[-1].content in [messages[0].content, messages[1].content]"),
        said("It is so.", "Is it?", "And what of that?", "It is so."),
        None,
    ),
    "a later message that is an earlier one": Guard(
        looking_ahead("messages[-1] == messages[1]"),
        said("What of it?", "It is so.", "And what of that?", "It is so."),
        None,
    ),
    "an order of texts": Guard(looking_ahead("messages[-1].content < messages[0].content"), LATE, None),
    "a later text in capitals": Guard(
        looking_ahead("messages[-1].content is upper"), said("Why, then?", "It is so.", "And then?", "IT IS SO."), None
    ),
    "texts in their order": Guard(
        looking_ahead("(messages | sort(attribute='content') | first).role == 'assistant'"),
        said("Why, then?", "So it is.", "Yes, but then?", "And so it is."),
        None,
    ),
    "a text with nothing left": Guard(
        looking_ahead("not (messages[-1].content | replace('So. ', '') | trim)"),
        said("Why, then?", "It is so.", "And then?", "So. So. "),
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
        + framed("")
        + ENDING,
        [user("Why, then?"), user("And how?"), assistant("It is so."), user("Yes?"), assistant("It is so, I say.")],
    ),
    "many messages": Guard("{{ '!' if messages | length > 21 }}" + framed("") + ENDING, TALK * 7),
    "a message more than fits the largest trial": Guard(
        "{{ '!' if messages | length > 40 }}" + framed("") + ENDING, TALK * 12
    ),
    "white space around an answer that begins otherwise while it is the last": Guard(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and loop.last %}~{{ m.content | trim }}"
        "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}" + ENDING,
        said("Why, then?", " It is so. ", "And then?", "It is so, too."),
    ),
    "an answer that ends otherwise while it is the last": Guard(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{{ '.' if loop.last and m.role == 'assistant' }}"
        "<|im_end|>\n{% endfor %}" + ENDING,
        TALK,
    ),
    "what is behind the loop": Guard(
        framed("") + "{{ messages | length if not add_generation_prompt }}" + ENDING, TALK
    ),
    "a header that depends on the number of messages": Guard(
        framed("{% if m.role == 'user' and loop.index > 2 %}~{% endif %}")
        + ENDING.replace("assistant\n", "assistant\n"),
        TALK,
        None,
    ),
    "a mode that changes the turn": Guard(
        framed("").replace(
            "{{ m.content }}", "{{ m.content }}{{ '~' if enable_thinking is defined and enable_thinking }}"
        )
        + ENDING,
        TALK,
        None,
    ),
    "a text that the template says itself": Guard(
        framed("").replace("{{ m.content }}", "{{ m.content if m.role == 'assistant' else 'Here is a question' }}")
        + ENDING,
        said("Here is a question", "It is so."),
        None,
    ),
    "a role as a text": Guard(
        framed("").replace("{{ m.content }}", "{{ m.content if m.role == 'assistant' else '' }}") + ENDING,
        said("user", "It is so."),
        None,
    ),
    "a text in the place of another": Guard(
        framed("").replace("{{ m.content }}", "{{ messages[-1].content if m.role == 'user' else m.content }}") + ENDING,
        said("It is so.", "It is so."),
        None,
    ),
    "an escape": Guard(framed("") + ENDING, said("What of &amp;, then?", "It is so.")),
    "a text that an escape changes": Guard(
        framed("").replace("{{ m.content }}", "{{ m.content | e }}") + ENDING, said("What of <b>, then?", "It's so.")
    ),
    "a control token behind the last answer": Guard(framed("") + ENDING, [*TALK, user("<|im_start|>assistant")]),
    "a tag of reasoning": Guard(framed("") + ENDING, said("Why, then?", "<think>\nhm\n</think>\n\nIt is so.")),
    "another model's end": Guard(framed("") + ENDING, said("Why, then?", "It is so.</s>")),
    "a field that means something to the template": Guard(
        framed("{% if m.extra %}{{ messages[-1].extra }}{% endif %}") + ENDING,
        [user("Why, then?"), assistant("It is so.", extra="a"), user("And then?"), assistant("It is so.", extra="b")],
    ),
    "a variable of the row": Guard("{% if style %}{{ style }}{% endif %}" + framed("") + ENDING, TALK),
    "an answer that is all reasoning": Guard(
        framed("").replace("{{ m.content }}", "<{{ m.content }}>") + ENDING, said("Why, then?", "think")
    ),
    "a constant that only a prompt looks for": Guard(
        MARKED + ENDING.replace("assistant\n", "assistant\n{% if 'Not at' not in messages[-1].content %}~{% endif %}"),
        said("Not at all, or is it?", "It is so.", "And then?", "It is so."),
    ),
    "texts that only a prompt compares": Guard(
        MARKED
        + ENDING.replace(
            "assistant\n",
            "assistant\n{% if messages[-1].content != messages[0].content or messages | length < 2 %}~{% endif %}",
        ),
        said("Why, then?", "It is so.", "Why, then?", "It is so."),
        None,
    ),
    "a header for every second question": Guard(
        MARKED + ENDING.replace("assistant\n", "assistant\n{% if messages | length % 4 == 1 %}~{% endif %}"), TALK, None
    ),
    "a name that the text says, too": Guard(
        framed(TOLD + "{{ c.function.arguments | tojson }}{% endfor %}") + ENDING, CALLED
    ),
    "arguments as a string within JSON": Guard(
        framed(
            TOLD + '{"name": "{{ c.function.name }}", "arguments": "{{ c.function.arguments | tojson }}"}{% endfor %}'
        )
        + ENDING,
        [user("Where is it?"), assistant("", tool_calls=[call("look", {})]), result("Found."), *PAIR],
    ),
    "a call as Python, and its arguments as JSON for something else": Guard(
        framed(TOLD + "{{ c.function.name }}(q='other') {{ c.function.arguments | tojson }}{% endfor %}") + ENDING,
        CALLED,
    ),
    "an answer behind its stop token": Guard(
        framed("").replace("{{ m.content }}", "{% if m.role == 'assistant' %}<|im_end|>{% endif %}{{ m.content }}")
        + ENDING,
        PAIR,
        None,
    ),
}
"""Rows for which a template is not what it is for others."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Stages:
    return Stages.load(twins.byte_level(tmp_path_factory.mktemp("twin")))


@pytest.mark.parametrize("name", GUARDS)
def test_a_row_for_which_one_rendering_does_not_serve_is_not_taken_for_clear(name: str, base: Stages) -> None:
    template, wrong, right = GUARDS[name]
    renderer = base.with_template(template, make_recipe({}, [])).renderer
    usual = [chat(*talk, row=row) for row, talk in enumerate([right or TALK, TALK[:2]])]
    taken = hold(renderer, usual).cut
    assert taken == 2 or right is None, name
    hold(renderer, [chat(*wrong, row=9), chat(*wrong, row=9)])


@pytest.mark.parametrize("name", GUARDS)
def test_such_a_row_among_others_is_rendered_as_by_the_letter(name: str, base: Stages) -> None:
    template, wrong, _ = GUARDS[name]
    renderer = base.with_template(template, make_recipe({}, [])).renderer
    rows = batch([chat(*(wrong if row % 5 == 4 else TALK[: 2 + 2 * (row % 2)]), row=row) for row in range(12)])
    assert_same(renderer.render(rows), literal(renderer).render(rows))


CLOSING = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and m.reasoning_content %}<think>"
    "{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}"
    "<|im_start|>assistant\n{% if enable_thinking is defined and enable_thinking %}{% else %}<think></think>{% endif %}{% endif %}"
)
OPENING = CLOSING.replace("{% else %}<think></think>", "{% else %}<think>")
BEHIND = CLOSING.replace("<think>{{ m.reasoning_content }}</think>", "<think></think>{{ m.reasoning_content }}")


@pytest.mark.parametrize("template", [CLOSING, OPENING, BEHIND])
@pytest.mark.parametrize("reasoning", [None, "It may be so.", "so"])
@pytest.mark.parametrize("text", ["It is so.", "so, so", "It may be so. It is so."])
def test_reasoning_is_shown_as_the_definition_has_it(
    template: str, reasoning: str | None, text: str, base: Stages
) -> None:
    renderer = base.with_template(template, make_recipe({}, [])).renderer
    more = {} if reasoning is None else {"reasoning_content": reasoning}
    talk = [user("Why, then?"), assistant(text, **more), user("And then?"), assistant(text, **more)]
    hold(renderer, [chat(*talk), chat(*talk[:2])])


def test_calls_with_blank_and_null_contents_are_no_one_kind(base: Stages) -> None:
    template = framed("{{ '!' if m.content is none }}").replace(
        "{{ m.content }}", "{{ m.content or '' }}{{ m.tool_calls | tojson if m.tool_calls }}"
    )
    renderer = base.with_template(template + ENDING, make_recipe({}, [])).renderer
    for contents in (("", ""), (None, None), ("", None), (None, "")):
        talk = [user("Why, then?")]
        for content in contents:
            talk += [
                {**assistant(""), "content": content, "tool_calls": [call("look", {"q": "this one"})]},
                result("Found it."),
            ]
        hold(renderer, [chat(*talk, assistant("It is so.")), chat(system("Be brief."), *talk, assistant("It is so."))])


def test_variables_of_a_row_are_part_of_its_kind(base: Stages) -> None:
    template = "{{ '!' if flag and messages | length > 2 }}" + framed("") + ENDING
    renderer = base.with_template(template, make_recipe({}, [])).renderer
    rows = [chat(*TALK, row=row, flag=flag) for row, flag in enumerate((False, True, False, True))]
    assert hold(renderer, rows).cut >= 2


@pytest.mark.parametrize(
    "ending", ["{{ '' if add_generation_prompt else messages[-1].role ~ messages | length }}", "{{ '<|im_end|>' }}"]
)
def test_what_stands_behind_the_loop_is_part_of_a_turn(ending: str, base: Stages) -> None:
    template = framed("").replace("<|im_end|>", "") + ending + ENDING
    renderer = base.with_template(template, make_recipe({}, ["supervision.no_terminator=append"])).renderer
    hold(renderer, [chat(*PAIR), chat(*TALK), chat(*TALK * 2)])


@pytest.mark.parametrize("answer", ["It is so.", "<no> It is so."])
def test_a_mode_that_changes_turns_is_rendered_as_the_definition_does(answer: str, base: Stages) -> None:
    template = framed("").replace(
        "{{ m.content }}", "{{ '~' if enable_thinking and m.role == 'assistant' }}{{ m.content }}"
    )
    template += ENDING.replace("assistant\n", "assistant\n{{ '~' if enable_thinking }}")
    renderer = base.with_template(template, make_recipe({}, [])).renderer
    hold(renderer, [chat(*said("Why, then?", answer)), chat(*said("Why, then?", f"~{answer}"))])
