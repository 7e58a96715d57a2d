"""What of a chat is learned, and under which prompt."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import twins
from search_effort import one_in
from supervision_stages import Stages, assistant, call, chat, system, user

from packer.render.environment import ChatTemplate

Make = Callable[..., Stages]

STRICT = """\
{% for message in messages %}
{% if message.role != ('user' if loop.index0 % 2 == 0 else 'assistant') %}
{{ raise_exception('roles must alternate') }}{% endif %}
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{% if add_generation_prompt %}{% if not messages %}{{ raise_exception('no message') }}{% endif %}
{{ '<|im_start|>assistant\\n' }}{% endif %}"""

CALLS = """\
{% for message in messages %}
{{ '<|im_start|>' + message.role + '\\n' }}{{ message.content }}
{%- for call in message.tool_calls or [] %}{{ '<call>' + call.function.name }}ARGUMENTS{{ '</call>' }}{% endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

THINKS_FIRST = """\
{% for message in messages %}
{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}"""
"""Opens a reasoning block in every prompt, as the R1 distills do."""


STATED = r"""
{% set off = enable_thinking is defined and not enable_thinking %}{% set block = '<think>\n\n</think>\n' if off else '' %}
{{ '<|im_start|>system\nMode: ' + ('/no_think' if off else '/think') + '<|im_end|>\n' }}
{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' }}
{%- if message.role == 'assistant' %}{{ block }}{% endif %}{{ message.content + '<|im_end|>\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' + block }}{% endif %}"""
"""Writes a plain answer as it is in a mode that asks for reasoning only in words, as SmolLM3 does."""


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def stages(template: str = twins.CHATML, *overrides: str, twin: Any = twins.byte_level, **options: Any) -> Stages:
        return Stages.load(twin(tmp_path / "model", template=template, **options), *overrides).by_reference()

    return stages


def learned(stages: Stages, *messages: dict[str, Any], **options: Any) -> list[tuple[str, str]]:
    """Prompt and completion of every turn."""
    return stages.turns(chat(*messages, **options))


def completions(stages: Stages, *messages: dict[str, Any], **options: Any) -> list[str]:
    return [completion for _, completion in learned(stages, *messages, **options)]


def refusal(stages: Stages, *messages: dict[str, Any], **options: Any) -> tuple[str, str]:
    """Code and reason."""
    (rejection,) = stages.render([chat(*messages, **options)]).rejections
    return rejection.code, rejection.reason


TALK = (user("one?"), assistant("One."), user("two?"), assistant("Two."))


def test_a_turn_is_learned_after_the_prompt_inference_would_see(make: Make) -> None:
    assert learned(make(), user("hi"), assistant("Hello.")) == [
        ("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", "Hello.<|im_end|>")
    ]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("all", ["One.<|im_end|>", "Two.<|im_end|>"]), ("last", ["Two.<|im_end|>"])],
)
def test_the_recipe_says_which_turns_are_learned(make: Make, rule: str, expected: list[str]) -> None:
    assert completions(make(twins.CHATML, f"supervision.turns={rule}"), *TALK) == expected


def test_marked_learns_only_marked_turns(make: Make) -> None:
    stages = make(twins.CHATML, "supervision.turns=marked")
    assert completions(stages, *TALK, flags={1: True}) == ["One.<|im_end|>"]
    assert refusal(stages, *TALK)[0] == "nothing_trained"


@pytest.mark.parametrize("rule", ["all", "last", "marked"])
def test_the_flag_of_a_message_wins_over_the_rule(make: Make, rule: str) -> None:
    stages = make(twins.CHATML, f"supervision.turns={rule}")
    batch = stages.render([chat(*TALK, flags={1: True, 3: False})])
    assert batch.turn_message.tolist() == [1]


def test_an_opening_turn_that_cannot_be_prompted_is_context(make: Make) -> None:
    stages = make(twins.LLAMA2_LIKE, twin=twins.byte_level, bos=True)
    assert completions(stages, assistant("Welcome."), user("hi"), assistant("Hello.")) == [
        " Welcome. <|im_end|>",
        " Hello. <|im_end|>",
    ]
    prompted = STRICT.replace("loop.index0 % 2 == 0", "(loop.index0 + (messages[0].role == 'assistant')) % 2 == 0")
    stages = make(prompted)
    assert completions(stages, assistant("Welcome."), user("hi"), assistant("Hello.")) == ["Hello.<|im_end|>"]


CLOSED = "<think>\n\n</think>\n\n"
PLAIN, REASONED = assistant("Hello."), assistant("Hello.", reasoning_content="Be kind")


@pytest.mark.parametrize(
    ("rules", "turn", "said", "prompt", "completion"),
    [
        ([], PLAIN, {}, CLOSED, "Hello."),
        ([], REASONED, {}, "", "<think>\nBe kind\n</think>\n\nHello."),
        ([], PLAIN, {"enable_thinking": True}, "", f"{CLOSED}Hello."),
        (["template.kwargs={enable_thinking: true}"], PLAIN, {}, "", f"{CLOSED}Hello."),
        (["template.kwargs={enable_thinking: true}"], PLAIN, {"enable_thinking": False}, CLOSED, "Hello."),
    ],
)
def test_an_answer_is_learned_in_the_mode_of_its_reasoning_or_of_the_row_or_of_the_recipe(
    make: Make, rules: list[str], turn: dict[str, Any], said: dict[str, Any], prompt: str, completion: str
) -> None:
    ((found, learnt),) = learned(make(twins.QWEN3_LIKE, *rules), user("hi"), turn, **said)
    assert found.endswith(f"<|im_start|>assistant\n{prompt}")
    assert learnt == f"{completion}<|im_end|>"


@pytest.mark.parametrize(("said", "mode"), [("Hello.", "/no_think"), ("<think>\nhm\n</think>\nHello.", "/think")])
def test_of_modes_that_are_told_apart_by_words_a_plain_answer_takes_the_one_whose_prompt_closes_reasoning(
    make: Make, said: str, mode: str
) -> None:
    ((prompt, completion),) = learned(make(STATED), user("hi"), assistant(said))
    assert f"Mode: {mode}<" in prompt
    assert completion == f"{said}<|im_end|>"


def test_a_turn_that_no_prompt_begins_is_refused(make: Make) -> None:
    assert refusal(make(THINKS_FIRST), user("hi"), assistant("Hello."))[0] == "prompt_diverges"
    assert completions(make(THINKS_FIRST), user("hi"), assistant("<think>\nhm</think>Hello.")) == [
        "hm</think>Hello.<|im_end|>"
    ]


LOCAL = """\
{% for message in messages %}
{% if message.reasoning_content %}{% set reasoning = message.reasoning_content %}{% endif %}
{{ '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' and reasoning %}{{ '<think>' ~ reasoning ~ '</think>' }}{% endif %}
{{- message.content + '<|im_end|>\\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{{ '<think>' if reasoning }}{% endif %}"""
"""A variable named like a switch, whose value is written into answers."""


def test_a_variable_that_changes_answers_is_no_switch(make: Make) -> None:
    assert completions(make(LOCAL), user("?"), assistant("Plain.")) == ["Plain.<|im_end|>"]


GLM_CALLS = """\
{% for message in messages %}
{{ '<|user|>' if message.role == 'user' else '<|observation|>' if message.role == 'tool' else '<|assistant|>' }}
{{- '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}{{ '<call>' + call.function.name + '</call>' }}{% endfor %}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"""


@pytest.mark.parametrize("followed", [True, False])
def test_a_call_ends_with_the_header_of_its_result_also_at_the_end(followed: bool, tmp_path: Path) -> None:
    folder = twins.header_stops(tmp_path, template=GLM_CALLS)
    stages = Stages.load(folder, stop=["<|user|>", "<|observation|>"])
    row = [user("?"), assistant("", tool_calls=[call("look", {})])]
    row += [{"role": "tool", "content": "rain"}, assistant("It rains.")] * followed
    first, *_ = completions(stages, *row)
    assert first.endswith("<call>look</call><|observation|>")


GLM_FORGETS = """\
{% for message in messages %}
{{ '<|user|>' if message.role == 'user' else '<|assistant|>' }}
{%- if message.role == 'assistant' %}{{ '<think></think>' if loop.last else '</think>' }}{% endif %}
{{- message.content }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|assistant|><think>' }}{% endif %}"""
"""As GLM 5.1: the next question rewrites what stands before every answer."""


def test_the_header_after_a_turn_is_found_where_it_rewrites_every_turn(make: Make) -> None:
    stages = make(GLM_FORGETS, twin=twins.header_stops)
    assert completions(stages, *TALK) == ["</think>One.<|user|>", "</think>Two.<|user|>"]


@pytest.mark.parametrize("rules", [[], ["supervision.no_terminator=append"]])
def test_a_turn_that_is_left_open_for_a_flag_of_its_message_is_refused(make: Make, rules: list[str]) -> None:
    open_turn = "(message.content or '') + ('' if message.prefix and loop.last else '<|im_end|>\\n')"
    template = twins.CHATML.replace("(message.content or '') + '<|im_end|>\\n'", open_turn)
    for flags, code in (({"prefix": True}, ["no_terminator"]), ({"prefix": False}, []), ({"final": True}, [])):
        row = chat(user("one?"), assistant("The answer is", **flags))
        assert [code for code, _ in make(template, *rules).reasons([row])] == code
    going_on = chat(
        user("one?"), assistant("The answer is", prefix=True), user("two?"), assistant("Two."), flags={1: False}
    )
    assert [completion for _, completion in make(template, *rules).turns(going_on)] == ["Two.<|im_end|>"]


def test_a_stop_of_the_recipe_is_a_terminator(tmp_path: Path) -> None:
    template = twins.CHATML.replace("<|im_end|>", "<|endoftext|>")
    folder = twins.byte_level(tmp_path, template=template)
    assert refusal(Stages.load(folder), user("hi"), assistant("Hello."))[0] == "no_terminator"
    stages = Stages.load(folder, stop=["<|endoftext|>"])
    assert completions(stages, user("hi"), assistant("Hello.")) == ["Hello.<|endoftext|>"]


READS_NULL = CALLS.replace("{{ message.content }}", "{{ 'silent' if message.content is none else message.content }}")
EITHER = (
    "{{ call.function.arguments if call.function.arguments is string else call.function.arguments.items() | list }}"
)
AS_JSON = (
    "{{ (' with '|safe) + (call.function.arguments | tojson) if call.function.arguments is mapping "
    "else ' with ' + call.function.arguments }}"
)


@pytest.mark.parametrize(
    ("template", "arguments", "written"),
    [
        (CALLS, "", "<call>look</call>"),  # a null is never printed as a word
        (READS_NULL, "", "silent<call>look</call>"),  # and stays null where the template asks for it
        (CALLS, "{{ ' city=' ~ call.function.arguments.city }}", "<call>look city=Köln</call>"),
        # text where objects raise or cannot be read back, objects where both can
        (CALLS, "{{ ' with ' + call.function.arguments }}", '<call>look with {"city": "Köln"}</call>'),
        (CALLS, "{{ ' with ' ~ call.function.arguments }}", '<call>look with {"city": "Köln"}</call>'),
        (CALLS, AS_JSON, '<call>look with {"city": "Köln"}</call>'),
        (CALLS, EITHER, "<call>look[('city', 'Köln')]</call>"),
        (
            CALLS.replace("{{ message.content }}", "{{ '' + message.content }}"),
            "{{ ' with ' + call.function.arguments }}",
            '<call>look with {"city": "Köln"}</call>',
        ),
    ],
)
def test_a_null_content_and_arguments_are_given_in_the_form_that_the_template_reads(
    make: Make, template: str, arguments: str, written: str
) -> None:
    turn = assistant(None, tool_calls=[call("look", {"city": "Köln"} if arguments else {})])
    for asked in ("hi", "None?"):  # the word in a text does not empty a null
        found = completions(make(template.replace("ARGUMENTS", arguments)), user(asked), turn)
        assert found == [f"{written}<|im_end|>"]


ESCAPES = "{{ ('<'|safe) + (call.function.arguments | tojson) }}"
QUOTES = "{{ call.function.arguments | tojson | tojson }}"


@pytest.mark.parametrize("arguments", [ESCAPES, QUOTES])
def test_a_call_that_no_form_makes_readable_rejects_the_row(make: Make, arguments: str) -> None:
    turn = assistant("", tool_calls=[call("look", {"city": "Köln"})])
    (rejection,) = make(CALLS.replace("ARGUMENTS", arguments)).render([chat(user("hi"), turn)]).rejections
    assert (rejection.code, rejection.message) == ("mangled_call", 1)


def test_escapes_that_the_row_has_itself_are_its_own(make: Make) -> None:
    words = 'use &lt;b&gt;, &#34; and \\" for \ufffd'
    turn = assistant(words, tool_calls=[call("look", {"city": words, words: [words]})])
    stages = make(CALLS.replace("ARGUMENTS", "{{ call.function.arguments | tojson }}"))
    (completion,) = completions(stages, user(words), turn)
    assert completion.count("&lt;") == 4


@pytest.mark.parametrize("role", ["system", "user", "assistant"])
@pytest.mark.parametrize(
    "escape", ["('<b>'|safe) + message.content", "message.content | e", "message.content | tojson"]
)
def test_a_text_that_the_template_escapes_rejects_the_row(make: Make, role: str, escape: str) -> None:
    escaped = f"(({escape}) if message.role == '{role}' else message.content)"
    stages = make(CALLS.replace("message.content", escaped).replace("ARGUMENTS", ""))
    talk = {"system": "be brief", "user": "hi", "assistant": "hello"}
    talk[role] = 'is "a" < b & c?'
    (rejection,) = stages.render([chat(*({"role": name, "content": text} for name, text in talk.items()))]).rejections
    assert rejection.code == "mangled_text"
    talk[role] = "Roses are red, violets are blue."
    assert not stages.render([chat(*({"role": name, "content": text} for name, text in talk.items()))]).rejections or (
        "tojson" in escape
    )


def test_escapes_that_the_template_itself_writes_are_its_own_and_those_of_tools_reject_the_row(make: Make) -> None:
    stages = make("Write &lt; for a bracket.{% for i in [1, 2] %}&lt;{% endfor %}" + twins.CHATML)
    assert len(learned(stages, user("hi"), assistant("hello"), user("so?"), assistant("Yes."))) == 2
    stages = make("{{ ('Tools: '|safe) + (tools | tojson) }}" + twins.CHATML)
    tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    assert refusal(stages, user("hi"), assistant("hello"), tools=tools)[0] == "mangled_text"


def test_a_tool_result_may_be_json_but_not_json_within_json(make: Make) -> None:
    once = "(message.content | tojson if message.role == 'tool' else message.content)"
    talk = (
        user("hi"),
        assistant("", tool_calls=[call("look", {})]),
        {"role": "tool", "content": 'it is "sunny"\n'},
        assistant("Sunny."),
    )
    calls = CALLS.replace("ARGUMENTS", "{}")
    assert len(completions(make(calls.replace("message.content", once)), *talk)) == 2
    twice = once.replace("| tojson", "| tojson | tojson")
    (rejection,) = make(calls.replace("message.content", twice)).render([chat(*talk)]).rejections
    assert rejection.code == "mangled_text"


def test_half_a_surrogate_pair_rejects_the_whole_row(make: Make) -> None:
    stages = make(twins.QWEN3_LIKE)
    talk = [*TALK[:3], assistant("\ud83d")]
    assert stages.outcomes([chat(*talk)]) == ["not_utf8"]


def test_rows_with_tools_take_the_template_for_tools(tmp_path: Path) -> None:
    folder = twins.byte_level(tmp_path)
    with_tools = twins.CHATML.replace("(message.content", "('[tools]' + message.content")
    (folder / "chat_template_tool_use.jinja").write_text(with_tools, "utf-8")
    stages = Stages.load(folder)
    assert "[tools]hi" in learned(stages, user("hi"), assistant("Hello."), tools=[{"type": "function"}])[0][0]
    assert "[tools]" not in learned(stages, user("hi"), assistant("Hello."))[0][0]


def test_without_a_template_a_chat_is_rejected_with_the_way_out(tmp_path: Path) -> None:
    stages = Stages.load(twins.byte_level(tmp_path, template=None))
    code, reason = refusal(stages, user("hi"), assistant("Hello."))
    assert code == "template_error" and "--template" in reason


def test_the_reason_is_the_templates_own_whichever_form_of_a_call_it_refuses(make: Make) -> None:
    """Objects break it, and strings it refuses in words: the words tell more."""
    refuses = "{{ ' ' + call.function.arguments }}{{ raise_exception('ids have 9 characters') }}"
    turn = assistant("", tool_calls=[call("look", {"city": "Köln"})])
    (rejection,) = make(CALLS.replace("ARGUMENTS", refuses)).render([chat(user("hi"), turn)]).rejections
    assert (rejection.code, rejection.reason) == ("template_error", "ids have 9 characters")


@pytest.mark.parametrize("nothing", [None, "", " \n", "<think></think>", "<think>\n\n</think>\n\n", "</think>"])
def test_answers_that_say_nothing_are_counted_as_skipped(make: Make, nothing: str | None) -> None:
    talk = [user("hi"), assistant(nothing), user("so?"), assistant("Yes.")]
    stages = make(twins.CHATML)
    batch = stages.render([chat(*talk), chat(*talk[2:], row=1), chat(*talk, *talk[:2], row=2)])
    assert batch.turn_message.tolist() == [3, 1, 3]
    assert batch.skipped.tolist() == [0, 2, 2]
    flagged = chat(*talk, flags={1: False})
    assert stages.render([flagged]).skipped.tolist() == []


@pytest.mark.parametrize(("before", "behind"), [("", ""), ("<|answer|>", "<|/answer|>"), ("\\nSays: ", " Done.")])
@pytest.mark.parametrize("last", [(), (user("so?"), assistant("Yes."))])
def test_a_turn_of_which_the_template_writes_only_its_own_markers_is_skipped(
    make: Make, before: str, behind: str, last: tuple[Any, ...]
) -> None:
    """What is trained of it would be to stop where the row calls."""
    template = twins.CHATML.replace("message.content", f"'{before}' ~ (message.content or '') ~ '{behind}'")
    stages = make(template, "supervision.allow_dropped=[tool_call,reasoning]")
    turn = assistant("", tool_calls=[call("look", {"city": "Köln"})])
    for own in (turn, turn | {"reasoning_content": "I look."}):
        batch = stages.render([chat(user("hi"), own, *last)])
        assert batch.turn_message.tolist() == [3] * bool(last)
        assert [each.code for each in batch.rejections] == ["nothing_trained"] * (not last)
    said = assistant("I look.", tool_calls=turn["tool_calls"])
    assert stages.render([chat(user("hi"), said, *last)]).turn_message.tolist() == [3] * bool(last)
    before = before.replace("\\n", "\n")
    assert completions(stages, user("hi"), assistant("I look."), *last)[0] == f"{before}I look.{behind}<|im_end|>"


@pytest.mark.parametrize("append", ["", "supervision.no_terminator=append"])
def test_a_turn_of_which_the_template_writes_the_first_call_alone_is_skipped(make: Make, append: str) -> None:
    """It would be learned to stop in front of the second."""
    first = "(message.content or '') ~ (message.tool_calls[0].function.name if message.tool_calls else '')"
    template = twins.CHATML.replace("message.content", f"({first})")
    template = template.replace("+ '<|im_end|>", "+ '") if append else template
    stages = make(template, "supervision.allow_dropped=[tool_call]", *[append] * bool(append))
    calls = [call(name, {}) for name in ("look", "listen")]
    talk = (user("hi"), assistant("I look.", tool_calls=calls), user("so?"), assistant("Yes."))
    assert stages.render([chat(*talk)]).turn_message.tolist() == [3]
    talk[1]["tool_calls"] = calls[:1]
    assert stages.render([chat(*talk)]).turn_message.tolist() == [1, 3]


def test_of_a_text_with_tags_what_stands_outside_them_is_content(make: Make) -> None:
    """Leave to drop reasoning is none to drop the answer."""
    last = "message.content.split('</think>')[-1] if message.role == 'assistant' else message.content"
    stages = make(
        CALLS.replace("message.content", f"({last})").replace("ARGUMENTS", ""), "supervision.allow_dropped=[reasoning]"
    )
    assert completions(stages, user("hi"), assistant("<think>hm</think>42")) == ["42<|im_end|>"]
    for text in ("so <think>hm</think>42", "<think>hm</think>41</think>42"):
        (rejection,) = stages.render([chat(user("hi"), assistant(text))]).rejections
        assert rejection.code == "dropped_reasoning", text


CUT_OFF = "<think>", "\n<think>never closed 42", "[THINK]hm</think>42", "<think>hm</think>", "<think>hm</think>\n"


@pytest.mark.parametrize(
    ("template", "turn"),
    [
        *((twins.CHATML, assistant(text)) for text in CUT_OFF),
        *((twins.QWEN3_LIKE, assistant(text, reasoning_content="Let x be a prime.")) for text in (None, "", " \n")),
    ],
)
def test_reasoning_that_was_cut_off_or_has_no_answer_and_no_call_rejects_the_row(
    make: Make, template: str, turn: dict[str, Any]
) -> None:
    stages = make(template)
    (rejection,) = stages.render([chat(user("hi"), turn)]).rejections
    assert (rejection.code, rejection.message) == ("open_reasoning", 1)
    context = chat(user("hi"), turn, user("so?"), assistant("Yes."), flags={1: False})
    assert stages.render([context]).turn_message.tolist() == [3]


def test_a_row_of_more_work_than_a_row_may_be_is_refused_before_it_is_rendered(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every answer is rendered with all messages before it; a row of a million messages would take months."""
    stages = make(twins.CHATML)
    talk = [turn for number in range(2000) for turn in (user(f"q{number}"), assistant(f"a{number}"))]
    rendered = []

    def render(template: ChatTemplate, messages: Any, **options: Any) -> str:
        rendered.append(len(messages))
        return whole(template, messages, **options)

    whole = ChatTemplate.render
    monkeypatch.setattr(ChatTemplate, "render", render)
    (rejection,) = stages.render([chat(*talk)]).rejections
    assert max(rendered, default=0) < 10
    assert (rejection.code, rejection.message) == ("too_many_turns", None)
    assert rejection.reason == "2000 trained answers among 4000 messages: each is rendered with all before it"


def test_what_a_row_may_be_depends_on_its_trained_answers_and_the_messages_up_to_them(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("packer.render.conversation.MAX_TURN_MESSAGES", 8)
    talk = [user("a"), assistant("b"), user("c"), assistant("d"), user("e")]
    stages = make(twins.CHATML)
    assert stages.render([chat(*talk)]).turn_message.tolist() == [1, 3]
    longer = [*talk, assistant("f"), user("g"), assistant("h")]
    assert [each.code for each in stages.render([chat(*longer)]).rejections] == ["too_many_turns"]
    assert make(twins.CHATML, "supervision.turns=last").render([chat(*longer)]).turn_message.tolist() == [7]


@pytest.mark.parametrize("num_tools", [0, 1])
def test_what_a_row_may_be_depends_on_its_tools_and_calls(
    num_tools: int, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("packer.render.conversation.MAX_TOOLS_AND_CALLS", 2)
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}] * num_tools
    calls = [{"type": "function", "function": {"name": "f", "arguments": {}}}] * 2
    found = make(twins.CHATML).render([chat(user("a"), assistant("", tool_calls=calls), tools=tools or None)])
    assert ("too_many_turns" in [each.code for each in found.rejections]) == bool(num_tools)


def told(text: str, *before: str) -> str:
    """A prompt whose last question is opened by the system message."""
    chat = "".join(f"<|im_start|>{('user', 'assistant')[i % 2]}\n{each}<|im_end|>\n" for i, each in enumerate(before))
    return f"{chat}<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


ASKED = ("Hi", "Hi\n", " Hi", "o", "Fox", "a", "assistant")


@pytest.mark.parametrize(("asked", "system_message"), one_in(2, [*itertools.product(ASKED, ("Be kind", "o", "Fox"))]))
def test_an_answer_is_continued_from_a_prompt_that_alone_has_the_system_message(
    make: Make, system_message: str, asked: str
) -> None:
    stages = make(twins.MISTRAL_LIKE, "supervision.on_prompt_mismatch=continue")
    turns = learned(
        stages, system(system_message), user(asked), assistant("Fox"), user(asked), assistant(f"{asked.strip()} o")
    )
    assert turns == [
        (told(f"{system_message}\n\n{asked}"), "Fox<|im_end|>"),
        (told(f"{system_message}\n\n{asked}", asked, "Fox"), f"{asked.strip()} o<|im_end|>"),
    ]


@pytest.mark.parametrize("before", ["", "No. ", "Hi\nA: "])
def test_an_answer_that_quotes_the_question_and_its_header_is_continued_whole(make: Make, before: str) -> None:
    """A header of ordinary letters may be in any text."""
    plain = twins.MISTRAL_LIKE.replace("<|im_start|>user\\n", "Q: ").replace("<|im_start|>assistant\\n", "A: ")
    plain = plain.replace("content }}<|im_end|>\n{% else %}", "content }}\n{% else %}")
    stages = make(plain, "supervision.on_prompt_mismatch=continue")
    ((prompt, completion),) = learned(stages, system("Be kind"), user("Hi"), assistant(f"{before}Hi\nA: Yes"))
    assert prompt.startswith("Q: Be kind\n\nHi")
    assert prompt.endswith("A: ")
    assert completion == f"{before}Hi\nA: Yes<|im_end|>"


def test_an_answer_is_continued_where_white_space_after_a_result_differs_once_it_is_answered(make: Make) -> None:
    """As under Hermes: the newline is written behind every result but the last message."""
    source = twins.CHATML.replace(
        "'<|im_end|>\\n'", "('' if loop.last or message.role != 'user' else '\\n') + '<|im_end|>\\n'"
    )
    assert source != twins.CHATML
    row = user("Hi"), assistant("Fox"), user("So"), assistant("dog")
    assert refusal(make(source), *row)[0] == "prompt_diverges"
    assert learned(make(source, "supervision.on_prompt_mismatch=continue"), *row) == [
        (told("Hi"), "Fox<|im_end|>"),
        (told("So", "Hi\n", "Fox"), "dog<|im_end|>"),
    ]


OTHER_HEADER = twins.MISTRAL_LIKE.replace(
    "<|im_start|>assistant\\n' }}{% endif %}", "<|im_start|>bot\\n' }}{% endif %}"
)
LOSES = twins.MISTRAL_LIKE.replace(
    "(told + '\\n\\n' if told and loop.last else '')", "('Yes' if told and loop.last else '')"
)
CONTINUE = "supervision.on_prompt_mismatch=continue"


@pytest.mark.parametrize(
    ("template", "rules", "told", "code"),
    [
        (twins.MISTRAL_LIKE, [], "Be kind", "prompt_diverges"),
        (OTHER_HEADER, [CONTINUE], "Be kind", "prompt_diverges"),  # nothing tells where the answer begins
        (twins.MISTRAL_LIKE.replace("and loop.last", "and not loop.last"), [CONTINUE], "Be kind", "dropped_system"),
        (twins.MISTRAL_LIKE.replace("and loop.last", "and not loop.last"), [CONTINUE], "o", "dropped_system"),
        (LOSES, [CONTINUE], "Be kind", "dropped_system"),
    ],
)
def test_an_answer_without_its_prompt_or_context_rejects_the_row(
    make: Make, template: str, rules: list[str], told: str, code: str
) -> None:
    assert (template == twins.MISTRAL_LIKE) == (not rules)
    assert refusal(make(template, *rules), system(told), user("Hi"), assistant("Fox"))[0] == code


def test_an_opening_answer_is_continued_from_a_prompt_without_messages(make: Make) -> None:
    """Its text is short, so that the template is probed for it: it is no part of that prompt."""
    stages = make(THINKS_FIRST, "supervision.on_prompt_mismatch=continue")
    turns = learned(stages, assistant("o"), user("Hi"), assistant("Fox"))
    assert turns[0] == ("<|im_start|>assistant\n<think>\n", "\n</think>\n\no<|im_end|>")
