"""Composed renderings of calls whose arguments a template walks through: each is what the template writes, or none."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st
from rendered_twice import assert_composed, batch
from supervision_stages import Stages, assistant, call, chat, result, user

from packer.recipe import make_recipe
from packer.render import ChatTemplate, RenderError
from packer.render.composed import ComposedText, Composition
from packer.render.symbolic import OpaqueError

Messages = Sequence[dict[str, Any]]


def template(inner: str) -> ChatTemplate:
    """Return a template that writes each call of a message as given, where `A` are its arguments."""
    body = (
        "{{ m.content }}.{% for c in m.tool_calls or [] %}{% set c = c.function %}{{ c.name }} "
        + inner
        + "{% endfor %}"
    )
    source = f"{{% set ns = namespace(x='') %}}{{% for m in messages %}}<{{{{ m.role }}}}>{body}{{% endfor %}}"
    return ChatTemplate(source.replace("A", "c.arguments"), date="2026-01-01", variables={}, max_bytes=2**24)


def composed(chat_template: ChatTemplate, messages: Messages) -> ComposedText:
    assert chat_template.recordings is not None
    return Composition(chat_template.recordings, {}).text(messages, None, {}, add_generation_prompt=False)


def num_composed(chat_template: ChatTemplate, conversations: Sequence[Messages]) -> int:
    """Compose all beginnings of conversations; return how many could be. Each is what the template writes."""
    number = 0
    for messages in conversations:
        for size in range(1, len(messages) + 1):
            try:
                text = composed(chat_template, messages[:size])
            except OpaqueError:
                continue
            number += 1
            try:
                assert text == chat_template.render(messages[:size])
            except RenderError as error:
                pytest.fail(f"the template raises: {error}")
    return number


def calling(*arguments: Any) -> list[dict[str, Any]]:
    calls = [assistant("x", tool_calls=[call("f", each)]) for each in arguments]
    return [user("a"), *calls, result("r"), assistant("b")]


TEXTS = {"city": "Paris", "blank": " ", "no": ""}
NUMBERS = {"n": 5, "x": 1.0, "long": 10**20, "little": 1e-7, "minus": -0.0}
CONSTANTS = {"yes": True, "never": False, "none": None, "e": {}, "l": []}
EVERY_KIND = {**TEXTS, **NUMBERS, **CONSTANTS, "all": [1, {"b": "é"}], "object": {"k": ["<", None]}}
CONVERSATIONS = [
    calling(EVERY_KIND, {}, EVERY_KIND, {"q": "a"}),
    calling({"": 1, " ": 2, "type": "x", "role": "user", "items": "&amp;", "arguments": {"a": 1}}),
    calling({"q": float("nan"), "r": float("inf"), "s": 'say "hi"'}, '{"q": 1}', "", None),
    [user("a"), *[assistant("x", tool_calls=[call("f", each)] * 2) for each in [{"q": "b"}, {"q": 2}]], user("5")],
]
WALKS = (
    "{% for k, v in A.items() %}<k>{{ k }}</k><v>{{ v if v is string else v | tojson }}</v>{% endfor %}",
    "{% for k, v in A | items %}{{ k }}\n{{ v | tojson | safe if v is mapping else v | string }}\n{% endfor %}",
    "{% for k in A %}{{ k ~ '=' }}{{ '%s' | format(A[k]) }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for k in A.keys() %}{{ k }}{% endfor %}{% for v in A.values() %}{{ v ~ '.' }}{% endfor %}{{ A | length }}",
    "{{ A | tojson }}{% for k, v in A.items() %}{{ {'k': k, 'v': v} | tojson(sort_keys=true) }}{% endfor %}{{ A }}",
    "{% for k, v in A.items() if v is not none %}{{ loop.index }}{{ k }}{{ v is number }}{{ v is boolean }}{% endfor %}",
    "{% for k, v in A.items() %}{{ [k, v] | join(0) }}{{ v | trim }}{{ k | length > 0 }}{{ v == 'Rome' }}{% endfor %}",
    "{% set items = A.items() %}{% for k, v in items %}{{ k }}{% endfor %}{% for k, v in items %}{{ v }}{% endfor %}",
)


@pytest.mark.parametrize("inner", WALKS)
def test_templates_that_walk_through_arguments_are_composed(inner: str) -> None:
    chat_template = template(f"{{% if A is mapping %}}{inner}{{% endif %}}")
    assert num_composed(chat_template, CONVERSATIONS) == sum(map(len, CONVERSATIONS))


@pytest.mark.parametrize("asked", ["A.items()", "A.keys()", "A.keys() == {'': 1}.keys()"])
def test_what_kind_of_view_arguments_have_is_not_taken_for_known(asked: str) -> None:
    num_composed(template(f"{{% if A is mapping %}}{{{{ {asked} }}}}{{% endif %}}"), [calling({"": True}, {"": None})])


def test_one_recording_serves_for_all_keys() -> None:
    chat_template = template(WALKS[0])
    composed(chat_template, calling({"q": "a", "n": 1}))
    recordings = chat_template.recordings
    assert recordings is not None
    number = recordings._num_kept
    assert num_composed(chat_template, [calling({f"key {n}": "é", f"other {n}": n}) for n in range(9)]) == 9 * 4
    assert recordings._num_kept == number


def test_arguments_are_no_part_of_a_shape_until_a_template_walks_through_them() -> None:
    chat_template = template("{{ A | tojson }}{{ A }}{{ A is mapping }}{{ A is sequence }}{{ 1 if A }}{{ A == '' }}")
    composed(chat_template, calling({"q": "a"}))
    recordings = chat_template.recordings
    assert recordings is not None
    number = recordings._num_kept
    assert num_composed(chat_template, [calling(EVERY_KIND), calling({"n": 1}), calling({"n": [1]})]) == 3 * 4
    assert recordings._num_kept == number


REFUSED = (
    *("v + 1", "v * 2", "-v", "v > 3", "v | int", "v | round", "v or 1", "v == 5", "v is integer", "v is sameas true"),
    *(
        "v.real",
        "v['x']",
        "'abc'[v:]",
        "['a', 'b'][v]",
        "{'a': 1}[k]",
        "range(v) | list",
        "k | upper",
        "k[0]",
        "[v] | sum",
    ),
    *(
        "A.q",
        "A['q']",
        "A.get(k)",
        "'q' in A",
        "k in A",
        "A.update({'z': 1})",
        "A.pop(k)",
        "A | dictsort",
        "dict(A) | length",
    ),
    *(
        "A.items() | list | string",
        "A == {'q': 5}",
        "A.keys() | list | sort",
        "{'a': {'b': A}} | tojson(indent=2)",
        "A | list",
    ),
    *(
        "'%s' % v",
        "'%s' % (v,)",
        "'{}'.format(v)",
        "'%d' | format(v)",
        "','.join(A)",
        "','.join(A.values())",
        "[v, 3] | max",
    ),
    *(
        "v | safe + '<'",
        "'<' + v | safe",
        "k | safe + k",
        "k + '<'|safe",
        "'<'|safe + k",
        "(k | safe) == 'q'",
        "k | safe | e",
    ),
    *(
        "k | safe | string + '<'",
        "k | safe | trim + '<'",
        "'q' in k | safe",
        "1 if k | safe",
        "k | safe is escaped",
        "k | e",
    ),
    *(
        "v | string | tojson",
        "v | tojson | tojson",
        "k | length",
        "k | length > 1",
        "k | length + 1",
        "v | list",
        "v is iterable",
    ),
)


@pytest.mark.parametrize("asked", REFUSED)
def test_what_arguments_cannot_answer_is_refused(asked: str) -> None:
    with pytest.raises(OpaqueError):
        composed(template(f"{{% for k, v in A.items() %}}{{{{ {asked} }}}}{{% endfor %}}"), calling({"q": 5}))


LOOSER = (
    *(
        "','.join({'a': m.content}.values()) == 'x'",
        "[m.content] | sum",
        "{'a': messages} | tojson",
        "A.items() is sequence",
    ),
    *(
        "A.items()[0] is defined",
        "A | items | length",
        "A.values() is sequence",
        "(k | length) is number",
        "v | string == 'x'",
    ),
    *(
        "(v | string) | length > 0",
        "'q' == k",
        "k in ['q', 'n']",
        "'x' in A.values()",
        "v is defined",
        "v | default('d')",
    ),
    *(
        "k | safe ~ '<'",
        "[k | safe, '<'] | join('&' | safe)",
        "k | safe | replace('q', '<') + '<'",
        "k | safe | tojson",
    ),
    *(
        "loop.changed(v)",
        "loop.previtem is defined",
        "'100%% %s' | format(v)",
        "[[v]] | tojson",
        "v | tojson(indent=2)",
        "[k, v] | tojson(indent=2)",
    ),
)
"""What looser rules would compose otherwise."""


@pytest.mark.parametrize("asked", LOOSER)
def test_what_arguments_answer_is_so(asked: str) -> None:
    inner = f"{{% if A is mapping %}}{{% for k, v in A.items() %}}{{{{ {asked} }}}}{{% endfor %}}{{% endif %}}"
    num_composed(template(inner), CONVERSATIONS)


@pytest.mark.parametrize("asked", ["messages[1].tool_calls[0].function.arguments | length", "v | length", "v | tojson"])
def test_only_the_arguments_of_the_message_itself_are_walked_through(asked: str) -> None:
    chat_template = template(f"{{% for v in A.values() %}}{{{{ {asked} }}}}{{% endfor %}}")
    several = [
        calling(first, {"q": {"a": 1}}) for first in ({"q": {"a": 1}}, {"q": {"a": 1, "b": 2}}, {"q": {}, "r": {}})
    ]
    num_composed(chat_template, several)


def test_a_template_that_raises_is_not_given_arguments() -> None:
    chat_template = template("{{ raise_exception('a null') if m.content is none else A | tojson }}")
    with pytest.raises(OpaqueError):
        composed(chat_template, [user("a"), assistant(None, tool_calls=[call("f", {"q": "a"})])])
    assert chat_template.recordings is not None
    assert not chat_template.recordings._walks


def test_json_is_not_confused_by_what_stands_for_unknown_values() -> None:
    source = "{% for m in messages %}{{ [m.role, m.content] | tojson }}{% endfor %}"
    chat_template = ChatTemplate(source, date="2026-01-01", variables={}, max_bytes=2**20)
    assert num_composed(chat_template, [[{"role": role, "content": "a"}] for role in ("user", "\ue0f50\ue0f5")]) == 1


def test_a_number_that_python_does_not_write_raises_as_in_the_template() -> None:
    long = calling({"q": 10**5000})
    for inner in ("{{ v }}", "{{ v | tojson }}", "{% set x = v | string %}", "{{ (A | tojson) | length > 0 }}"):
        for known in ([], [calling({"q": 1})]):
            chat_template = template(f"{{% for k, v in A.items() %}}{inner}{{% endfor %}}")
            for messages in known:
                composed(chat_template, messages)
            with pytest.raises(RenderError):
                chat_template.render(long)
            with pytest.raises(OpaqueError):
                composed(chat_template, long)


_texts = st.sampled_from(
    ["", " ", "x", "q", "5", "True", 'a "b"', "it's", "&lt;", "<é>\n", "\\", "user", "\ue0f50\ue0f5", "{}"]
)
_scalars = st.one_of(_texts, _texts, st.integers(-3, 3), st.floats(), st.booleans(), st.none(), st.integers())
_values = st.recursive(
    _scalars, lambda each: st.lists(each, max_size=2) | st.dictionaries(_texts, each, max_size=2), max_leaves=4
)
_arguments = st.one_of(
    st.dictionaries(_texts, _values, max_size=3), st.dictionaries(_texts, _values, max_size=3), _values
)
_asked = st.sampled_from(
    [*REFUSED, *LOOSER, "v", "k", "v | tojson", "v | string", "v is string", "loop.last", "A | tojson"]
)
_inner = st.one_of(st.sampled_from(WALKS), st.lists(_asked, min_size=1, max_size=3).map(
    lambda asked: f"{{% for k, v in A.items() %}}{''.join(f'{{{{ {each} }}}}' for each in asked)}{{% endfor %}}"
))  # fmt: skip


@given(inner=_inner, several=st.lists(st.lists(_arguments, min_size=1, max_size=3), min_size=2, max_size=4))
def test_what_is_composed_is_the_rendering(inner: str, several: list[list[Any]]) -> None:
    chat_template = template(f"{{% if A is mapping %}}{inner}{{% else %}}{{{{ A }}}}{{% endif %}}")
    num_composed(chat_template, [calling(*arguments) for arguments in several])


SHOWN = {
    "{{ k }}: {{ v if v is string else v | tojson }}. ": True,
    "{{ k }}: {{ v }}. ": False,  # an array as Python writes it
    "{{ k }}: {{ v | tojson }}. ": True,
    "{{ k }}: {{ v | tojson if v is sequence and v is not string else v | string }}. ": True,
    "{{ k | trim }}: {{ v | tojson }}. ": True,
    "{{ v | tojson }}. ": False,
    "{{ k }}. ": False,
    "{{ k }}: {{ v if v is string }}. ": False,
    "{{ k }}: {{ v | tojson }}; ": False,
    "{{ k }}{{ v }}. ": False,
}


@pytest.mark.parametrize("written", SHOWN)
def test_arguments_are_known_to_show_only_where_each_is_written_with_its_key(written: str) -> None:
    chat_template = template(f"{{% for k, v in A.items() %}}{written}{{% endfor %}}")
    messages = calling({"q": "a", "n": 1, "all": [1]}, {"yes": True}, {"blank": " "}, {"e": {}})
    text = composed(chat_template, messages)
    assert text.shows(1) == SHOWN[written]
    assert not text.is_unchanged(1), "whether each call can be read back is another question"
    assert not text.shows(2)
    assert not text.shows(3)
    assert text.is_unchanged(0)


GLM_LIKE = """{% for m in messages %}{% if m.role == 'tool' %}<|im_start|>tool
{{ {'output': m.content} | tojson }}<|im_end|>
{% else %}<|im_start|>{{ m.role }}
{{ m.content or '' }}{% for c in m.tool_calls or [] %}{% set c = c.function %}<tool_call>{{ c.name }}
WALK</tool_call>{% endfor %}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
IN_CALLS = (
    "{% for k, v in c.arguments.items() %}<k>{{ k }}</k><v>{{ v if v is string else v | tojson }}</v>{% endfor %}",
    "{% for k, v in c.arguments.items() %}{% if v is not none %}{{ k }} {{ v }} {% endif %}{% endfor %}",
    '{% for k, v in c.arguments.items() %}"{{ k }}": "{{ v }}", {% endfor %}',
    "({% for k, v in c.arguments.items() %}{{ k }}={{ v | tojson }}{% if not loop.last %}, {% endif %}{% endfor %})",
    "{% for k, v in c.arguments.items() %}{{ k }} {{ loop.index }} {% endfor %}",
    "{% for k, v in c.arguments.items() %}{{ v }} {% endfor %}",
)
ARGUMENTS: tuple[dict[str, Any], ...] = (
    *({"q": "a", "n": 1}, {"city": 'say "hi"'}, {"yes": True, "none": None}, EVERY_KIND, {}, {"q": "f(q=1)"}),
    *({"q": "&lt;", "amp": "&"}, {"a long key": "a long text of many words"}, {"q": ["a", {"b": "é"}], "x": 2.5}),
)


@pytest.mark.parametrize("inner", IN_CALLS)
def test_a_batch_is_rendered_as_by_the_letter(inner: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packer.render.environment.WORTH_COMPILING", 0)
    source = GLM_LIKE.replace("WALK", inner)
    recipe = make_recipe({}, ["supervision.no_terminator=append"])
    renderer = Stages.load(twins.byte_level(tmp_path / "twin", template=source)).with_template(source, recipe).renderer
    conversations = [
        [
            *(user(json.dumps(first)), assistant("x", tool_calls=[call("f", first)]), result("r"), assistant("b")),
            *(user("c"), assistant(None, tool_calls=[call("f", second)]), result("s"), assistant("d")),
        ]
        for first in ARGUMENTS
        for second in ARGUMENTS
    ]
    rows = batch([chat(*messages, row=number) for number, messages in enumerate(conversations)])
    recordings = assert_composed(renderer, rows)
    assert recordings.num_tried == len(conversations)
    assert recordings.num_failed == 0
