"""Texts that already have what the template writes around them, and tools that are defined twice, reject the row."""

import json
from pathlib import Path
from typing import Any

import pytest
import twins
from search_effort import one_in
from supervision_stages import Stages, assistant, call, chat, result, system, user

from packer.batches import Rejection, Sample
from packer.recipe.recipe import make_recipe
from packer.render.frames import unframed

TEMPLATE = """\
{% if tools %}{{ '<|im_start|>system\\nTools are within <tools></tools> tags:\\n<tools>\\n' }}
{%- for tool in tools %}{{ tool | tojson + '\\n' }}{% endfor %}{{ '</tools><|im_end|>\\n' }}{% endif %}
{%- for message in messages %}
{% set role = 'user' if message.role == 'tool' else message.role %}
{{ '<|im_start|>' + role + '\\n' }}
{%- if message.role == 'tool' %}{{ '<result>\\n' + message.content + '\\n</result>' }}
{%- else %}{{ message.content or '' }}{% endif %}
{%- for call in message.tool_calls or [] %}{{ '<call>' + call.function | tojson + '</call>' }}{% endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
ANSWERS = TEMPLATE.replace(
    "{%- else %}{{ message.content or '' }}",
    "{%- elif message.role == 'assistant' %}{{ '<think>' + message.reasoning_content + '</think>'"
    " if message.reasoning_content }}{{ '<answer>\\n' + message.content + '\\n</answer>' }}"
    "{%- else %}{{ message.content or '' }}",
)
PLAIN = TEMPLATE.replace("'<result>\\n' + message.content + '\\n</result>'", "message.content")
BARE = TEMPLATE.replace("<tools>\\n", "").replace("</tools><|im_end|>", "<|im_end|>")
BRACKETS = TEMPLATE.replace("{{ message.content or '' }}", "{{ '[Q] ' + message.content + ' [/Q]' }}", 1)

TIDE = {
    "type": "function",
    "function": {
        "name": "tide",
        "description": "Times of high water",
        "parameters": {"type": "object", "properties": {"harbor": {"type": "string"}}},
    },
}
CALLED = assistant("", tool_calls=[call("tide", {"harbor": "Oban"})])


def as_built(folder: Path, template: str, *overrides: str) -> Stages:
    return Stages.load(twins.byte_level(folder, template=template), *overrides)


def loaded(folder: Path, template: str, *overrides: str) -> Stages:
    return as_built(folder, template, *overrides).by_reference()


def row(text: str, *, said: str = "You help sailors.", asked: str = "High water at Oban?", **more: Any) -> Sample:
    return chat(system(said), user(asked), CALLED, result(text), assistant("At 06:12."), **more)


def codes(stages: Stages, *samples: Sample) -> list[list[str]]:
    return [[code for code, _ in stages.reasons([sample])] for sample in samples]


@pytest.mark.parametrize("text", ["<result>\n06:12\n</result>", " <result>06:12</result>\n", "<result></result>"])
def test_a_result_that_has_its_tags_already_rejects_the_row(tmp_path: Path, text: str) -> None:
    stages = loaded(tmp_path, TEMPLATE)
    ((code, reason),) = stages.reasons([row(text, tools=[TIDE])])
    assert code == "wrapped_twice"
    assert "messages[3]" in reason and "<result>" in reason
    assert codes(loaded(tmp_path, PLAIN), row(text)) == [[]], "this template writes no tags"


@pytest.mark.parametrize("opening", ["<result>", '<result tool="tide">', "<result id='a' tool='train'>"])
@pytest.mark.parametrize("written", ["<result>", "<result tool=\"' + message.name + '\">"])
def test_a_wrapper_may_have_attributes(tmp_path: Path, opening: str, written: str) -> None:
    template = TEMPLATE.replace("<result>", written)
    rows = [row(f"result {k}", tools=[TIDE], row=k) for k in range(40)]
    wrapped = row(f"{opening}\n06:12\n</result>", tools=[TIDE], row=40)
    for each in [*rows, wrapped]:
        each.messages[3].fields["name"] = "tide"
    stages = as_built(tmp_path, template, "engine=auto")
    outcomes = stages.outcomes([*rows, wrapped])
    assert [outcome for outcome in outcomes if isinstance(outcome, str)] == ["wrapped_twice"] == outcomes[-1:]
    unwrapped = loaded(tmp_path, template, "rows.wrapped=unwrap").turns(wrapped)[-1][0]
    assert (unwrapped.count("<result"), unwrapped.count("06:12")) == (1, 1)


def test_tags_that_are_not_around_a_whole_text_are_text(tmp_path: Path) -> None:
    half = "06:12", "<result>06:12", "<results>06:12</result>", "<result>06:12</results>", "06:12</result>"
    for text in (*half, "<p>06:12</p>", "see <result>06:12</result>", "<result>a</result> b"):
        assert codes(loaded(tmp_path, TEMPLATE), row(text, tools=[TIDE])) == [[]], text


def test_unwrapped_rows_become_what_rows_without_tags_become(tmp_path: Path) -> None:
    stages = loaded(tmp_path, TEMPLATE, "rows.wrapped=unwrap")
    for text in ("<result>\n06:12\n</result>", "<result>06:12</result>", "06:12"):
        assert stages.document(row(text, tools=[TIDE])) == stages.document(row("06:12", tools=[TIDE]))
    prompt = stages.turns(row("<result>06:12</result>"))[-1][0]
    assert (prompt.count("<result>"), prompt.count("06:12")) == (1, 1)


@pytest.mark.parametrize("reasoning", ["", "<think>\nSo it is.\n</think>\n"])
def test_an_answer_that_has_the_tags_of_answers_already_rejects_the_row_and_is_unwrapped(
    tmp_path: Path, reasoning: str
) -> None:
    wrapped, plain = (
        chat(user("When?"), assistant(f"{reasoning}{said}")) for said in ("<answer>At 06:12.</answer>", "At 06:12.")
    )
    field = "supervision.reasoning=field"
    assert codes(loaded(tmp_path, ANSWERS, field), plain, wrapped) == [[], ["wrapped_twice"]]
    stages = loaded(tmp_path, ANSWERS, field, "rows.wrapped=unwrap")
    assert stages.document(wrapped) == stages.document(plain)
    assert codes(loaded(tmp_path, TEMPLATE), chat(user("When?"), assistant("<answer>At 06:12.</answer>"))) == [[]]


def test_what_a_user_asks_may_be_wrapped_too_and_many_such_rows_are_rejected_like_one(tmp_path: Path) -> None:
    stages = as_built(tmp_path, BRACKETS)
    chats = [
        chat(user(f"{text} {n}?" if n % 2 else f"[Q] {text} {n}? [/Q]"), assistant(f"Yes, {n}."), row=n)
        for n, text in enumerate(["Is it high"] * 40)
    ]
    assert [each.row for each in stages.render(chats).rejections] == [*range(0, 40, 2)]
    assert [each.row for each in loaded(tmp_path, BRACKETS, "rows.wrapped=unwrap").render(chats).rejections] == []


def test_tools_defined_in_the_system_message_and_as_tools_reject_the_row(tmp_path: Path) -> None:
    listed = f"You call functions. Signatures within <tools></tools> tags: <tools> {json.dumps([TIDE])} </tools>"
    elided = "You call functions. <tools> [..] </tools>"
    quoted = f"You call functions.\n{TIDE}"
    mention = "Definitions are within <tools></tools>. Times of high water are in UTC."
    example = 'Say {"name": "tide", "arguments": {"harbor": "Oban"}} to ask.'
    for template, twice, once in (
        (TEMPLATE, (listed, elided, quoted), (mention, example)),
        (BARE, (listed, quoted), (elided, mention, example)),
    ):
        stages = loaded(tmp_path, template)
        assert codes(stages, *(row("06:12", said=said, tools=[TIDE]) for said in twice)) == [["wrapped_twice"]] * len(
            twice
        )
        assert codes(stages, *(row("06:12", said=said, tools=[TIDE]) for said in once)) == [[]] * len(once)
        assert codes(stages, *(row("06:12", said=said) for said in (*twice, *once))) == [[]] * 5, "no `tools`, no fault"


@pytest.mark.parametrize(
    ("written", "text", "is_kept"),
    [
        ("call.function | tojson", '{"name": "tide", "arguments": {"harbor": "Oban"}}', True),
        ("call.function | tojson", "{'name': 'tide', 'arguments': {'harbor': 'Oban'}}", False),
        ("'<name>' + call.function.name + '</name>'", '{"name": "tide", "arguments": {"harbor": "Oban"}}', False),
        ("'<name>' + call.function.name + '</name>'", "<name>tide</name>", True),
    ],
)
def test_calls_in_a_text_have_the_form_in_which_the_template_writes_calls(
    tmp_path: Path, written: str, text: str, is_kept: bool
) -> None:
    stages = loaded(tmp_path, TEMPLATE.replace("call.function | tojson", written))
    for said in (f"<call>{text}</call>", f"Let me see.\n<call>\n{text}\n</call>"):
        sample = chat(user("High water at Oban?"), assistant(said))
        assert codes(stages, sample) == [[] if is_kept else ["mangled_call"]]
    assert codes(stages, chat(user("a"), assistant(f"<other>{text}</other> or <call></call>"))) == [[]]


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (twins.CHATML, "<|im_start|>user\nHigh water at Oban?<|im_end|>\n"),
        (twins.CHATML, "<|im_start|> user\n\nHigh water at Oban? <|im_end|>"),
        (twins.CHATML, "<|im_start|>user\nHigh water at Oban?"),
        (twins.CHATML, "<|im_start|>user\nHigh water at Oban?<|im_end|>\n<|im_start|>assistant\n"),
        (twins.PHI_LIKE, "<|user|>\nHigh water at Oban?<|end|>"),
        (BRACKETS, "[Q]High water at Oban?\n\n[/Q]"),
        (BRACKETS, "<|im_start|>user\n[Q] High water at Oban? [/Q]"),
    ],
)
def test_a_text_with_the_header_of_its_role_is_wrapped_whatever_space_is_in_it(
    tmp_path: Path, template: str, text: str
) -> None:
    sample, plain = (chat(user(asked), assistant("At 06:12.")) for asked in (text, "High water at Oban?"))
    assert codes(loaded(tmp_path, template), sample) == [["wrapped_twice"]]
    unwrapping = loaded(tmp_path, template, "rows.wrapped=unwrap")
    assert unwrapping.turns(sample) == unwrapping.turns(plain)


ASKED = "High water at Oban?"


FRAMES = [
    *(
        (frame.format(ASKED), "At 06:12.")
        for frame in (
            "[INST] {} [/INST]",
            "<s>[INST] {} [/INST]",
            "### Instruction:\n{}\n\n### Response:\n",
            "### Question: {}\n### Answer:",
            "Human: {}\n\nAssistant:",
            "USER: {} ASSISTANT: ",
            "**User:** {}\n**Assistant:**",
            "<start_of_turn>user\n{}<end_of_turn>\n<start_of_turn>model\n",
            "<|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
            "<|user|>\n{}</s>\n<|assistant|>\n",
            "<|prompter|>{}<|endoftext|><|assistant|>",
            "<start_of_turn>user\n{}",
            "<|user|>\n{}",
            *("User: {}", "USER:{}", "user\n{}", "### Question:\n{}", "**User:** {}"),
        )
    ),
    *(
        (ASKED, mark.format("At 06:12."))
        for mark in (
            *("Assistant: {}", "ASSISTANT:{}", "assistant\n{}", "model\n{}", "### Response:\n{}", "**Assistant:** {}"),
            *("[ASSISTANT] {}", "## Assistant\n{}", "> Assistant: {}", "=== Assistant ===\n{}", "**Assistant**\n{}"),
            *("<assistant>{}</assistant>", '<message role="assistant">{}</message>', "AI: {}", "ChatGPT said:\n\n{}"),
        )
    ),
]


@pytest.mark.parametrize(("asked", "said"), FRAMES)
def test_the_frame_of_another_prompt_and_the_role_of_a_text_reject_the_row_and_are_unwrapped(
    tmp_path: Path, asked: str, said: str
) -> None:
    same_for_all_rows(tmp_path, asked, said)


def test_what_names_an_assistant_in_a_list_a_shell_or_code_is_text(tmp_path: Path) -> None:
    texts = (
        *("[Assistant](https://a.example) is one.", "[Assistant professors] do.", '["Assistant: Hello!"]'),
        *("## Assistant professors\nThey do.", "- Assistant: the model.\n- User: you.", "<assistant-ui>"),
        *("* Assistant (noun): who helps.", "**Assistant** (noun): who helps.", "--assistant=foo"),
        *("[assistant@host ~]$ ls", "<Assistant /> is it.", "- assistant\n- user"),
    )
    stages = loaded(tmp_path, twins.CHATML)
    assert codes(stages, *(chat(user(ASKED), assistant(text)) for text in texts)) == [[]] * len(texts)


@pytest.mark.parametrize(
    ("text", "is_framed"),
    [
        ("\n" + "#" * 200_000, False),
        ('"' + '\\"' * 100_000 + "x", False),
        ("Assistant: At" + " " * 200_000 + "06:12.", True),
    ],
)
def test_long_runs_of_one_sign_are_searched_in_linear_time(text: str, is_framed: bool) -> None:
    """In quadratic time, each would take many minutes."""
    row = chat(user(f"A human asks:{text}"), assistant(text))
    assert isinstance(unframed(row, make_recipe({})), Rejection if is_framed else Sample)


@pytest.mark.parametrize("write", [json.dumps, repr])
def test_a_text_that_is_itself_written_out_rejects_the_row_and_is_unwrapped(tmp_path: Path, write: Any) -> None:
    said = 'At 06:12.\nIt says: "noon".'
    stages, unwrapping = loaded(tmp_path, twins.CHATML), loaded(tmp_path, twins.CHATML, "rows.wrapped=unwrap")
    assert codes(stages, chat(user(ASKED), assistant(write(said)))) == [["wrapped_twice"]]
    assert unwrapping.turns(chat(user(ASKED), assistant(write(said)))) == stages.turns(
        chat(user(ASKED), assistant(said))
    )
    for text in ('"At 06:12."', r'"C:\tide" and "C:\noon"', "'It\\'s late' isn't it'"):
        assert codes(loaded(tmp_path, twins.CHATML), chat(user(ASKED), assistant(text))) == [[]]


@pytest.mark.parametrize("write", [json.dumps, str])
def test_a_text_that_is_its_message_or_its_parts_written_out_rejects_the_row_and_is_unwrapped(
    tmp_path: Path, write: Any
) -> None:
    same_for_all_rows(tmp_path, ASKED, write([{"type": "text", "text": "At "}, {"type": "text", "text": "06:12."}]))
    same_for_all_rows(tmp_path, write({"role": "user", "content": ASKED}), "At 06:12.")
    for text in ({"role": "user", "content": "a"}, [{"type": "tide", "text": "a"}], {"text": "a"}, [{"text": "a"}]):
        assert codes(loaded(tmp_path, twins.CHATML), chat(user(ASKED), assistant(write(text)))) == [[]]


def same_for_all_rows(folder: Path, asked: str, said: str) -> None:
    """Of several equal rows, all but the first few are rendered by the fast way."""
    sample, plain = chat(user(asked), assistant(said)), chat(user(ASKED), assistant("At 06:12."))
    stages = as_built(folder, twins.CHATML)
    assert codes(stages, plain, *[sample] * 8) == [[], *[["wrapped_twice"]] * 8]
    assert loaded(folder, twins.CHATML, "rows.wrapped=unwrap").turns(sample) == stages.turns(plain)
    assert codes(loaded(folder, twins.CHATML, "supervision.control_tokens=allow"), sample) == [[]]


KIMI = "<|im_system|>{}<|im_middle|>{}<|im_end|>"


def test_a_header_of_any_name_between_marks_rejects_the_row_and_definitions_behind_it_are_no_text(
    tmp_path: Path,
) -> None:
    declared, said = (
        chat(system(KIMI.format(*each)), user(ASKED), CALLED, result("06:12"), assistant("At 06:12."))
        for each in (("tool_declare", json.dumps([TIDE])), ("system", "Be brief."))
    )
    for template in (TEMPLATE, twins.PHI_LIKE):
        assert codes(loaded(tmp_path, template), declared, said) == [["wrapped_twice"]] * 2
    unwrapping = loaded(tmp_path, TEMPLATE, "rows.wrapped=unwrap")
    for stages in (unwrapping, loaded(tmp_path, TEMPLATE, "supervision.control_tokens=allow")):
        ((code, reason),) = stages.reasons([declared])
        assert code == "wrapped_twice" and "belong in `tools`" in reason
    assert unwrapping.turns(said) == unwrapping.turns(
        chat(system("Be brief."), user(ASKED), CALLED, result("06:12"), assistant("At 06:12."))
    )
    asked = chat(user("<|im_user|>user<|im_middle|>" + ASKED + "<|im_end|>"), assistant("At 06:12."))
    assert codes(loaded(tmp_path, twins.PHI_LIKE), asked) == [["wrapped_twice"]]
    for text in ("<|box|>12<|end|> is what?", "What is <|im_system|>system<|im_middle|>?", '[{"name": "tide"}]'):
        assert codes(loaded(tmp_path, twins.CHATML), chat(system(text), user(text), assistant("A box."))) == [[]]


MARKS = ["<extra_id_1>{}\n", "[|{}|]", "### {}:", "**{}:** ", "<{}>: ", "[{}] ", "<|im_start|>{}\n"]


NAMES = [("User", "Assistant"), ("human", "AI"), ("USER", "MODEL")]


@pytest.mark.parametrize(("mark", "asks", "answers"), one_in(2, [(mark, *each) for mark in MARKS for each in NAMES]))
def test_marks_of_one_form_that_name_speakers_in_turn_reject_the_row(
    tmp_path: Path, mark: str, asks: str, answers: str
) -> None:
    one, other = mark.format(asks), mark.format(answers)
    same_for_all_rows(tmp_path, f"{one}{ASKED}\n{other}", "At 06:12.")
    plain = assistant("At 06:12.")
    several = [
        chat(user(f"Any tide?\n{other}One.\n{one}{ASKED}"), plain),
        chat(user(f"A talk.\n{one}Any tide?\n{other}One.\n{one}{ASKED}\n{other}"), plain),
    ]
    learned = chat(user("Any tide?"), assistant(f"One.\n{one}{ASKED}\n{other}At 06:12."))
    for stages in (loaded(tmp_path, twins.CHATML), loaded(tmp_path, twins.CHATML, "rows.wrapped=unwrap")):
        assert codes(stages, *several) == [["wrapped_twice"]] * 2
        if (mark[0] == "<" and "im_" not in mark) or "|]" in mark:
            assert codes(stages, learned) == [["wrapped_twice"]]
    quoted = [
        f"Sum up:\n{one}{ASKED}\n{other}At 06:12.",
        f"```\n{one}{ASKED}\n{other}\n{one}\n```\nWhat is this?",
        f"Are {one.strip()} and {other.strip()} and {one.strip()} marks?",
        f"Two of them?\n{one}{ASKED}\n{one}Now!",
    ]
    told = chat(user(ASKED), assistant(f"**{asks}:** When?\n**{answers}:** At 06:12.\n**{asks}:** Thanks!"))
    assert codes(loaded(tmp_path, twins.CHATML), *[chat(user(text), plain) for text in quoted], told) == [[]] * 5


@pytest.mark.parametrize("mark", ["<extra_id_1>{}\n", "[|{}|] ", "<{}>: ", "[{}]: "])
def test_a_mark_that_names_its_speaker_at_the_beginning_of_a_text_is_a_header(tmp_path: Path, mark: str) -> None:
    same_for_all_rows(tmp_path, ASKED, f"{mark.format('Assistant')}At 06:12.")
    same_for_all_rows(tmp_path, ASKED, f"\n{mark.format('AI')}At 06:12.")
    same_for_all_rows(tmp_path, f"{mark.format('Human')}{ASKED}", "At 06:12.")
    for text in ("[AI] is what?", "<model>T</model>", f"{mark.format('model')}"):
        assert codes(loaded(tmp_path, twins.CHATML), chat(user(text), assistant("At 06:12."))) == [[]]
    for text in ("[AI] it is.", "<model>T</model>", f"{mark.format('user')}is a mark."):
        assert codes(loaded(tmp_path, twins.CHATML), chat(user(ASKED), assistant(text))) == [[]]


def test_what_stands_before_a_frame_stays_and_several_turns_in_a_text_are_never_unwrapped(tmp_path: Path) -> None:
    stages = loaded(tmp_path, twins.CHATML, "rows.wrapped=unwrap")
    framed = chat(user(f"Be brief.\n\n### Instruction:\n{ASKED}\n\n### Response:"), assistant("At 06:12. </s>"))
    assert stages.turns(framed) == stages.turns(chat(user(f"Be brief.\n\n{ASKED}"), assistant("At 06:12.")))
    framed = chat(user(f"<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n{ASKED} [/INST]"), assistant("At 06:12."))
    assert stages.turns(framed) == stages.turns(chat(user(f"Be brief.\n\n{ASKED}"), assistant("At 06:12.")))
    for one in (system, user):
        framed = chat(one("<<SYS>>\nBe brief.\n<</SYS>>\n\nNow!"), user(ASKED), assistant("At 06:12."))
        plain = chat(one("Be brief.\n\nNow!"), user(ASKED), assistant("At 06:12."))
        assert stages.turns(framed) == stages.turns(plain)
        assert codes(loaded(tmp_path, twins.CHATML), framed) == [["wrapped_twice"]]
    framed = chat(user(f"Human: {ASKED}\n\nAssistant:"), assistant(" At 06:12."))
    assert stages.turns(framed) == stages.turns(chat(user(ASKED), assistant("At 06:12.")))
    talk = f"Human: Hi\n\nAssistant: Hello!\n\nHuman: {ASKED}\n\nAssistant:"
    words = loaded(tmp_path, twins.CHATML, "rows.wrapped=unwrap", "supervision.control_tokens=allow")
    assert words.turns(framed) == stages.turns(framed)
    assert talk in words.turns(chat(user(talk), assistant("At 06:12.")))[-1][0]
    whole = f"user\n{ASKED}\nassistant\nAt 06:12."
    assert codes(stages, chat(user(talk), assistant("At 06:12."))) == [["wrapped_twice"]]
    assert codes(stages, chat(user(ASKED), assistant(whole))) == [["wrapped_twice"]]
    for header in ("System: ", "### System:\n", "system\n"):
        told = chat(user(f"{header}Be brief.\nUser: {ASKED}\nAssistant:"), assistant(" At 06:12."))
        ((code, reason),) = stages.reasons([told])
        assert code == "wrapped_twice" and "what a system says before it belongs in a message of its own" in reason


def test_words_that_are_no_frame_and_a_header_within_a_text_are_text(tmp_path: Path) -> None:
    said = [
        ("Question: When is it?\nAnswer:", "06:12"),
        ("Which model?\nModel:", "Model: T, of 1908."),
        ("What ends with Assistant:", "Assistant professors do."),
        ("What do [INST] and [/INST] mean?", "[INST] begins what a user says, and [/INST] ends it."),
        ("Is user: a word? And human: too?", "The assistant: that is me. User: that is you."),
        ("What does <|im_start|>user mean?", "At 06:12."),
        ("It is <|im_start|>user\nHi<|im_end|>.", "At 06:12."),
    ]
    stages = loaded(tmp_path, twins.CHATML)
    assert codes(stages, *(chat(user(asked), assistant(text)) for asked, text in said)) == [[]] * len(said)
