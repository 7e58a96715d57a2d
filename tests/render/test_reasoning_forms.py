"""How a template shows reasoning is learned by trial: the form in which it reads it, its markers, its words for none."""

from pathlib import Path
from typing import Any

import pytest
import twins
from search_effort import one_in
from supervision_stages import Stages, assistant, call, chat, result, system, user

from packer.render.environment import ChatTemplate

END = "<|im_end|>"

CHANNELS = """\
{%- for m in messages %}
{%- if m.role != 'assistant' %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- else %}
{%- if FIELD %}{{ '<|im_start|>assistant to=self\\n' + FIELD + '\\n' }}{% endif %}
{{- '<|im_start|>assistant to=user\\n' + m.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant' }}{% endif %}"""
"""As gpt-oss, Muse and Solar: reasoning is a message of its own kind, and the text stands as it is."""

PARTS = """\
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.content is string %}{{ m.content }}
{%- else %}
{%- for part in m.content or [] %}
{%- if part.type == 'text' %}{{ part.text }}
{%- elif part.type == 'thinking' %}{{ '[THINK]' + part.thinking + '[/THINK]' }}
{%- else %}{{ raise_exception('text and thinking only') }}{% endif %}
{%- endfor %}
{%- endif %}
{%- for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
"""As Ministral: reasoning is a part of the content, and fields are ignored."""


def framed(turn: str, asked: str = "''", before: str = "") -> str:
    """A template that writes turns in this way between ChatML's marks, and something more behind its prompts."""
    return (
        f"{before}{{%- for m in messages %}}{{{{- '<|im_start|>' + m.role + '\\n' }}}}{turn}{{{{- '<|im_end|>\\n' }}}}"
        f"{{%- endfor %}}{{%- if add_generation_prompt %}}{{{{- '<|im_start|>assistant\\n' + {asked} }}}}{{%- endif %}}"
    )


THINKS = framed(
    "{%- if m.reasoning_content %}{{- '<think>' + m.reasoning_content + '</think>' }}{%- endif %}{{- m.content }}"
)
"""Shows the reasoning of a field in the tags that most rows have inline."""

TEMPLATES = {
    "thinking": CHANNELS.replace("FIELD", "m.thinking"),
    "thoughts": CHANNELS.replace("FIELD", "m.get('thoughts')"),
    "reasoning": CHANNELS.replace("FIELD", "m.reasoning"),
    "parts": PARTS,
}
BLOCKS = (
    *("<think>\nCount.\n</think>\n\n", "<thinking>Count.</thinking>", "<reasoning>Count.</reasoning>\n"),
    *("<|begin_of_thought|>Count.<|end_of_thought|>\n\n", "◁think▷Count.◁/think▷", "<Thought>\nCount.</Thought> "),
    *("<think:own>Count.</think:own>", "<seed:think>Count.</seed:think>", "[REASONING]Count.[/REASONING]"),
)

ASKED = user("one?")


def as_built(folder: Path, template: str, *overrides: str) -> Stages:
    return Stages.load(twins.byte_level(folder / "model", template=template), *overrides)


def stages(folder: Path, template: str, *overrides: str) -> Stages:
    return as_built(folder, template, *overrides).by_reference()


def learned(made: Stages, *messages: dict[str, Any], **variables: Any) -> str:
    """What is trained of the last turn."""
    return made.turns(chat(*messages, **variables))[-1][1]


@pytest.mark.parametrize("name", TEMPLATES)
def test_reasoning_in_the_tags_of_another_family_is_no_text_of_an_answer(tmp_path: Path, name: str) -> None:
    made = stages(tmp_path, TEMPLATES[name])
    allowing = stages(tmp_path, TEMPLATES[name], "supervision.allow_dropped=[reasoning]")
    moving = stages(tmp_path, TEMPLATES[name], "supervision.reasoning=field")
    own = learned(made, ASKED, assistant("One.", reasoning_content="Count."))
    assert own.count("Count.") == 1
    for block in BLOCKS:
        row = chat(ASKED, assistant(block + "One."))
        ((code, reason),) = made.reasons([row])
        assert code == "dropped_reasoning", block
        assert "as part of the answer: " in reason
        assert allowing.outcomes([row]) == ["dropped_reasoning"], block
        assert learned(moving, ASKED, assistant(block + "One.")) == own
        assert block.strip() not in own


def test_tags_that_a_template_writes_itself_are_its_markers(tmp_path: Path) -> None:
    made = stages(tmp_path, THINKS)
    assert learned(made, ASKED, assistant("<think>\nCount.\n</think>\n\nOne.")).startswith("<think>\nCount.")
    others = [chat(ASKED, assistant(block + "One.")) for block in BLOCKS[1:]]
    assert made.outcomes(others) == ["dropped_reasoning"] * len(others)


PLANS = framed(
    "{%- if m.role == 'assistant' %}"
    "{{- 'LEFTplanRIGHT' + (m.reasoning_content or '') + 'LEFT/planRIGHT\\n' }}{%- endif %}{{- m.content }}",
    "'OPENED'",
)
"""Reasoning in tags of a name that tells nothing."""


MARKS = (("<", ">"), ("[[", "]]"), ("<|", "|>"), ("{", "}"))
OPENED = ("", "LEFTplanRIGHT", "LEFTplanRIGHTLEFT/planRIGHT\\n")


@pytest.mark.parametrize(("left", "right", "opened"), one_in(2, [(*m, o) for m in MARKS for o in OPENED]))
def test_tags_of_any_name_that_a_template_has_around_reasoning_are_no_text(
    tmp_path: Path, left: str, right: str, opened: str
) -> None:
    def own(text: str) -> str:
        return text.replace("LEFT", left).replace("RIGHT", right)

    made = as_built(tmp_path, own(PLANS.replace("OPENED", opened)), "engine=auto")
    rows = [chat(ASKED, assistant(f"a{k}"), row=k) for k in range(40)]
    inline = chat(ASKED, assistant(own("LEFTplanRIGHTCount.LEFT/planRIGHTOne.")), row=40)
    outcomes = made.outcomes([*rows, inline, chat(ASKED, assistant(own("LEFTplanRIGHT it first.")), row=41)])
    assert outcomes[40] == "dropped_reasoning"
    assert not any(isinstance(outcome, str) for outcome in [*outcomes[:40], outcomes[41]])


def test_a_block_of_reasoning_in_tags_that_the_template_writes_too_may_begin_an_answer(tmp_path: Path) -> None:
    made = stages(tmp_path, THINKS.replace("think>", "plan>"))
    own = learned(made, ASKED, assistant("One.", reasoning_content="Count."))
    assert learned(made, ASKED, assistant("<plan>Count.</plan>One.")) == own
    again = chat(ASKED, assistant("<plan>Count.</plan>One.<plan>Again.</plan>"))
    assert made.outcomes([again]) == ["dropped_reasoning"]


ELSEWHERE = (
    *("<think>Count.</think>One.<think>Again.</think>Still one.", "Well.\n<think>Count.</think>\nOne."),
    *("Count.\n</think>\n\nOne.", "One. <think> as I said", "One.\n</think>", "It is one.</ think >"),
    *("Put <think> before and </think> behind it.", "One. <thinking>Hm.</thinking>", "```\n<think>\n```"),
    *("One.<|end_of_thought|>", "One. [/think]"),
)
ODD = (
    *("<think type='deep'>Count.</think>One.", "< think >Count.</ think >One.", "[think]Count.[/think]One."),
    *("<|think|>Count.<|/think|>One.", "&lt;think&gt;Count.&lt;/think&gt;One."),
    "<\uff5cthink\uff5c>Count.<\uff5c/think\uff5c>One.",
    "<|channel|>analysis<|message|>Count.<|end|><|start|>assistant<|channel|>final<|message|>One.",
    "<|open|>think<|sep|>Count.<|close|>think<|sep|><|open|>response<|sep|>One.",
    '<details type="reasoning" done="true">\nCount.\n</details>\nOne.',
    "<start_of_thought>Count.<end_of_thought>One.",
)


@pytest.mark.parametrize("name", [*TEMPLATES, "tags"])
def test_no_tag_of_reasoning_is_trained_but_those_of_the_template(tmp_path: Path, name: str) -> None:
    """A field with the reasoning that the text opens with says the same once more."""
    made = stages(tmp_path, TEMPLATES.get(name, THINKS))
    clean = learned(made, ASKED, assistant("One.", reasoning_content="Count."))
    for text in (*ELSEWHERE, *ODD):
        assert made.outcomes([chat(ASKED, assistant(text))])[0] in {"dropped_reasoning", "open_reasoning"}, text
        beside = assistant(text, reasoning_content="Count.")
        if made.outcomes([chat(ASKED, beside)])[0] not in ("dropped_reasoning", "open_reasoning", "wrong_type"):
            assert learned(made, ASKED, beside) == clean, text


@pytest.mark.parametrize("text", ["Count.</think> Hm.", "I close with </think>."])
def test_a_field_does_not_close_its_own_reasoning(tmp_path: Path, text: str) -> None:
    turn = assistant("One.", reasoning_content=text)
    assert stages(tmp_path, THINKS).outcomes([chat(ASKED, turn)]) == ["dropped_reasoning"]
    assert text in learned(stages(tmp_path, TEMPLATES["parts"]), ASKED, turn)


def test_an_opening_tag_within_reasoning_is_text_of_it(tmp_path: Path) -> None:
    said = learned(stages(tmp_path, THINKS), ASKED, assistant("<think>I need <think> and <thinking>.</think>One."))
    assert said == f"<think>I need <think> and <thinking>.</think>One.{END}"
    doubled = assistant("One.", reasoning_content="<think>\nCount.")
    assert stages(tmp_path, THINKS).outcomes([chat(ASKED, doubled)]) == ["dropped_reasoning"]


AS_TEXT = ("One.<think>Hm.</think>Yes.", "Put <think> before it.", "<think>a</think>b<think>c</think>d")


def test_a_template_without_tags_takes_all_as_text_but_one_that_closes_nothing(tmp_path: Path) -> None:
    made = stages(tmp_path, twins.CHATML)
    for text in (*AS_TEXT, *(block + "One." for block in BLOCKS)):
        assert learned(made, ASKED, assistant(text)) == text + END
    assert made.outcomes([chat(ASKED, assistant("Count.\n</think>\n\nOne."))]) == ["dropped_reasoning"]


@pytest.mark.parametrize("name", TEMPLATES)
def test_other_tags_code_and_markup_are_text(tmp_path: Path, name: str) -> None:
    said = (
        *("<answer>One.</answer> That is it.", "<b>One</b> it is.", "[NOTE]x[/NOTE] One.", "<html><p>One</p></html>"),
        *("List<Thought> all;", "<ThinkingDots />", '<Thinking level="3"/>', "<thought-card :reason='none' />"),
        *("<stop_reason>end</stop_reason>", "because [reasons]", "I <think so", "a <rest> b"),
        *("\\\\item[Think] of it", "steps[think]", "The element `<Reason>` says why; `</Reason>` ends it."),
        "Vue:\n```vue\n<thought-card>\n  one\n</thought-card>\n```\nDone.",
        "```xml\n<Error><Reason>none</Reason></Error>\n```",
    )
    made = stages(tmp_path, TEMPLATES[name])
    for text in said:
        assert text in learned(made, ASKED, assistant(text))


@pytest.mark.parametrize(
    "text",
    [
        "```\n<thoughts>Count.</thoughts>\nOne.\n```",  # all of the answer in a fence
        "A `<think>` here.",  # the template's own
        "```\na\n```\n<thoughts>Count.</thoughts>",
        "[Think] Count. [/Think] One.",
    ],
)
def test_code_hides_no_tag_that_may_be_one(tmp_path: Path, text: str) -> None:
    assert stages(tmp_path, SWITCHED).outcomes([chat(ASKED, assistant(text))]) == ["dropped_reasoning"]


def test_an_empty_block_is_no_text_of_an_answer_either(tmp_path: Path) -> None:
    turn = assistant("<think>\n\n</think>\n\nOne.")
    assert stages(tmp_path, TEMPLATES["thinking"]).outcomes([chat(ASKED, turn)]) == ["dropped_reasoning"]
    has_field = TEMPLATES["thinking"].replace("{%- if m.thinking %}", "{%- if 'thinking' in m %}")
    as_field = stages(tmp_path, has_field, "supervision.reasoning=field")
    assert learned(as_field, ASKED, turn) == " to=user\nOne." + END


def test_tags_are_trained_as_text_where_the_recipe_wants_reasoning_inline(tmp_path: Path) -> None:
    """As for a model that is to learn a format of its own. Only what the row itself has: a field stays in the markers."""
    made = stages(tmp_path, TEMPLATES["thinking"], "supervision.reasoning=inline")
    text = "<reasoning>Count.</reasoning>\n<answer>One.</answer>"
    assert learned(made, ASKED, assistant(text)) == f" to=user\n{text}{END}"
    field = assistant("One.", reasoning_content="Count.")
    assert learned(made, ASKED, field) == learned(stages(tmp_path, TEMPLATES["thinking"]), ASKED, field)
    closed = twins.QWEN3_LIKE
    made = stages(tmp_path, closed, "supervision.reasoning=inline")
    assert learned(made, ASKED, assistant(text)).endswith(text + END)
    assert stages(tmp_path, closed).outcomes([chat(ASKED, assistant(text))]) == ["dropped_reasoning"]


def test_inline_reasoning_that_only_closes_is_opened_where_the_recipe_wants_it_inline(tmp_path: Path) -> None:
    """R1's texts begin within the block that its prompt opens; no other prompt does."""
    made = stages(tmp_path, twins.CHATML, "supervision.reasoning=inline")
    said = assistant("First the tide.\n</think>\n\nAt six.")
    assert learned(made, ASKED, said) == "<think>\nFirst the tide.\n</think>\n\nAt six.<|im_end|>"


def test_a_template_is_tried_with_the_variables_of_the_recipe(tmp_path: Path) -> None:
    needs = "{%- if not persona %}{{ raise_exception('who?') }}{% endif %}" + TEMPLATES["reasoning"]
    made = stages(tmp_path, needs, "template.kwargs.persona=kind")
    assert made.outcomes([chat(ASKED, assistant("<think>Count.</think>One."))]) == ["dropped_reasoning"]
    assert "Count." in learned(made, ASKED, assistant("One.", thinking="Count."))


@pytest.mark.parametrize("name", TEMPLATES)
def test_reasoning_is_given_in_the_form_that_the_template_reads(tmp_path: Path, name: str) -> None:
    """Under any of its names, and without tags of its own."""
    made = stages(tmp_path, TEMPLATES[name])
    marked = "[THINK]Count.[/THINK]One." if name == "parts" else " to=self\nCount.\n<|im_start|>assistant to=user\nOne."
    for field in ("reasoning_content", "thinking", "reasoning"):
        assert learned(made, ASKED, assistant("One.", **{field: "Count."})) == marked + END
    for tagged in ("<think>Count.</think>", "[THINK]\nCount.\n[/THINK]"):
        assert learned(made, ASKED, assistant("One.", reasoning_content=tagged)) == marked + END


def test_parts_of_reasoning_stand_beside_calls_and_in_history(tmp_path: Path) -> None:
    made = stages(tmp_path, PARTS)
    calling = assistant(None, reasoning_content="Ask.", tool_calls=[call("look", {"q": "x"})])
    turns = made.turns(chat(ASKED, calling, result("wet"), assistant("It rains.", reasoning_content="So it does.")))
    assert turns[0][1].startswith('[THINK]Ask.[/THINK]{"name": "look"')
    assert "[THINK]Ask.[/THINK]" in turns[1][0]
    assert turns[1][1] == f"[THINK]So it does.[/THINK]It rains.{END}"


def test_a_template_that_prints_a_list_as_it_is_shows_no_reasoning(tmp_path: Path) -> None:
    prints = twins.CHATML.replace("(message.content or '')", "message.content | string")
    assert prints != twins.CHATML
    turn = assistant("One.", reasoning_content="Count.")
    assert stages(tmp_path, prints).outcomes([chat(ASKED, turn)]) == ["dropped_reasoning"]


EFFORT = """\
{%- set effort = (reasoning_effort if reasoning_effort is defined else DEFAULT) | lower %}
{%- if effort not in [WORDS] %}{{ raise_exception('unknown effort') }}{% endif %}
{{- '<|im_start|>system\\neffort ' + effort + '<|im_end|>\\n' }}
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\\n' }}
{%- if m.reasoning_content %}{{ '[THINK]' + m.reasoning_content + '[/THINK]' }}{% endif %}
{{- m.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
"""As Mistral's: only the words before the question say whether there is to be reasoning."""

REASONED, PLAIN = assistant("One.", reasoning_content="Count."), assistant("One.")


def effort(default: str, *words: str) -> str:
    return EFFORT.replace("DEFAULT", repr(default)).replace("WORDS", ", ".join(map(repr, words)))


def asked_with(made: Stages, turn: dict[str, Any], **variables: Any) -> str:
    ((prompt, _),) = made.turns(chat(ASKED, turn, **variables))
    return prompt.partition("effort ")[2].partition(END)[0]


@pytest.mark.parametrize("none", ["none", "no_think", "off", "disabled", "no_reasoning", "non-thinking"])
def test_a_reasoned_answer_is_trained_under_the_word_that_asks_for_reasoning(tmp_path: Path, none: str) -> None:
    made = stages(tmp_path, effort(none, none, "high"))
    assert asked_with(made, REASONED) == "high"
    assert asked_with(made, PLAIN) == none
    assert asked_with(made, PLAIN, reasoning_effort="high") == "high"
    assert asked_with(made, REASONED, reasoning_effort="high") == "high"


@pytest.mark.parametrize("default", ["normal", "notable", "official"])
def test_a_default_that_asks_for_reasoning_is_kept(tmp_path: Path, default: str) -> None:
    made = stages(tmp_path, effort(default, "none", "low", default))
    assert asked_with(made, REASONED) == asked_with(made, PLAIN) == default


CUTS = (
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' }}{%- set text = m.content %}"
    "{%- set why = m.reasoning_content %}{%- if m.role == 'assistant' and not why and '</think>' in text %}"
    "{%- set why = text.split('</think>')[0].split('<think>')[-1] %}{%- set text = text.split('</think>')[-1] %}{%- endif %}"
    "{%- if why %}{{- '<think>' + why + '</think>' }}{%- endif %}{{- text + '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)


def test_a_closing_tag_that_is_quoted_as_code_ends_no_reasoning_and_a_template_that_cuts_there_is_refused(
    tmp_path: Path,
) -> None:
    made = stages(tmp_path, CUTS)
    for text in ("`</think>` closes it.", "Here, `a </think> b` closes it.", "Both: `<think>` and `</think>`."):
        assert [code for code, _ in made.reasons([chat(ASKED, assistant(text))])] == ["dropped_reasoning"], text
    for text in ("So `a`.\n</think>\n\nTwo.", "`a</think>\n`Two.", "<think>`</think>`Two."):
        ((_, completion),) = made.turns(chat(ASKED, assistant(text)))
        assert completion.startswith("<think>") and completion.endswith("Two.<|im_end|>")


@pytest.mark.parametrize("blank", [" ", "\n", " \n\n", "\u2003"])
def test_reasoning_of_white_space_is_none(tmp_path: Path, blank: str) -> None:
    made = as_built(tmp_path, CUTS)
    for plain in (assistant("Two."), assistant("Two.", reasoning_content="")):
        spaced = chat(ASKED, {**plain, "reasoning_content": blank, "thinking": blank})
        assert made.turns(spaced) == made.turns(chat(ASKED, plain))
        assert made.render([spaced] * 9).text == made.render([chat(ASKED, plain)] * 9).text


@pytest.mark.parametrize("writes", ["m == messages[-1] and loop.index > 2", "false"])
def test_a_plain_answer_is_trained_behind_the_empty_block_that_another_mode_adds(tmp_path: Path, writes: str) -> None:
    """The template does not write it in an opening answer, as Qwen3 does not, or nowhere."""
    block = "<think>\n\n</think>\n\n"
    source = (
        "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' }}"
        "{%- if m.role == 'assistant' and WRITES and not m.reasoning_content %}{{- BLOCK }}{%- endif %}"
        "{%- if m.reasoning_content %}{{- '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}{%- endif %}"
        "{{- m.content + '<|im_end|>\n' }}{%- endfor %}"
        "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}"
        "{%- if thinking is false %}{{- BLOCK }}{%- endif %}{%- endif %}"
    )
    made = as_built(tmp_path, source.replace("WRITES", writes).replace("BLOCK", repr(block)))
    said = [system("Be kind."), assistant("Hello!"), ASKED, assistant("Two.")]
    for row in (chat(*said), chat(ASKED, assistant("Hello!"), ASKED, assistant("Two."))):
        turns = made.turns(row)
        assert made.render([row] * 9).text == made.render([row]).text * 9
        assert [completion for _, completion in turns] == ["Hello!<|im_end|>", "Two.<|im_end|>"]
        assert [prompt.endswith(f"assistant\n{block}") and prompt.count(block) for prompt, _ in turns] == [1, 1]
    reasoned = assistant("Two.", reasoning_content="One and one.")
    ((prompt, completion),) = made.turns(chat(ASKED, reasoned))
    assert not prompt.endswith(block) and completion.startswith("<think>\nOne and one.")
    opens = source.replace("{%- if thinking is false", "{%- if thinking %}{{- '<think>\n' }}{%- elif thinking is false")
    made = stages(tmp_path / "opens", opens.replace("WRITES", "false").replace("BLOCK", repr(block)))
    ((prompt, completion),) = made.turns(chat(ASKED, assistant("Two.")))
    assert prompt.endswith("<|im_start|>assistant\n") and completion == "Two.<|im_end|>"


@pytest.mark.parametrize(
    ("made", "name"),
    [
        ("effort = effort | default('none')", "effort"),
        ("effort = reasoning_effort if reasoning_effort is defined else 'none'", "reasoning_effort"),
        ("effort = effort or 'off'", "effort"),
    ],
)
def test_no_reasoned_answer_is_trained_under_a_fallback_that_is_only_written(
    tmp_path: Path, made: str, name: str
) -> None:
    body = EFFORT.partition("{%- for m in messages %}")
    head = f"{{%- set {made} %}}{{{{- '<|im_start|>system\neffort ' + effort + '<|im_end|>\n' }}}}"
    built = stages(tmp_path, head + "".join(body[1:]))
    reason = f"messages[1]: its reasoning contradicts {name}, which means none by default"
    assert built.reasons([chat(ASKED, REASONED)]) == [("prompt_diverges", reason)]
    assert asked_with(built, REASONED, **{name: "high"}) == "high"
    assert asked_with(built, PLAIN) in ("none", "off")


def test_of_several_words_that_ask_for_reasoning_none_is_guessed(tmp_path: Path) -> None:
    made = stages(tmp_path, effort("none", "none", "low", "high"))
    ((code, reason),) = made.reasons([chat(ASKED, REASONED)])
    assert code == "prompt_diverges"
    assert reason.endswith("in several ways: reasoning_effort=low or reasoning_effort=high")
    assert asked_with(made, REASONED, reasoning_effort="low") == "low"
    assert asked_with(made, PLAIN) == "none"


WAYS = {
    "a dictionary": ("{'none': 0, 'low': 5}[depth | default('none')] > 0", "none", "low"),
    "a named dictionary": ("budgets[depth | default('none')] > 0", "none", "low"),
    "a macro": ("opens(depth | default('flat')) == 'yes'", "flat", "deep"),
    "a number": ("(depth | default(0) | int) != 0", 0, 1),
    "a beginning": ("(depth | default('flat')).startswith('deep')", "flat", "deep"),
    "a part": ("'deep' in (depth | default('flat'))", "flat", "deep"),
    "a test": ("(depth | default('flat')) is eq('deep')", "flat", "deep"),
    "another variable": ("(depth | default('flat') | lower) == deep", "flat", "deep"),
    "a member": ("ns.value != 'flat' and ns.value == 'deep'", "flat", "deep"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_mode_is_found_however_the_template_asks_for_it(tmp_path: Path, way: str) -> None:
    is_on, off, on = WAYS[way]
    head = """\
{%- macro opens(level) %}{% if level == 'deep' %}yes{% endif %}{% endmacro %}
{%- set budgets = {'none': 0, 'low': 5} %}{% set deep = 'deep' %}{% set ns = namespace(value=depth) %}"""
    body = "".join(EFFORT.partition("{%- for m in messages %}")[1:])
    closes = body.replace("{% endif %}", "{% elif m.role == 'assistant' %}[THINK][/THINK]{% endif %}", 1)
    closes = closes.replace("assistant\\n' }}", f"assistant\\n[THINK]' + ('' if {is_on} else '[/THINK]') }}}}")
    made = stages(tmp_path, head + closes)
    assert made.turns(chat(ASKED, PLAIN)) == [(made.turns(chat(ASKED, PLAIN, depth=off))[0][0], f"One.{END}")]
    found = made.reasons([chat(ASKED, REASONED, depth=off)])
    assert found == [("prompt_diverges", f"messages[1]: its reasoning contradicts depth={off}")]
    ((prompt, completion),) = made.turns(chat(ASKED, REASONED, depth=on))
    assert (prompt[-7:], completion) == ("[THINK]", f"Count.[/THINK]One.{END}")


def test_a_word_that_stands_for_none_is_told_by_what_the_template_writes_for_it(tmp_path: Path) -> None:
    stated = effort("n", "n", "h").replace("+ effort +", "+ {'n': 'none', 'h': 'high'}[effort] +")
    made = stages(tmp_path, stated.replace("reasoning_effort", "level"))
    assert asked_with(made, REASONED) == "high"
    assert asked_with(made, PLAIN) == "none"
    ((_, reason),) = made.reasons([chat(ASKED, REASONED, level="n")])
    assert reason.endswith("contradicts level=n")


@pytest.mark.parametrize("shows", [True, False], ids=["field", "text"])
@pytest.mark.parametrize("default", [True, False])
@pytest.mark.parametrize(
    ("on", "off"),
    [
        ("detailed thinking on", "detailed thinking off"),
        ("enabled", "disabled"),
        ("reason between <think> and </think>, then say what it is that you found", "as you like"),
    ],
)
def test_a_truth_value_is_told_by_what_the_template_writes_for_it(
    tmp_path: Path, on: str, off: str, *, default: bool, shows: bool
) -> None:
    """As Ring's, Apertus' and Granite's: the finished turns are the same under both."""
    head, body = f"{{%- set on = thinking | default({default}) %}}", "".join(EFFORT.partition("{{- '<|im")[1:])
    source = (head + body).replace("+ effort +", f"+ ({on!r} if on else {off!r}) +")
    made = stages(tmp_path, source if shows else source.replace("if m.reasoning_content", "if false"))
    turn = REASONED if shows else assistant("[THINK]Count.[/THINK]One.")
    assert asked_with(made, turn) == asked_with(made, PLAIN, thinking=True) == on
    assert asked_with(made, PLAIN) == (on if default else off)
    found = made.reasons([chat(ASKED, turn, thinking=False)])
    assert found == [("prompt_diverges", "messages[1]: its reasoning contradicts thinking=false")]


def test_words_that_come_to_the_same_prompt_are_one(tmp_path: Path) -> None:
    same = effort("none", "none", "low", "high").replace("+ effort +", "+ ('none' if effort == 'none' else 'some') +")
    assert asked_with(stages(tmp_path, same), REASONED) == "some"


CALLS = framed(
    "{%- if m.reasoning_content %}{{- '<think>' + m.reasoning_content + '</think>' }}"
    "{%- elif m.role == 'assistant' %}{{- '<think>' }}{%- endif %}"
    "{{- m.content or '' }}{%- for c in m.tool_calls or [] %}{{- c.function | tojson }}{%- endfor %}",
    "'<think>'",
)
"""Leaves the reasoning open in turns that have none."""


def test_a_closing_tag_among_arguments_does_not_close_the_reasoning(tmp_path: Path) -> None:
    turns = [ASKED, assistant(None, tool_calls=[call("find", {"text": "</think>"})])]
    assert stages(tmp_path, CALLS).outcomes([chat(*turns)]) == ["prompt_diverges"]
    said = learned(stages(tmp_path, CALLS, "supervision.on_prompt_mismatch=continue"), *turns)
    assert said == f'</think>{{"name": "find", "arguments": {{"text": "</think>"}}}}{END}'
    turns[1]["reasoning_content"] = "Search."
    said = learned(stages(tmp_path, CALLS), ASKED, turns[1])
    assert said == f'Search.</think>{{"name": "find", "arguments": {{"text": "</think>"}}}}{END}'


SWITCHED = framed(
    "{%- if m.reasoning_content %}{{- '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}{%- endif %}{{- m.content }}",
    "('' if on else '<think>\\n\\n</think>\\n\\n')",
    "{%- set on = enable_thinking is not defined or enable_thinking %}",
)
"""As Qwen3."""


@pytest.mark.parametrize("rule", ["refuse", "continue"])
@pytest.mark.parametrize("turn", [REASONED, assistant("<think>\nCount.\n</think>\n\nOne.")])
def test_a_row_that_switches_off_the_reasoning_it_has_says_so(tmp_path: Path, rule: str, turn: dict[str, Any]) -> None:
    made = stages(tmp_path, SWITCHED, f"supervision.on_prompt_mismatch={rule}")
    row = chat(ASKED, turn, enable_thinking=False)
    assert made.reasons([row]) == [("prompt_diverges", "messages[1]: its reasoning contradicts enable_thinking=false")]
    assert "Count." in learned(made, ASKED, turn, enable_thinking=True)


ALIASED = framed(
    "{%- if m.role == 'assistant' %}"
    "{{- '<think>' + m.reasoning_content + '</think>' if m.reasoning_content and on else '</think>' }}{%- endif %}"
    "{{- m.content }}",
    "('<think>' if on else '</think>')",
    "{%- set on = thinking if thinking is defined else enable_thinking if enable_thinking is defined else false %}",
)
"""As DeepSeek's: one switch under two names, and reasoning is left out where it is off."""


@pytest.mark.parametrize("rule", ["refuse", "continue"])
@pytest.mark.parametrize("name", ["thinking", "enable_thinking"])
def test_no_other_name_of_a_switch_overrides_the_row(tmp_path: Path, name: str, rule: str) -> None:
    made = stages(tmp_path, ALIASED, f"supervision.on_prompt_mismatch={rule}")
    reason = f"messages[1]: its reasoning contradicts {name}=false"
    assert made.reasons([chat(ASKED, REASONED, **{name: False})]) == [("prompt_diverges", reason)]
    for variables in ({name: True}, {}):
        ((prompt, said),) = made.turns(chat(ASKED, REASONED, **variables))
        assert (prompt[-7:], said) == ("<think>", f"Count.</think>One.{END}")
    drops = stages(tmp_path, ALIASED, f"supervision.on_prompt_mismatch={rule}", "supervision.allow_dropped=[reasoning]")
    for stages_of, turn in ((made, PLAIN), (drops, PLAIN), (drops, REASONED)):
        ((prompt, said),) = stages_of.turns(chat(ASKED, turn, **{name: False}))
        assert (prompt[-8:], said) == ("</think>", f"One.{END}")


@pytest.mark.parametrize("name", TEMPLATES)
def test_many_rows_are_rendered_as_the_definition_renders_them(tmp_path: Path, name: str) -> None:
    """Enough of each kind for the ways that render rows at once."""
    made = as_built(tmp_path, TEMPLATES[name])
    rows = [
        chat(user(f"q{k}?"), assistant(f"a{k}", reasoning_content=f"why {k}"), user("and?"), assistant(f"b{k}"), row=k)
        for k in range(40)
    ]
    fast = made.outcomes(rows)
    made.renderer = made.renderer.by_reference()
    assert made.outcomes(rows) == fast
    assert not any(isinstance(outcome, str) for outcome in fast)


CHOSEN = framed(
    "{%- if m.reasoning_content and (ASKS) %}{{- '<think>' + m.reasoning_content + '</think>' }}{%- endif %}{{- m.content }}",
    before="{%- set MADE %}",
)
"""Whose variable for reasoning has a name like any other."""


@pytest.mark.parametrize(
    ("made", "asks", "setting"),
    [
        ("mode = mode | default('chat')", "mode == 'think'", {"mode": "think"}),
        ("mode = style | default('chat') | lower", "mode in ['deep']", {"style": "deep"}),
        ("ns = namespace(style=style | default('chat'))", "ns.style == 'deep'", {"style": "deep"}),
        ("x = 1", "deep is defined and deep", {"deep": True}),
    ],
)
def test_a_variable_that_decides_whether_reasoning_shows_is_a_switch_whatever_its_name(
    tmp_path: Path, made: str, asks: str, setting: dict[str, Any]
) -> None:
    template = CHOSEN.replace("MADE", made).replace("ASKS", asks)
    built = stages(tmp_path, template)
    said = f"<think>Count.</think>One.{END}"
    assert learned(built, ASKED, REASONED) == said
    assert learned(built, ASKED, REASONED, **setting) == said
    assert learned(built, ASKED, PLAIN) == f"One.{END}"
    ((code, reason),) = built.reasons([chat(ASKED, REASONED, **dict.fromkeys(setting, False))])
    assert code in {"prompt_diverges", "dropped_reasoning"}, reason


def test_markers_that_a_template_writes_in_one_mode_are_its_markers_in_all(tmp_path: Path) -> None:
    template = CHOSEN.replace("MADE", "mode = mode | default('chat')").replace("ASKS", "mode == 'think'")
    marked = template.replace("<think>", "<|plan|>").replace("</think>", "<|/plan|>")
    inline = chat(ASKED, assistant("<think>\nCount.\n</think>\n\nOne."))
    assert stages(tmp_path, marked).outcomes([inline]) == ["dropped_reasoning"]
    made = stages(tmp_path, marked, "supervision.reasoning=field")
    assert made.turns(inline)[0][1] == f"<|plan|>Count.<|/plan|>One.{END}"
    opens = marked.replace("\\n' + ''", "\\n' + ('<|plan|>' if mode == 'think' else '')")
    assert opens != marked
    ((prompt, said),) = stages(tmp_path, opens).turns(chat(ASKED, REASONED))
    assert (prompt[-8:], said) == ("<|plan|>", f"Count.<|/plan|>One.{END}")


def test_inline_reasoning_is_trained_in_the_mode_that_asks_for_it(tmp_path: Path) -> None:
    """It shows in every mode, since it stands in the text."""
    template = CHOSEN.replace("MADE", "x = 1").replace("ASKS", "slow is defined and slow")
    said = template.replace("{%- for", "{{- 'Take your time. ' if slow is defined and slow }}{%- for", 1)
    assert said != template
    made = stages(tmp_path, said)
    inline = assistant("<think>Count.</think>One.")
    for turn, prompt in ((inline, "Take your time. "), (REASONED, "Take your time. "), (PLAIN, "")):
        assert made.turns(chat(ASKED, turn))[0][0].partition("<")[0] == prompt


def test_a_number_of_tokens_to_reason_with_is_not_guessed(tmp_path: Path) -> None:
    template = CHOSEN.replace("MADE", "budget = budget | default(0)").replace("ASKS", "budget > 0")
    built = stages(tmp_path, template)
    reason = "messages[1]: its reasoning contradicts budget, which means none by default"
    assert built.reasons([chat(ASKED, REASONED)]) == [("prompt_diverges", reason)]
    assert learned(built, ASKED, REASONED, budget=100) == f"<think>Count.</think>One.{END}"


def test_a_variable_that_changes_no_reasoning_is_no_switch(tmp_path: Path) -> None:
    template = CHOSEN.replace("MADE", "x = '<|im_start|>system\\n' + (tone | default('dry')) + '<|im_end|>\\n'")
    other = template.replace("ASKS", "true") + "{% if tone == 'warm' or cites %}{{ x }}{% endif %}"
    built = ChatTemplate(other, date="2026-01-01", variables={}, max_bytes=2**20)
    assert built.switches.modes == ()


def test_a_template_is_taken_whatever_its_switches_are_filtered_by() -> None:
    """A filter that fails on a truth value, in a branch that no truth value comes to."""
    source = (
        "{% if x is mapping %}{% for k, v in x | dictsort %}{{ k }}{% endfor %}{% endif %}{{ messages[0].content }}"
    )
    built = ChatTemplate(source, date="2026-01-01", variables={}, max_bytes=2**20)
    assert built.render([{"role": "user", "content": "a"}], kwargs={"x": {"b": 1}}) == "ba"
    assert built.switches.modes == ()
