"""Silent loss: what a row says and a template leaves out rejects the row, unless the recipe allows it."""

from pathlib import Path
from typing import Any

import pytest
import twins
from supervision_stages import Stages, assistant, call, chat, result, system, user

from packer.render.readback import added_escape

SHOWS_ALL = """\
{% for message in messages %}
{{ '<|im_start|>' + message.role + '\\n' }}
{%- if message.reasoning_content %}{{ '<think>' + message.reasoning_content + '</think>' }}{% endif %}
{{- message.content or '' }}
{%- for call in message.tool_calls or [] %}
{{- '<call>' + call.function.name + call.function.arguments | tojson + '</call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

SKIPS = {
    "system": SHOWS_ALL.replace("in messages %}", "in messages if message.role != 'system' %}"),
    "user": SHOWS_ALL.replace("message.content or ''", "message.content if message.role != 'user' else '?'"),
    "tool_result": SHOWS_ALL.replace("in messages %}", "in messages if message.role != 'tool' %}"),
    "reasoning": SHOWS_ALL.replace("if message.reasoning_content", "if false"),
    "tool_call": SHOWS_ALL.replace("message.tool_calls or []", "[]"),
    "content": SHOWS_ALL.replace("message.content or ''", "'' if message.tool_calls else message.content"),
}

LONG = (
    system("You are an assistant for travellers."),
    user("What is the weather in Paris today?"),
    assistant(
        "Let me look that up for you.",
        reasoning_content="The weather is behind a tool.",
        tool_calls=[call("current_weather", {"city": "Paris in France"})],
    ),
    result("It is raining cats and dogs."),
    assistant("It rains a great deal in Paris."),
)
SHORT = (
    system("Be"),
    user("a"),
    assistant("b", reasoning_content="c", tool_calls=[call("f", {"x": "d"})]),
    result("e"),
    assistant("g"),
)
"""Every text stands in the rendering by chance, so only a word made for the purpose can tell."""


def stages_of(folder: Path, template: str, *overrides: str) -> Stages:
    """The definition; that the fast way loses no less is tested in test_clear_losses."""
    return Stages.load(twins.byte_level(folder, template=template), *overrides).by_reference()


def outcome(folder: Path, template: str, messages: tuple[dict[str, Any], ...], *overrides: str) -> Any:
    batch = stages_of(folder, template, *overrides).render([chat(*messages)])
    return [rejection.code for rejection in batch.rejections] or batch.turn_message.tolist()


@pytest.mark.parametrize("messages", [LONG, SHORT], ids=["long", "short"])
def test_a_template_that_shows_everything_passes(tmp_path: Path, messages: Any) -> None:
    assert outcome(tmp_path, SHOWS_ALL, messages) == [2, 4]


@pytest.mark.parametrize("messages", [LONG, SHORT], ids=["long", "short"])
@pytest.mark.parametrize("kind", SKIPS)
def test_what_a_template_drops_rejects_the_row(tmp_path: Path, kind: str, messages: Any) -> None:
    assert outcome(tmp_path, SKIPS[kind], messages) == [f"dropped_{kind}"]


@pytest.mark.parametrize("kind", SKIPS)
def test_allow_dropped_lets_exactly_that_kind_through(tmp_path: Path, kind: str) -> None:
    others = [other for other in SKIPS if other != kind]
    kept = [4] if kind == "tool_call" else [2, 4]  # what says less than its call would teach to stop in front of it
    assert outcome(tmp_path, SKIPS[kind], LONG, f"supervision.allow_dropped=[{kind}]") == kept
    assert outcome(tmp_path, SKIPS[kind], LONG, f"supervision.allow_dropped=[{','.join(others)}]") == [
        f"dropped_{kind}"
    ]


def test_a_tool_result_that_later_turns_drop_is_rewriting_and_not_loss(tmp_path: Path) -> None:
    """Shown to the turn that answers it, gone after the next question."""
    asked_again = "messages | selectattr('role', 'equalto', 'user') | list | length > 1"
    forgets = SHOWS_ALL.replace("in messages %}", f"in messages if not (message.role == 'tool' and {asked_again}) %}}")
    talk = (*LONG, user("Thank you very much!"), assistant("Nothing more."))
    assert sorted(outcome(tmp_path, forgets, talk)) == [2, 4, 6]


def test_text_a_template_trims_at_its_ends_is_not_lost(tmp_path: Path) -> None:
    trims = SHOWS_ALL.replace("message.content or ''", "message.content | trim")
    talk = (user("  What is the weather? \n"), assistant("\n It is raining. "))
    assert outcome(tmp_path, trims, talk) == [1]


def test_arguments_may_be_written_as_ascii_but_not_as_json_within_json(tmp_path: Path) -> None:
    turn = assistant(None, tool_calls=[call("current_weather", {"city": 'Köln "am Rhein"'})])
    ascii_only = SHOWS_ALL.replace("tojson", "tojson(ensure_ascii=true)")
    assert outcome(tmp_path, ascii_only, (user("What is the weather?"), turn)) == [1]
    quoted = SHOWS_ALL.replace("tojson", "tojson | tojson")
    assert outcome(tmp_path, quoted, (user("What is the weather?"), turn)) == ["mangled_call"]


QUOTED = """'"' ~ name ~ '": "' ~ value ~ '"'"""
"""A pair of JSON without the escapes that its text may need."""


def test_texts_of_a_call_stand_between_quotation_marks_with_their_escapes(tmp_path: Path) -> None:
    """VLLM's pythonic template of Llama 3.2 writes `f(city=San Francisco)`, which no server reads as a call."""
    call_as_json = "{{- '<call>' + call.function.name + call.function.arguments | tojson + '</call>' }}"
    each = "{%- for name, value in call.function.arguments.items() %}{{ PAIR }}{%- endfor %}"
    bare = SHOWS_ALL.replace(
        call_as_json, "{{- call.function.name }}(" + each.replace("PAIR", "name ~ '=' ~ value") + ")"
    )
    raw = SHOWS_ALL.replace(call_as_json, "{{- call.function.name ~ '{' }}" + each.replace("PAIR", QUOTED) + "}")
    assert SHOWS_ALL not in (bare, raw)
    plain, quoted = called(city="San Francisco"), called(city='San "Frisco" Francisco')
    assert outcome(tmp_path, bare, plain) == ["mangled_call"]
    assert outcome(tmp_path, bare, called(days=7)) == [1]
    assert outcome(tmp_path, raw, quoted) == ["mangled_call"]
    assert outcome(tmp_path, raw, plain) == [1]
    assert outcome(tmp_path, raw.replace(QUOTED, "(name | tojson) ~ ': ' ~ (value | tojson)"), quoted) == [1]


def called(**arguments: Any) -> tuple[dict[str, Any], ...]:
    return user("What is the weather?"), assistant(None, tool_calls=[call("current_weather", arguments)])


VALUES = [7, 7.5, 123456789012345, True, False, None, [1, [2]], {"a": {"b": 3}}, ["Paris in France"], {"a": ["x"]}]


@pytest.mark.parametrize(
    ("spelled", "code"), [("tojson", None), ("string", None), ("list | tojson", "dropped_tool_call")]
)
def test_argument_values_of_every_type_are_not_lost_as_json_or_python_and_their_loss_rejects_the_row(
    tmp_path: Path, spelled: str, code: str | None
) -> None:
    template = SHOWS_ALL.replace("arguments | tojson", f"arguments | {spelled}")
    stages = stages_of(tmp_path, template)
    rows = [chat(*called(city=value), row=row) for row, value in enumerate(VALUES)]
    found = {each.row: each.code for each in stages.render(rows).rejections}
    assert [found.get(row) for row in range(len(VALUES))] == [code] * len(VALUES)


STRINGS = "arguments.items() | selectattr(1, 'string') | list | tojson"


@pytest.mark.parametrize(
    ("shown", "arguments", "found"),
    [
        (f"call.function.{STRINGS}", {"city": "Paris in France"}, [1]),
        (f"call.function.{STRINGS}", {"city": "Paris in France", "days": 3}, ["dropped_tool_call"]),
        ("'days: ' ~ (call.function.arguments.days | int)", {"days": 1234567.0}, [1]),
        ("call.function.arguments.values() | list | tojson", {"city": "Paris in France"}, ["dropped_tool_call"]),
        ("call.function.arguments | tojson", None, [1]),
        ("'!'", '{"city": "Paris in France"}', ["dropped_tool_call"]),
    ],
)
def test_a_call_that_is_not_shown_with_all_its_arguments_rejects_the_row(
    tmp_path: Path, shown: str, arguments: Any, found: list[Any]
) -> None:
    turn = assistant(None, tool_calls=[call("current_weather", arguments)])
    template = SHOWS_ALL.replace("call.function.arguments | tojson", shown)
    assert outcome(tmp_path, template, (user("What is the weather?"), turn)) == found


# -- tool definitions ------------------------------------------------------------------------------------------------------

WITH_TOOLS = "{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}" + SHOWS_ALL


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "?", "parameters": {}}}


def tools_outcome(folder: Path, template: str, *names: str, overrides: tuple[str, ...] = ()) -> Any:
    batch = stages_of(folder, template, *overrides).render([chat(*LONG, tools=[tool(name) for name in names])])
    return [(rejection.code, rejection.reason) for rejection in batch.rejections] or batch.turn_message.tolist()


DROPPED_TOOLS = [("dropped_tools", "the template does not render the tool definitions, or not all of their parameters")]


@pytest.mark.parametrize("names", [("current_weather",), ("a", "b"), ("a_long_name_of_a_tool", "b")])
def test_tool_definitions_a_template_drops_reject_the_row(tmp_path: Path, names: tuple[str, ...]) -> None:
    """A call of the tool, or a letter, stands in the rendering anyway; that is not its definition."""
    assert tools_outcome(tmp_path, WITH_TOOLS, *names) == [2, 4]
    assert tools_outcome(tmp_path, SHOWS_ALL, *names) == DROPPED_TOOLS
    allowed = ("supervision.allow_dropped=[tools]",)
    assert tools_outcome(tmp_path, SHOWS_ALL, *names, overrides=allowed) == [2, 4]


def test_one_tool_definition_that_is_missing_rejects_the_row(tmp_path: Path) -> None:
    first = WITH_TOOLS.replace("tools or []", "(tools or [])[:1]")
    assert tools_outcome(tmp_path, first, "current_weather") == [2, 4]
    assert tools_outcome(tmp_path, first, "current_weather", "current_time") == DROPPED_TOOLS


POSTCODE = {"postcode": {}, "calendar": {}}
ASKING = (user("sun?"), assistant(None, tool_calls=[call("current_weather", {"city": "Oslo"})]))
"""A call names every parameter that it fills; a model that is asked later has to know them beforehand."""


@pytest.mark.parametrize(
    ("messages", "parameters"),
    [
        (LONG, {"type": "object", "properties": POSTCODE}),
        (LONG, POSTCODE),
        (ASKING, {"type": "object", "properties": {"city": {}}, "required": ["city"]}),
    ],
)
def test_parameters_that_a_template_drops_or_only_the_calls_show_reject_the_row(
    tmp_path: Path, messages: Any, parameters: dict[str, Any]
) -> None:
    tools = [tool("current_weather") | {"function": {"name": "current_weather", "parameters": parameters}}]
    rejected, kept = (
        stages_of(tmp_path / name, template).render([chat(*messages, tools=tools)])
        for name, template in {"names": WITH_TOOLS, "all": "{{ tools | tojson }}" + SHOWS_ALL}.items()
    )
    assert [(each.code, each.reason) for each in rejected.rejections] == DROPPED_TOOLS
    assert not kept.rejections


@pytest.mark.parametrize(
    "declared",
    [
        {"parameter_definitions": {"city": {"type": "str"}}},
        {"required_parameters": [{"name": "city", "type": "STRING"}]},
        {"parameters": [{"name": "city"}]},
        {"args_schema": {"type": "object", "properties": {"city": {"type": "string"}}}},
    ],
)
def test_parameters_under_another_key_that_a_template_drops_reject_the_row(
    tmp_path: Path, declared: dict[str, Any]
) -> None:
    """The call names them, so that they stand in the rendering anyway."""
    tools = [{"type": "function", "function": {"name": "current_weather", "description": "?", **declared}}]
    schema = "{% for tool in tools or [] %}{{ tool.function.name }} {{ tool.function.parameters | tojson }}{% endfor %}"
    for name, template, expected in (
        ("schema", schema.replace("parameters |", "parameters or {} |") + SHOWS_ALL, DROPPED_TOOLS),
        ("all", "{{ tools | tojson }}" + SHOWS_ALL, []),
    ):
        outcome = stages_of(tmp_path / name, template).render([chat(*ASKING, tools=tools)])
        is_shown = "parameters" in declared and name == "schema"
        assert [(each.code, each.reason) for each in outcome.rejections] == ([] if is_shown else expected)


@pytest.mark.parametrize("parameters", [{}, {"parameters": {}}, {"parameters": {"type": "object"}}])
def test_what_a_tool_without_parameters_returns_may_be_left_out(tmp_path: Path, parameters: dict[str, Any]) -> None:
    """As that of a tool with parameters may be; examples and errors are no parameters either."""
    of_result = {"type": "object", "properties": {"celsius": {"type": "number"}}}
    beside = {"returns": of_result, "errors": [{"name": "busy"}], "annotations": {"audience": {"only": "people"}}}
    tools = [{"type": "function", "function": {"name": "current_weather", **parameters, **beside}}]
    outcome = stages_of(tmp_path, WITH_TOOLS).render([chat(*ASKING, tools=tools)])
    assert not outcome.rejections


def test_a_tag_in_the_reasoning_of_a_call_without_a_text_loses_nothing(tmp_path: Path) -> None:
    asked = assistant(
        "", reasoning_content="I may write <think>.", tool_calls=[call("current_weather", {"city": "Oslo"})]
    )
    assert not stages_of(tmp_path, SHOWS_ALL).render([chat(user("sun?"), asked)]).rejections


CALLED = (
    user("Weather in Paris?"),
    assistant("Let me see.", tool_calls=[call("current_weather", {"city": "Paris in France"})]),
)
BEHIND = SHOWS_ALL.replace("{{- message.content or '' }}", "{{- (message.content or '') + '<|im_end|>\\n' }}")


def test_a_call_behind_the_end_of_its_turn_is_called_that(tmp_path: Path) -> None:
    row = chat(*CALLED)
    reasons = [
        stages_of(tmp_path / name, template).render([row]).rejections[0].reason
        for name, template in {"early": BEHIND, "none": BEHIND.replace("message.tool_calls", "[]")}.items()
    ]
    assert reasons == [
        "messages[1]: the template writes its tool call behind the stop token that ends the turn, where nothing is trained",
        "messages[1]: the template does not render its tool call",
    ]


def test_tools_renamed_by_a_template_are_not_lost(tmp_path: Path) -> None:
    assert tools_outcome(
        tmp_path, WITH_TOOLS.replace("tool.function.name", "tool.function.name | replace('_', '-')"), "a_b_c"
    ) == [2, 4]


def test_where_the_template_raises_on_unknown_tool_names_the_names_count(tmp_path: Path) -> None:
    raises = (
        "{% for tool in tools %}{% if 'e' not in tool.function.name %}{{ raise_exception('?') }}{% endif %}{% endfor %}"
    )
    assert tools_outcome(tmp_path, raises + WITH_TOOLS, "the_time") == [2, 4]
    assert tools_outcome(tmp_path, raises + SHOWS_ALL, "the_time") == DROPPED_TOOLS


# -- what is remembered ----------------------------------------------------------------------------------------------------

RAISES = SHOWS_ALL.replace(
    "{% for message in messages %}",
    "{% for message in messages %}{% if 'Zq' in (message.content or '') %}{{ raise_exception('no') }}{% endif %}",
)


def test_where_the_template_raises_on_the_probe_the_texts_count(tmp_path: Path) -> None:
    assert outcome(tmp_path, RAISES, SHORT) == [2, 4]
    assert outcome(tmp_path, RAISES, LONG) == [2, 4]
    cut = RAISES.replace("message.content or ''", "(message.content or '')[:5]")
    assert outcome(tmp_path, cut, LONG) == ["dropped_system"]


RAISES_FOR_STRICT = (
    "{% if 'strict' in messages[0].name and 'Zq' in messages[0].content %}{{ raise_exception('no') }}{% endif %}"
)
DROPS_SHORT = SHOWS_ALL.replace("message.content or ''", "message.content if message.role != 'user' else 'a b'")
KNOWS_ANN = SHOWS_ALL.replace(
    "message.content or ''", "message.content if message.role != 'user' or message.name == 'ann' else 'a'"
)
QUIET = SHOWS_ALL.replace("message.content or ''", "message.content if not quiet or message.role != 'user' else 'a'")


@pytest.mark.parametrize(
    ("template", "named", "quiet"),
    [
        # it raises on the probe of rows with this name, and drops all short user messages
        (RAISES_FOR_STRICT + DROPS_SHORT, ["strict", "free", "strict", "free"], []),
        (KNOWS_ANN, ["ann", "bob", "ann", "eve"], []),
        (QUIET, ["a"] * 4, [1, 3]),
    ],
)
def test_what_a_template_drops_of_a_row_is_not_known_from_another_of_its_shape(
    tmp_path: Path, template: str, named: list[str], quiet: list[int]
) -> None:
    stages = stages_of(tmp_path, template)
    rows = [
        chat(user("a") | {"name": name}, assistant("b"), row=row, quiet=row in quiet) for row, name in enumerate(named)
    ]
    assert [(r.row, r.code) for r in stages.render(rows).rejections] == [(1, "dropped_user"), (3, "dropped_user")]


def test_a_message_after_the_last_turn_may_be_dropped(tmp_path: Path) -> None:
    assert outcome(tmp_path, SKIPS["tool_result"], (*LONG[:3], result("It is raining cats and dogs."))) == [2]


@pytest.mark.parametrize("kind", ["system", "tool_result"])
def test_a_message_is_missed_even_where_another_one_says_the_same(tmp_path: Path, kind: str) -> None:
    said = "You are a pirate captain, arr"
    first = system(said) if kind == "system" else user("What did the parrot say?")
    messages = (first, user(said), assistant("x", tool_calls=[call("f", {"y": "z"})]), result(said), assistant(said))
    assert outcome(tmp_path / "drops", SKIPS[kind], messages) == [f"dropped_{kind}"]
    assert outcome(tmp_path / "shows", SHOWS_ALL, messages) == [2, 4]


def test_a_call_behind_the_stop_token_of_its_text_is_lost(tmp_path: Path) -> None:
    """Generation ends at the first stop token, so that the call would never be learned."""
    short = (user("?"), assistant("b", tool_calls=[call("f", {"x": "d"})]))
    assert outcome(tmp_path / "c", BEHIND, short) == ["dropped_tool_call"]
    assert outcome(tmp_path / "d", BEHIND, CALLED, "supervision.allow_dropped=[tool_call]") == ["nothing_trained"]


PARTS_ONLY = """\
{% for message in messages %}
{{ '<|im_start|>' + message.role + '\\n' }}
{%- for part in message.content %}{{ part.text + '' }}{% endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


def test_a_template_that_takes_only_parts_is_given_parts_and_losses_are_still_seen(tmp_path: Path) -> None:
    said = (user("What is the weather?"), assistant("It rains a great deal."))
    assert outcome(tmp_path / "a", PARTS_ONLY, said) == [1]
    deaf = PARTS_ONLY.replace("part.text + ''", "part.text + '' if message.role == 'assistant' else '?'")
    assert outcome(tmp_path / "b", deaf, said) == ["dropped_user"]
    mute = PARTS_ONLY.replace("part.text + ''", "(part.text + '')[:1]")
    assert outcome(tmp_path / "c", mute, (user("a"), assistant("bcd"))) == ["dropped_content"]


def test_a_template_that_is_silent_about_strings_is_given_parts(tmp_path: Path) -> None:
    """SmolVLM's goes through the characters of a string as if they were parts, and writes nothing."""
    silent = PARTS_ONLY.replace("part.text + ''", "part.text")
    stages = stages_of(tmp_path, silent)
    talk = chat(
        system("Be kind."),
        user("Hi there"),
        assistant("Hello!"),
        user("And?"),
        assistant(""),
        user("Bye"),
        assistant("Bye!"),
    )
    said = "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi there<|im_end|>\n<|im_start|>assistant\n"
    assert stages.turns(talk)[0] == (said, "Hello!<|im_end|>")
    assert [completion for _, completion in stages.turns(talk)] == ["Hello!<|im_end|>", "Bye!<|im_end|>"]
    calling = chat(user("Hi"), assistant(None, tool_calls=[call("look", {"city": "Köln"})]))
    assert [code for code, _ in stages.reasons([calling])] == ["dropped_tool_call"]


@pytest.mark.parametrize(
    ("template", "message", "code"),
    [
        ("content", assistant("I look for hotels", tool_calls=[call("think", {"so": "I look for hotels nearby"})]), "dropped_content"),
        ("reasoning", assistant("It is the capital of France. Yes!", reasoning_content="It is the capital of France."), "dropped_reasoning"),
    ],
)  # fmt: skip
def test_a_text_that_another_field_repeats_is_still_missed(
    template: str, message: dict[str, Any], code: str, tmp_path: Path
) -> None:
    """It stands in the rendering, but not for itself."""
    assert outcome(tmp_path, SKIPS[template], (user("Where?"), message)) == [code]


SPLITS = SHOWS_ALL.replace(
    "message.content or ''",
    "(message.content or '').split('</think>')[-1] if message.role == 'assistant' else message.content",
)


@pytest.mark.parametrize(
    ("question", "answer", "code"),
    [
        ("Sure! What is 5+5?", "Sure! <think>hmm</think>10", "dropped_reasoning"),
        ("What is 5+5?", "5</think>5</think>10", "dropped_reasoning"),
        ("Is 2+2=4 true?", "<think>2+2=4</think>Yes", "dropped_reasoning"),
    ],
)
def test_what_the_question_says_does_not_stand_for_the_answer(
    question: str, answer: str, code: str, tmp_path: Path
) -> None:
    assert outcome(tmp_path, SPLITS, (user(question), assistant(answer))) == [code]


@pytest.mark.parametrize(
    "cut", ["message.content | truncate(40)", "message.content[:5] + '<|im_end|>' + message.content"]
)
def test_a_template_that_cuts_an_answer_drops_it(cut: str, tmp_path: Path) -> None:
    template = SHOWS_ALL.replace(
        "message.content or ''", f"({cut}) if message.role == 'assistant' else message.content"
    )
    said = (user("What is the weather?"), assistant("It rains a great deal in Paris, and has for a week by now."))
    assert outcome(tmp_path, template, said) == ["dropped_content"]


ESCAPES_LATE = SHOWS_ALL.replace("message.content or ''", "message.content | e | string if WHEN else message.content")


def test_an_escape_that_a_later_message_brings_is_none_of_those_that_earlier_ones_have(tmp_path: Path) -> None:
    said = (user("what is &amp; or &lt;?"), assistant("&amp; is one."), user("is a < b?"), assistant("It is."))
    assert outcome(tmp_path / "a", ESCAPES_LATE.replace("WHEN", "loop.index0 == 2"), said) == ["mangled_text"]
    assert outcome(tmp_path / "b", ESCAPES_LATE.replace("WHEN", "false"), said) == [1, 3]


def test_an_escape_that_history_brings_is_found(tmp_path: Path) -> None:
    said = (user("is a < b?"), assistant("It is."), user("is c > d?"), assistant("No."))
    assert outcome(tmp_path, ESCAPES_LATE.replace("WHEN", "loop.index0 + 2 < messages|length"), said) == [
        "mangled_text"
    ]


def test_a_text_that_later_turns_repeat_is_known_by_its_own_message(tmp_path: Path) -> None:
    again = "{{- messages[0].content if message.role == 'user' }}{{ message.content"
    repeats = SHOWS_ALL.replace("{{- message.content", again)
    said = (user("&lt;p&gt;"), assistant("a tag"), user("sure?"), assistant("yes"))
    assert outcome(tmp_path, repeats, said) == [1, 3]


def test_each_part_of_a_conversation_is_read_back_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []

    def counted(text: str, *rest: Any, **options: Any) -> str | None:
        read.append(len(text))
        return added_escape(text, *rest, **options)

    monkeypatch.setattr("packer.render.dropped.added_escape", counted)
    stages = stages_of(tmp_path, SHOWS_ALL)
    turns = [turn for number in range(40) for turn in (user(f"a &amp; {number}"), assistant(f"b &amp; {number}"))]
    batch = stages.render([chat(*turns)])
    assert len(batch.turn_message) == 40 and len(read) == 80
    assert sum(read) <= len(batch.text)


MOVES = """\
{% for message in messages if message.role != 'system' %}
{{ '<|im_start|>' + message.role + '\\n' }}
{%- if loop.last and message.role == 'user' and messages[0].role == 'system' %}{{ messages[0].content + '\\n' }}{% endif %}
{{- message.content + '<|im_end|>\\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
"""The system message stands before the last question while nothing answers that; reasoning is not written."""


@pytest.mark.parametrize("reasoning", ["It rains.", "It is raining cats and dogs.", "It is raining"])
def test_an_answer_that_says_what_its_dropped_reasoning_says_does_not_stand_for_it(
    tmp_path: Path, reasoning: str
) -> None:
    messages = (system("Be kind."), user("Weather?"), assistant("It is raining cats and dogs."))
    reasoned = (*messages[:2], messages[2] | {"reasoning_content": reasoning})
    rule = "supervision.on_prompt_mismatch=continue"
    assert outcome(tmp_path / "a", MOVES, messages, rule, "supervision.allow_dropped=[system]") == [2]
    stages = Stages.load(twins.byte_level(tmp_path / "b", template=MOVES), rule, "supervision.allow_dropped=[system]")
    ((code, reason),) = stages.reasons([chat(*reasoned)])
    assert (code, reason) == ("dropped_reasoning", "messages[2]: the template does not render its reasoning")


def test_an_answer_that_is_dropped_behind_reasoning_in_its_text_is_named_as_what_it_is(tmp_path: Path) -> None:
    """The tag before it is one that the template knows, not where it cuts the text."""
    cut = "message.content.split('</think>')[0] ~ '</think>' if '</think>' in message.content else message.content"
    said = (user("Is it so?"), assistant("<think>It may well be.</think>It is."))
    assert outcome(tmp_path / "all", SHOWS_ALL, said) == [1]
    assert outcome(tmp_path / "cut", SHOWS_ALL.replace("message.content or ''", cut), said) == ["dropped_content"]
