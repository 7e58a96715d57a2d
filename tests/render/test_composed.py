"""Renderings that are composed of recordings: each is what the template writes from the first message, or none."""

import itertools
import operator
from collections.abc import Sequence
from typing import Any

import pytest
import twins
from conversation_shapes import OTHER_TOOL, TOOL
from conversations import conversations
from hypothesis import given
from hypothesis import strategies as st
from rendered_twice import assert_composed, batch
from supervision_stages import Stages, assistant, call, chat, result, system, user

from packer.recipe import make_recipe
from packer.render import ChatTemplate, RenderError
from packer.render.composed import ComposedText, Composition
from packer.render.composed.chain import Step
from packer.render.composed.openings import Openings
from packer.render.composed.unknowns import ITEM, SIZE, ZERO, Compared
from packer.render.composed_template import ComposedTemplate
from packer.render.opening import Opening
from packer.render.symbolic import OpaqueError
from packer.watchdog import TemplateOverrunError

Messages = Sequence[dict[str, Any]]


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, date="2026-01-01", variables={"bos_token": "<s>", "eos_token": "</s>"}, max_bytes=2**20)


def composition_of(chat_template: ChatTemplate) -> Composition:
    assert chat_template.recordings is not None
    return Composition(chat_template.recordings, chat_template.variables)


def composed(composition: Composition, messages: Messages, **kwargs: Any) -> ComposedText:
    return composition.text(messages, None, kwargs, add_generation_prompt=False)


def loop(body: str, items: str = "messages") -> str:
    return f"{{% for m in {items} %}}{body}{{% endfor %}}"


MODES: tuple[dict[str, bool], ...] = ({}, {"enable_thinking": True}, {"thinking": True}, {"enable_thinking": False})


def num_alike(chat_template: ChatTemplate, several: Sequence[Messages]) -> int:
    """Compose all beginnings of conversations, longest last and then shortest last; return how many could be.

    In the meantime texts are replaced, all at first, and then all but those of the system message.
    """
    number = 0
    for messages, order in itertools.product(several, (1, -1)):
        composition = composition_of(chat_template)
        words = [{**m, "content": f"word {n}"} if isinstance(m["content"], str) else m for n, m in enumerate(messages)]
        sizes = range(1, len(messages) + 1)[::order]
        kinds = (messages, words, [*messages[:1], *words[1:]], [*words[:1], *messages[1:]])
        for size, kwargs, kind in itertools.product(sizes, MODES[:3], kinds):
            ask = bool(size % 2)
            try:
                text = composition.text(kind[:size], None, kwargs, add_generation_prompt=ask)
            except OpaqueError:
                continue
            number += 1
            assert text == chat_template.render(kind[:size], add_generation_prompt=ask, kwargs=kwargs)
    return number


ASKED = (
    *("loop.first", "loop.last", "loop.index0 > ns.last", "loop.index % 2 == 0", "loop.index == 3", "ns.count > 2"),
    *("m.role == 'user'", "m.content", "m.content is string", "'</think>' in m.content", "m.content == 'Hello'"),
    *("m.content.split('</think>')[0] == '<think>'", "m.content.split('e')[1].startswith('l')"),
    *("m.content.startswith('!')", "m.tool_calls", "m.reasoning_content is defined", "ns.flag", "ns.word == 'user'"),
    *("loop.nextitem.role == 'tool'", "loop.previtem is defined and loop.previtem.role == m.role"),
    *("messages[loop.index0 - 1].role == 'user'", "rest[loop.index0 - 1].role == 'user'", "rest[-2] is defined"),
    *("messages[-1].role == 'user'", "messages | length > 4", "loop.length - loop.index < 2", "ns.count == loop.index"),
    *(
        "enable_thinking",
        "thinking is defined",
        "messages is sequence",
        "m.content is sequence",
        "loop.index0 in [1, 2]",
    ),
)
WRITTEN = (
    *("m.content", "m.role", "m.content | trim", "m.content.split('</think>')[-1]", "messages[0].content"),
    *("messages[-1].content", "loop.previtem.content", "m | tojson | length", "', '.join([m.role])", "tell(m, loop)"),
    *(
        "m.content | default('-', true)",
        "'Hello' | replace(m.role, '')",
        "m.content ~ eos_token",
        "m.reasoning_content",
        "said",
        "ns.text",
        "m | tojson",
        "m.content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n')",
        "(m.content.split('</think>') | last) | trim",
        "m.content.rsplit('\\n', 1)[0]",
        "m.content.split(' ', 2) | join('+')",
        "m.content.split('!') | length",
        "m.content.split('<')[1]",
        "{'a': m.content, 'b': [m.role, messages[0].content]} | tojson(indent=2)",
    ),
)
SAID = (
    *("{% set ns.count = ns.count + 1 %}", "{% set ns.count = loop.index %}", "{% set ns.count = messages | length %}"),
    *("{% set ns.flag = not ns.flag %}", "{% set ns.word = m.role %}", "{% set ns.last = loop.index0 %}", "&lt;"),
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}",
    "{% if m.role == 'system' %}{% continue %}{% endif %}",
    "{% set said = m.role %}",
    "{% if loop.last %}{% set said = m.content %}{% endif %}",
)
BEFORE = (
    "",
    "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% set rest = messages[1:] %}{% endif %}",
    "{% for q in messages %}{% if q.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}",
    (
        "{% for q in messages[::-1] %}{% set i = (messages | length - 1) - loop.index0 %}"
        "{% if ns.flag and q.role == 'user' %}{% set ns.flag = false %}{% set ns.last = i %}{% endif %}{% endfor %}"
    ),
    "{% set ns.count = messages | length %}",
    "{% set said = messages[0].content ~ ', and more of the same, whatever that is, and more of it' %}",
    "{% for q in messages %}{% set ns.text = ns.text ~ q.content %}{% endfor %}",
)
LOOPS = ("messages", "rest", "messages[1:]", "(messages[1:] if messages[0].role == 'system' else messages)")
ENDINGS = (
    "{% if add_generation_prompt %}<A>{{ 'T' if enable_thinking }}{% endif %}",
    "{{ ns.count > 3 }}{{ ns.word }}",
    "{{ messages[-1].content if messages[-1].role == 'assistant' }}",
)
_START = (
    "{% set ns = namespace(count=0, text='', flag=true, word='', last=-1) %}{% set rest = messages %}"
    "{% macro tell(m, loop) %}{{ m.content if loop.last }}{{ ns.count > 1 }}{% endmacro %}"
)

_said = st.one_of(
    st.sampled_from(SAID),
    st.sampled_from(WRITTEN).map("{{{{ {} }}}}".format),
    st.builds("{{% if {} %}}{}{{{{ {} }}}}{{% endif %}}".format, *map(st.sampled_from, (ASKED, SAID, WRITTEN))),
    st.builds("{{{{ {} if {} else {} }}}}".format, *map(st.sampled_from, (WRITTEN, ASKED, WRITTEN))),
)
templates = st.builds(
    lambda before, items, body, ending: _START + before + loop("".join(body), items) + ending,
    *(st.sampled_from(BEFORE), st.sampled_from(LOOPS), st.lists(_said, min_size=1, max_size=4)),
    st.sampled_from(ENDINGS),
)


def rendered(chat_template: ChatTemplate, messages: Messages, **rest: Any) -> str | None:
    try:
        return chat_template.render(messages, **rest)
    except RenderError:
        return None


@given(source=templates, several=st.lists(conversations(), min_size=2, max_size=2), chance=st.randoms())
def test_what_is_composed_is_the_rendering(source: str, several: list[list[dict[str, Any]]], chance: Any) -> None:
    chat_template = template(source)
    for messages in several:
        composition = composition_of(chat_template)
        others = [{**message, "content": f"{message['content']}!"} for message in messages]
        for _ in range(12):
            chosen = [message[chance.random() < 0.2] for message in zip(messages, others, strict=True)]
            chosen = (messages if chance.random() < 0.6 else chosen)[: chance.randint(1, len(messages))]
            rest = {"add_generation_prompt": chance.random() < 0.5, "kwargs": chance.choice(MODES)}
            try:
                text = composition.text(
                    chosen, None, rest["kwargs"], add_generation_prompt=rest["add_generation_prompt"]
                )
            except OpaqueError:
                continue
            assert text == rendered(chat_template, chosen, **rest)


CHAT = [system("Be brief."), user("a"), assistant("b"), user("abc"), assistant("a"), user("e"), assistant("f")]
CALLS = [user("a"), assistant("x", tool_calls=[call("f", {"q": 1})]), result("r"), assistant("b"), user("Be brief.")]

LOOSER = {
    "whether arguments are a sequence": loop(
        "{% for c in m.tool_calls or [] %}{{ c.function.arguments is sequence }}{% endfor %}"
    ),
    "whether messages are a sequence": loop("{{ messages is sequence }}"),
    "whether the loop can be run over": loop("{{ loop is iterable }}"),
    "the length of JSON": loop("{{ (m | tojson) | length }}"),
    "a word in JSON": loop("{{ 'brief' in (m | tojson) }}"),
    "texts joined by another": loop("{{ ','.join([m.content]) == 'a' }}"),
    "texts of a filter joined by another": loop("{{ ','.join([m] | map(attribute='content')) == 'a' }}"),
    "a text among beginnings": loop("{{ 'abc'.startswith((m.content,)) }}"),
    "a text to be replaced": loop("{{ 'abc' | replace(m.content, 'x') }}"),
    "letters to be stripped": loop("{{ 'abca' | trim(m.content) }}"),
    "the length of an attribute": loop("{{ {'a': m.content} | xmlattr | length }}"),
    "the item before the first of some": "{% set l = messages[1:] %}" + loop("{{ l[loop.index0 - 1].content }}", "l"),
    "the last but one of some": "{% set l = messages[1:] %}" + loop("{{ l[-2] is defined }}{{ m.content }}", "l"),
    "an undefined attribute": "{% set ns = namespace(x=foo) %}" + loop("{{ 1 if ns.x else 0 }}{{ ns.x is defined }}"),
    "messages as an attribute": "{% set ns = namespace(x=messages) %}" + loop("{{ 1 if ns.x else 0 }}"),
    "a fraction as an attribute": "{% set ns = namespace(x=0.5) %}" + loop("{{ ns.x == 0.5 }}"),
    "a namespace as an attribute": "{% set ns = namespace(x=namespace()) %}" + loop("{{ 1 if ns.x else 0 }}"),
    "where the loop begins": loop(
        "{{ loop.first }}{{ m.content }}", "(messages[1:] if messages[0].role == 'system' else messages)"
    ),
    "the length as an attribute": "{% set ns = namespace(n=0) %}"
    + loop("{% if loop.first %}{% set ns.n = messages | length %}{% endif %}{{ m.content }}{{ loop.index == ns.n }}"),
    "another namespace": (
        "{% if messages[0].role == 'system' %}{% set other = namespace(x=1) %}{% endif %}{% set ns = namespace(x=2) %}"
        + loop("{{ m.content }}{% set ns.x = ns.x + 1 %}{{ ns.x > 3 }}")
    ),
    "an attribute that nothing but the ending reads": (
        "{% set ns = namespace(text='', n=0) %}" + loop("{{ m.role }}{% set ns.text = m.content %}") + "{{ ns.text }}"
    ),
    "an attribute that only a macro reads": (
        "{% set ns = namespace(text='') %}{% macro tell() %}{{ ns.text }}{% endmacro %}"
        "{% for m in messages %}{% set ns.text = ns.text + m.content %}{% endfor %}" + loop("{{ m.role }}{{ tell() }}")
    ),
    "an attribute of a namespace under another name": (
        "{% set ns = namespace(text='') %}{% set other = ns %}"
        "{% for m in messages %}{% set ns.text = ns.text + m.content %}{% endfor %}"
        + loop("{{ other.text }}{{ m.role }}")
    ),
    "an attribute by its name": (
        "{% set ns = namespace(text='') %}"
        "{% for m in messages %}{% set ns.text = ns.text + m.content %}{% endfor %}"
        + loop("{{ ns['text'] }}{{ m.role }}")
    ),
    "a variable that an iteration may set before it reads it": (
        "{% set said = messages[0].content %}"
        + loop("{% if m.role == 'user' %}{% set said = 'u' %}{% endif %}{{ said }}{{ m.role }}")
    ),
    "a variable that a macro's argument hides": (
        "{% set said = messages[0].content %}{% macro tell(said) %}{{ said }}{% endmacro %}"
        + loop("{{ tell(m.role) }}{{ m.content }}{{ said }}")
    ),
    "a global name that is set": "{% set range = messages[0].content %}" + loop("{{ range }}{{ m.role }}"),
    "a mark in JSON": loop("{{ {'a': '\ue0f50', 'b': m.content} | tojson }}"),
    "two switches": loop("{{ 1 if enable_thinking else 0 }}{{ 2 if thinking else 0 }}{{ m.content }}"),
    "where the loop begins, of which only the loop asks": (
        "{% if messages[0].role == 'system' %}{% set start = 1 %}{% else %}{% set start = 0 %}{% endif %}{{ bos_token }}"
        + loop("{{ m.content }}", "messages[start:]")
    ),
    "a message behind the last iteration that is kept": loop("{{ 'x' if loop.last }}{{ messages[1].content }}"),
    "a message before the loop": loop("{{ messages[0].content }}{{ m.content }}", "messages[1:]"),
    **{
        f"a variable that {where} reads before it is set": (
            f"{{% set said = messages[0].content %}}{loop(reading + '{% set said = m.role %}')}"
        )
        for where, reading in {
            "an inner loop": "{% for x in [1] %}{{ said }}{% endfor %}",
            "a loop within a loop": "{% for x in [1] %}{% for y in [1] %}{{ said }}{% endfor %}{% set said = 1 %}{% endfor %}",
            "a generation block": "{% generation %}{{ said }}{% endgeneration %}",
            "a filter block": "{% filter trim %}{{ said }}{% endfilter %}",
            "a block of a variable": "{% set w %}{{ said }}{% endset %}{{ w }}",
            "a macro": "{% macro tell() %}{{ said }}{% endmacro %}{{ tell() }}",
            "a default of a macro": "{% macro tell(x=said) %}{{ x }}{% endmacro %}{{ tell() }}",
        }.items()
    },
    **{
        f"messages from the last on, {how}": "{% set x = bos_token %}" + asking + loop("{{ m.content }}")
        for how, asking in {
            "by number": "{% if messages[::-1][0] is defined %}D{% endif %}",
            "twice": (
                "{% with l = messages[::-1] %}{% for m in l %}{{ m.role }}{% endfor %}"
                "{% for m in l %}{{ m.role }}{% endfor %}{% endwith %}"
            ),
            "as a sequence": "{{ messages[::-1] is sequence }}",
            "if there are any": "{{ 'x' if messages[1:][::-1] }}",
            "compared": "{{ messages[1:][::-1] == [] }}",
        }.items()
    },
    "the order of namespaces": (
        "{% set b = 1 %}{% set q = messages[-1].role %}{% set a = namespace(x='A') %}{% set b = namespace(x=q) %}"
        + loop("{{ m.content }}{{ a.x }}{{ b.x }}")
    ),
}
"""Templates that looser rules would compose otherwise."""


@pytest.mark.parametrize("name", LOOSER)
def test_what_a_recording_cannot_know_is_not_taken_for_known(name: str) -> None:
    num_alike(template(LOOSER[name]), (CHAT, CHAT[1:], CALLS, CALLS[2:]))


def test_steps_under_another_number_are_bounded_by_it() -> None:
    """A step is taken over where a namespace has another number, but not for shorter conversations."""
    source = "{% set ns = namespace(n=5) %}{% if thinking %}{% set ns.n = 3 %}{% endif %}"
    chat_template = template(source + loop("{{ m.content }}{{ 'x' if ns.n < messages | length }}"))
    composition = composition_of(chat_template)
    for size, thinking in ((7, True), (7, False), (5, False), (4, True), (3, True)):
        text = composed(composition, CHAT[:size], thinking=thinking)
        assert text == chat_template.render(CHAT[:size], kwargs={"thinking": thinking})


UNREAD = {
    "an attribute": (
        "{% set ns = namespace(text='', n=0) %}"
        "{% for m in messages %}{% set ns.text = ns.text + m.content %}{% endfor %}{{ ns.text }}"
        + loop("{{ m.content }}{% set ns.n = ns.n + 1 %}{{ ns.n > 2 }}")
    ),
    "a variable that each iteration sets first": (
        "{% set said = messages[0].content %}{{ said }}" + loop("{% set said = m.content %}{{ said }}")
    ),
    "what else a conversation has, as JSON": loop("{{ {'output': m.content, 'role': m.role} | tojson }}"),
    "a whole message as JSON": loop("{{ m | tojson(sort_keys=true, separators=(',', ':')) }}"),
    "a variable that an iteration writes": (
        "{% set said = messages[0].content %}" + loop("{{ said if loop.first }}{{ m.content }}", "messages[1:]")
    ),
    "a variable with the name of an argument": (
        "{% macro tell(said) %}{{ said }}{% endmacro %}{% set said = messages[0].content %}{{ said }}"
        + loop("{{ tell(m.content) }}")
    ),
}
"""Templates that long texts do not keep from being composed."""


@pytest.mark.parametrize("name", UNREAD)
def test_a_long_text_that_no_iteration_looks_into_does_not_matter(name: str) -> None:
    messages = [system("Be as brief as you can, and then some more. " * 3), *CHAT[1:]]
    composition = composition_of(template(UNREAD[name]))
    for size in range(1, len(messages) + 1):
        assert composed(composition, messages[:size]) == template(UNREAD[name]).render(messages[:size])
    others = [system("Be as long as you like, and then some more. " * 3), *CHAT[1:]]
    num_alike(template(UNREAD[name]), (messages, others, CHAT, CALLS))


def test_zeros_are_told_apart() -> None:
    chat_template = template(loop("{{ zero }}"))
    for zero in (0.0, -0.0, 0, False):
        assert composed(composition_of(chat_template), CHAT, zero=zero) == str(zero) * len(CHAT)


def test_what_is_recorded_once_serves_others() -> None:
    chat_template = template(twins.CHATML)
    assert chat_template.recordings is not None
    composed(composition_of(chat_template), CHAT)
    number = chat_template.recordings._num_kept
    others = [{**message, "content": f"{n} more"} for n, message in enumerate(CHAT * 9)]
    assert composed(composition_of(chat_template), others) == chat_template.render(others)
    assert chat_template.recordings._num_kept == number


@pytest.mark.parametrize(
    "written",
    ["m.content | upper", "m.content[:3]", "m.content | length", "loop.index", "m.content | e", "m.content < 'b'", "m"],
)
def test_what_cannot_be_recorded_is_given_up(written: str) -> None:
    with pytest.raises(OpaqueError):
        composed(composition_of(template(loop(f"{{{{ {written} }}}}"))), CHAT)


def test_a_template_that_rarely_is_composed_is_not_tried_for_ever() -> None:
    recordings = template(loop("{{ m.content | upper }}")).recordings
    assert recordings is not None
    assert recordings.are_worth_trying
    for _ in range(64):
        Composition(recordings, {}).note_failure()
    assert not recordings.are_worth_trying


def test_recordings_that_hardly_serve_again_are_not_made_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packer.render.composed.recordings._FEW_RECORDINGS", 20)
    chat_template = template(loop("{{ m.content }}{{ m.number }}"))
    numbered = [[{**message, "number": 10 * row + k} for k, message in enumerate(CHAT)] for row in range(10)]
    tried = 0
    for messages in numbered:
        recordings = composition_of(chat_template)._recordings
        if not recordings.are_worth_trying:
            break
        composed(Composition(recordings, {}), messages)
        tried += 1
    assert 0 < tried < 10
    plain = template(loop("{{ m.content }}"))
    for _ in range(50):
        composed(composition_of(plain), CHAT)
    assert plain.recordings is not None
    assert plain.recordings.are_worth_trying


def test_of_endless_shapes_no_more_are_kept_than_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor are the messages of other conversations."""
    monkeypatch.setattr("packer.render.composed.recordings._MAX_SHAPES", 64)
    chat_template = template(twins.CHATML)
    recordings = chat_template.recordings
    assert recordings is not None
    for number in range(200):
        messages = [{**message, "number": number} for message in CHAT]
        try:
            assert composed(composition_of(chat_template), messages) == chat_template.render(messages)
        except OpaqueError:
            assert number > 20
    assert len(recordings._shapes) <= 64
    assert len(recordings._shape_of) <= len(CHAT)


def test_a_recording_that_takes_too_long_fails_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def overrun(render: Any) -> Any:
        raise TemplateOverrunError.of("took too long", -1)

    monkeypatch.setattr("packer.render.composed.recordings.watched", overrun)
    monkeypatch.setattr("packer.render.environment.WORTH_COMPILING", 0)
    chat_template = template(twins.CHATML)
    assert ComposedTemplate(chat_template, len(CHAT)).render(CHAT) == chat_template.render(CHAT)
    assert chat_template.new_composition(len(CHAT)) is None


def test_texts_that_a_template_cuts_are_composed() -> None:
    """As Qwen3's template does: the reasoning within a text is written on its own, or left out of the history."""
    cut = "{% set said = m.content.split('</think>')[-1].lstrip('\n') %}"
    why = "{% set why = m.content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}"
    body = f"{{% if '</think>' in m.content %}}{cut}{why}[{{{{ why if loop.last }}}}]{{{{ said }}}}{{% else %}}-{{% endif %}}"
    chat_template = template(loop(body))
    before = f"<think>\n{'why ' * 9}\n</think>\n\n"
    messages = [user("a"), assistant(before + "b"), user("</think>"), assistant("<think>\n\n</think>\n\nc"), user("d")]
    others = [{**m, "content": m["content"].replace("why", "so").replace("b", "B")} for m in messages]
    for conversation in (messages, others):
        composition = composition_of(chat_template)
        for size in range(1, len(messages) + 1):
            text = composed(composition, conversation[:size])
            assert text == chat_template.render(conversation[:size])
            assert not text.shows(1), "the block is not written as the text has it"
    assert chat_template.recordings is not None
    assert chat_template.recordings._num_recorded <= 12, "texts of the same form share recordings"


def test_a_form_of_messages_that_the_template_refuses_does_not_end_composing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packer.render.environment.WORTH_COMPILING", 0)
    chat_template = template(loop("{{ raise_exception('a null') if m.content is none else m.content }}"))
    one = ComposedTemplate(chat_template, len(CHAT))
    with pytest.raises(RenderError, match="a null"):
        one.render([*CHAT[:-1], assistant(None)])
    assert isinstance(one.render(CHAT), ComposedText)
    assert chat_template.recordings is not None
    assert chat_template.recordings.num_failed == 0


@pytest.mark.parametrize("compare", [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne])
def test_an_answer_holds_from_a_number_of_messages_on(compare: Any) -> None:
    for base, other, shift in itertools.product((ITEM, SIZE, 2), (ZERO, ITEM, SIZE, 2), range(-3, 4)):
        for item, size, held in itertools.product(range(4), range(1, 6), range(-1, 3)):
            made = Compared(compare, base, other, shift, answer=True)
            made = made._replace(answer=made.holds((item, size, held)))
            answers = [made.holds((item, each, held)) for each in range(1, 20)]
            least = next((n for n in range(1, size + 1) if all(answers[n - 1 :])), None)
            found = made.least_size((item, size, held))
            if found is None:
                assert least is None or least == size, "it may have changed for the last time right here"
            else:
                assert least is not None
                assert least <= max(found, 1) <= size


@pytest.mark.parametrize("compare", [operator.lt, operator.le, operator.gt, operator.ge, operator.eq])
def test_an_answer_changes_only_where_it_is_said_to(compare: Any) -> None:
    """An integer that a namespace holds, compared with the index of the message or a constant, from either side."""
    for (base, other), shift in itertools.product(((2, ZERO), (2, ITEM), (ITEM, 2)), range(-3, 4)):
        made = Compared(compare, base, other, shift, answer=True)
        flips = made.flips()
        assert flips is not None
        for item in range(4):
            answers = {held: made.holds((item, 5, held)) for held in range(-9, 10)}
            least = [value + item if is_relative else value for _, value, is_relative in flips]
            assert [held for held in range(-8, 10) if answers[held] != answers[held - 1]] == sorted(least)
    assert Compared(compare, 2, SIZE, 0, answer=True).flips() is None
    assert Compared(compare, 2, 3, 0, answer=True).flips() is None
    assert Compared(compare, SIZE, ITEM, 0, answer=True).flips() == []


def test_messages_are_not_composed_again_for_each_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question changes the number that all messages are compared with, but hardly an answer."""
    last_question = (
        "{% set ns = namespace(last=0) %}"
        "{% for q in messages %}{% if q.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    )
    chat_template = template(last_question + loop("{{ m.content }}{{ '!' if loop.index0 > ns.last }}"))
    messages = [message for n in range(40) for message in (user(f"{n}?"), assistant(f"{n}."))]
    num_composed = 0
    compose = Composition._step

    def counted(self: Composition, *args: Any) -> Step:
        nonlocal num_composed
        num_composed += 1
        return compose(self, *args)

    monkeypatch.setattr(Composition, "_step", counted)
    composition = composition_of(chat_template)
    for size in (len(messages), *range(1, len(messages) + 1)):
        assert composed(composition, messages[:size]) == chat_template.render(messages[:size])
    assert num_composed < 3 * len(messages)


_FIND = "{% if q.role == 'user' %}{% set ns.at = loop.index0 %}{% endif %}{% endfor %}"
SEARCHES = {
    "from the end": (
        "{% set ns = namespace(searching=true, at=messages|length - 1) %}"
        "{% for q in messages[::-1] %}{% set index = messages|length - 1 - loop.index0 %}"
        "{% if ns.searching and q.role == 'user' %}{% set ns.searching = false %}{% set ns.at = index %}{% endif %}{% endfor %}"
    ),
    "from the first message on": "{% set ns = namespace(at=-1) %}{% for q in messages %}" + _FIND,
    "in what follows the first": "{% set ns = namespace(at=-1) %}{% set rest = messages[1:] %}{% for q in rest %}"
    + _FIND,
    "with a macro": (
        "{% macro text(q) %}{{ q.role }}{% endmacro %}{% set ns = namespace(at=-1) %}{{ tools | length if tools }}"
        "{% for q in messages %}" + _FIND.replace("q.role", "text(q)")
    ),
}
"""Ways in which templates look for the last question."""


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("shrinks", [False, True])
def test_what_comes_before_the_loop_does_not_run_for_messages_that_make_no_difference(
    name: str, shrinks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "{% set mark = '!' %}" + SEARCHES[name] + loop("{{ m.content }}{{ mark if loop.index0 > ns.at }}")
    chat_template = template(source)
    runs: list[Opening] = []
    run = Openings._run

    def kept(self: Openings, *args: Any) -> Opening:
        runs.append(run(self, *args))
        return runs[-1]

    monkeypatch.setattr(Openings, "_run", kept)
    calls = [{"function": {"name": "f", "arguments": {}}}]
    messages = [
        user("?"),
        *[{**assistant(f"{n}."), **({"tool_calls": calls} if n % 3 else {})} for n in range(60)],
        user("!"),
    ]
    messages += [assistant(f"{n};") for n in range(20)]
    composition = composition_of(chat_template)
    for size in range(len(messages), 1, -1) if shrinks else range(2, len(messages) + 1):
        assert composed(composition, messages[:size]) == chat_template.render(messages[:size])
    assert 0 < len({*map(id, runs)}) <= 5, "one for each question, and for each kind of message that is met first"


_TURN = "<{{ m.role }}>"
SHOWN = {
    "m.content": True,
    "m.content | trim": True,
    "m.content ~ '.' ~ m.content": True,
    "m.content ~ m.content": False,
    "'&' ~ m.content": False,
    "m.content ~ ';'": False,
    "m.content | tojson": False,
    "m.role": False,
    "(loop.previtem or {'content': ''}).content": False,
    "messages[0].content": False,
    "messages[loop.index0].content": True,
    "'same' if m.content else ''": False,
    "'&lt;' ~ m.content": False,
}


@pytest.mark.parametrize("written", SHOWN)
def test_a_text_is_known_to_show_only_where_it_is_written_as_it_is(written: str) -> None:
    text = composed(composition_of(template(loop(f"{_TURN}{{{{ {written} }}}}"))), CHAT)
    assert [text.shows(number) for number in range(1, len(CHAT))] == [SHOWN[written]] * (len(CHAT) - 1)
    assert text.is_unchanged(len(CHAT) - 1) == SHOWN[written]


def test_a_text_is_known_to_show_within_a_range_only_if_all_of_it_does() -> None:
    body = _TURN + "{{ m.content }}.{{ m.content if m.role == 'assistant' }}</{{ m.content if loop.index == 3 }}"
    text = composed(composition_of(template(loop(body))), CHAT)
    for number, message in enumerate(CHAT):
        places = [n for n in range(len(text)) if text.startswith(message["content"], n)]
        for start, end in itertools.combinations(range(len(text) + 1), 2):
            if text.shows_within(message, number, start, end):
                assert any(start <= place and place + len(message["content"]) <= end for place in places)
    assert text.shows_within(CHAT[1], 1, 0, len(text))
    begins = text.index("b.b")
    assert [text.shows_within(CHAT[2], 2, begins, begins + length) for length in (1, 3, 6)] == [False, False, True]


@pytest.mark.parametrize(
    ("written", "shows"),
    [
        ("{{ f.name }}: {{ f.arguments | tojson }}.", True),
        ("{{ f.name }}{{ f.arguments | tojson }}.", True),
        ("{{ f.name }}(a={{ f.arguments | tojson }})", False),
        ("{{ f.arguments | tojson }}{{ f.name }}", False),
        ("&{{ f.name }};{{ f.arguments | tojson }}", False),
        ("{{ f.name }}.", False),
        ("{{ f.arguments | tojson }}", False),
    ],
)
def test_a_call_is_known_to_show_only_where_it_is_no_other_call(written: str, shows: bool) -> None:
    body = f"{{% for c in m.tool_calls or [] %}}{{% set f = c.function %}}{written}{{% endfor %}}{{{{ m.content }}}}"
    assert composed(composition_of(template(loop(body))), CALLS).shows(1) == shows


def test_messages_that_the_loop_does_not_run_over_are_not_known_to_show() -> None:
    source = "{{ messages[1].tool_calls[0].function.arguments | tojson }}" + loop("{{ m.content }}", "messages[3:]")
    text = composed(composition_of(template(source)), [*CALLS, user("g"), assistant("h")])
    assert not any(text.shows(number) or text.is_unchanged(number) for number in range(3))
    assert not text.is_unchanged(5), "calls before the loop may have been written as something else"
    assert text.shows(4)


TOOLS_LIKE = r"""{% if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}{% for message in messages %}
{% if message.role == 'tool' %}
{% if loop.previtem.role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
{{ '\n<r>\n' + message.content + '\n</r>' }}
{%- if loop.last or loop.nextitem.role != 'tool' %}{{ '<|im_end|>\n' }}{% endif %}
{% else %}
{{ '<|im_start|>' + message.role + '\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{{ '\n<c>{"name": "' + call.function.name + '", "arguments": ' + call.function.arguments | tojson + '}</c>' }}
{%- endfor %}{{ '<|im_end|>\n' }}
{% endif %}
{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

ROWS = [
    CHAT,
    CHAT[1:],
    [*CHAT, *CHAT[3:]],
    [*CALLS[:-1], user("a"), assistant("a"), user("b"), assistant("x < y")],
    [
        *CALLS[:3],
        result("r"),
        assistant(None, tool_calls=[call("g", '{"q": "a"}')]),
        result('{"a": 1}'),
        assistant("b"),
    ],
    [user("a"), assistant("b", reasoning_content="c"), user("d"), assistant("e", reasoning_content="f")] * 2,
    [user("a"), assistant("<think>\nb\n</think>\n\nc"), user(" d "), assistant("  "), user("&lt;"), assistant("&amp;")],
    [user("a"), assistant("b"), user("c"), assistant("d"), assistant("e"), user("f"), assistant("b")],
]


@pytest.mark.parametrize("source", [twins.CHATML, twins.PHI_LIKE, twins.QWEN3_LIKE, twins.MISTRAL_LIKE, TOOLS_LIKE])
def test_a_batch_is_rendered_as_by_the_letter(source: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packer.render.environment.WORTH_COMPILING", 0)
    stages = Stages.load(twins.byte_level(tmp_path / "twin", template=source))
    for rule in ("exact", "as_rendered"):
        recipe = make_recipe({}, [f"supervision.history_rewrite={rule}", "supervision.no_terminator=append"])
        renderer = stages.with_template(source, recipe).renderer
        rows = batch(
            [
                chat(*row, row=number, tools=[TOOL, OTHER_TOOL] if tools else None)
                for number, (row, tools) in enumerate(itertools.product(ROWS, (False, True)))
            ]
        )
        recordings = assert_composed(renderer, rows)
        assert recordings.num_failed < recordings.num_tried
