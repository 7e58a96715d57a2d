"""Reasoning: where it stands, how it is given to a template, and prompts that open it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import twins
from supervision_stages import Stages, assistant, chat, user

from packer.render.reasoning import without_ending

Make = Callable[..., Stages]

OPENS = """\
{% for message in messages %}
{% set text = message.content.split('</think>')[-1] if message.role == 'assistant' else message.content %}
{{ '<|im_start|>' + message.role + '\\n' + text + '<|im_end|>\\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}"""
"""As the R1 distills: every prompt opens the reasoning, no rendered turn has any."""

CLOSES = OPENS.replace(
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}",
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>' }}{% if not thinking %}{{ '</think>' }}{% endif %}",
)
"""As above, with a mode where the prompt closes it at once, and without line breaks."""


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def stages(template: str, *overrides: str) -> Stages:
        return Stages.load(twins.byte_level(tmp_path / "model", template=template), *overrides).by_reference()

    return stages


def learned(stages: Stages, *messages: dict[str, Any]) -> list[tuple[str, str]]:
    """The end of the prompt, and the completion, of every turn."""
    return [(prompt.rpartition("assistant\n")[2], said) for prompt, said in stages.turns(chat(*messages))]


ASKED = user("one?")
PLAIN = assistant("One.")
FIELD = assistant("One.", reasoning_content="Count.")
INLINE = assistant("<think>\nCount.\n</think>\n\nOne.")


SILENT = CLOSES.replace("+ text +", "+ ('</think>' if message.role == 'assistant' else '') + text +")
"""As DeepSeek V3.1: the turn of a reasoned answer is written as that of a plain one."""


def test_continue_writes_reasoning_that_a_fitting_turn_leaves_out(make: Make) -> None:
    silent = (
        SILENT.replace("{{ '<think>' }}", "")
        .replace("<think>'", "'")
        .replace("{% if not thinking %}{{ '</think>' }}{% endif %}", "{{ '<think>' if thinking else '</think>' }}")
    )
    assert make(silent).outcomes([chat(ASKED, FIELD)]) == ["dropped_reasoning"]
    stages = make(silent, "supervision.on_prompt_mismatch=continue")
    assert learned(stages, ASKED, FIELD) == [("<think>", "Count.</think>One.<|im_end|>")]
    assert learned(stages, ASKED, PLAIN) == [("</think>", "One.<|im_end|>")]


def test_continue_does_not_write_inline_reasoning_twice(make: Make) -> None:
    """A template that leaves inline reasoning in the text takes it for text, which it is not."""
    keeps = CLOSES.replace("message.content.split('</think>')[-1]", "'[' + message.content")
    stages = make(keeps, "supervision.on_prompt_mismatch=continue")
    assert stages.outcomes([chat(ASKED, INLINE)]) == ["dropped_reasoning"]


PREFILLS = OPENS.replace(
    "text +", "('<think>\\n' if message.role == 'assistant' and loop.last else '') + message.content +"
)
"""As Nemotron Nano: the prompt, and then the text of the last answer as it stands."""


@pytest.mark.parametrize("turn", [PLAIN, FIELD, INLINE])
def test_an_answer_is_not_learned_inside_the_reasoning_that_its_prompt_opens(make: Make, turn: dict[str, Any]) -> None:
    ((code, reason),) = make(PREFILLS, "supervision.allow_dropped=[reasoning]").reasons([chat(ASKED, turn)])
    assert code == "prompt_diverges"
    assert reason.endswith("does not close the reasoning that this turn's prompt opens, or opens it once more")
    stages = make(PREFILLS, "supervision.on_prompt_mismatch=continue")
    completion = ("" if turn is PLAIN else "Count.") + "\n</think>\n\nOne.<|im_end|>"
    assert learned(stages, ASKED, turn) == [("<think>\n", completion)]


def test_a_text_that_closes_the_reasoning_which_its_prompt_opens_is_learned_as_it_stands(make: Make) -> None:
    turn = assistant("Count.\n</think>\n\nOne.")
    assert learned(make(PREFILLS), ASKED, turn) == [("<think>\n", "Count.\n</think>\n\nOne.<|im_end|>")]


def test_continue_is_not_misled_by_an_answer_that_says_what_the_reasoning_said(make: Make) -> None:
    """The template writes no reasoning; that its word stands in the answer does not show it."""
    fitting = (
        CLOSES.replace("<think>'}}", "'}}")
        .replace("\\n<think>' }}", "\\n' }}")
        .replace("{% if not thinking %}{{ '</think>' }}{% endif %}", "{{ '<think>' if thinking }}")
    )
    stages = make(fitting, "supervision.on_prompt_mismatch=continue")
    turn = assistant("One.", reasoning_content="One")
    assert learned(stages, ASKED, turn) == [("<think>", "One</think>One.<|im_end|>")]


RAW = OPENS.replace(
    "message.content.split('</think>')[-1] if message.role == 'assistant' else message.content", "message.content"
)
"""Takes the text as it is."""


@pytest.mark.parametrize("inline", ["\n<think>\nR\n</think>\n\nA", "<thinking>R</thinking>A", "<think>R</think>A"])
def test_continue_takes_a_block_the_template_leaves_for_the_reasoning(make: Make, inline: str) -> None:
    ((_, completion),) = learned(make(RAW, "supervision.on_prompt_mismatch=continue"), ASKED, assistant(inline))
    assert completion == "R\n</think>\n\nA<|im_end|>"


def test_reasoning_that_holds_a_closing_tag_is_not_cut_there(make: Make) -> None:
    """Nobody can tell where it ends, so it stays inline, and a template that cuts it is found out."""
    message = assistant("<think>I close with `</think>` here.</think>the answer")
    cuts = twins.CHATML.replace("message.content", "message.content.split('</think>')[-1]")
    assert make(cuts, "supervision.reasoning=field").outcomes([chat(ASKED, message)]) == ["dropped_reasoning"]


NATIVE = """\
{% for message in messages %}
{{ '<|im_start|>' + message.role + '\\n' }}
{%- if message.reasoning_content %}{{ '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}{% endif %}
{{- message.content + '<|im_end|>\\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}"""
"""Writes the reasoning it prompts for."""


def test_continue_writes_what_a_template_that_shows_reasoning_writes(make: Make) -> None:
    """The same template without its block of reasoning must come to the same documents."""
    block = NATIVE[NATIVE.index("{%- if message.reasoning_content") : NATIVE.index("{{- message.content")]
    silent = NATIVE.replace(block, "")
    rows = [
        chat(ASKED, assistant(answer, reasoning_content=reasoning), row=row)
        for row, (answer, reasoning) in enumerate(
            [("One.", "Count."), ("\n- a\n", "a"), ("é", "你好\n\nno"), ("a", "a")]
        )
    ]
    written = make(NATIVE).outcomes(rows)
    assert all(not isinstance(outcome, str) for outcome in written)
    assert make(silent).outcomes(rows) == ["prompt_diverges"] * len(rows)
    assert make(silent, "supervision.on_prompt_mismatch=continue").outcomes(rows) == written


def test_continue_refuses_a_prompt_that_opens_no_reasoning(make: Make) -> None:
    template = OPENS.replace("<think>\\n", "Sure: ")
    assert make(template, "supervision.on_prompt_mismatch=continue").outcomes([chat(ASKED, PLAIN)]) == [
        "prompt_diverges"
    ]


@pytest.mark.parametrize("template", [OPENS, CLOSES], ids=["opens", "closes"])
@pytest.mark.parametrize("case", [str, str.upper], ids=["small", "capitals"])
def test_markers_of_an_answer_are_no_text_of_it_where_the_reasoning_before_is_moved(
    make: Make, template: str, case: Callable[[str], str]
) -> None:
    """OpenThoughts' answers: a prompt that opens the reasoning is continued, and what follows it is marked, too."""
    tags = [case(f"<|{each}|>") for each in ("begin_of_thought", "end_of_thought", "begin_of_answer", "end_of_answer")]
    text = f"{tags[0]}\n\nCount.\n\n{tags[1]}\n\n{tags[2]}\n\nOne.\n\n{tags[3]}"
    marked = chat(ASKED, assistant(text))
    template = template.replace(
        "message.content.split('</think>')[-1] if message.role == 'assistant' else message.content", "message.content"
    )
    rule = "supervision.on_prompt_mismatch=continue"
    ((code, reason),) = make(template, rule).reasons([marked])
    assert code == "dropped_reasoning" and reason.endswith(f"as part of the answer: {tags[2]}")
    stages = make(template, rule, "supervision.reasoning=field")
    assert stages.document(marked) == stages.document(chat(ASKED, FIELD))
    ((_, completion),) = make(template, rule, "supervision.reasoning=inline").turns(marked)
    assert completion.endswith(f"{tags[2]}\n\nOne.\n\n{tags[3]}<|im_end|>")


def test_inline_lets_a_template_that_knows_no_field_show_the_reasoning(make: Make) -> None:
    assert make(twins.CHATML).outcomes([chat(ASKED, FIELD)]) == ["dropped_reasoning"]
    ((_, completion),) = learned(make(twins.CHATML, "supervision.reasoning=inline"), ASKED, FIELD)
    assert completion == "<think>\nCount.\n</think>\n\nOne.<|im_end|>"


def test_field_lets_a_template_place_inline_reasoning_itself(make: Make) -> None:
    template = twins.CHATML.replace("message.content", "(message.reasoning_content or '-') + '|' + message.content")
    ((_, completion),) = learned(make(template, "supervision.reasoning=field"), ASKED, INLINE)
    assert completion == "Count.|One.<|im_end|>"


def test_the_same_reasoning_in_a_field_and_inline_is_written_once(make: Make) -> None:
    """Qwen3's template writes both: the field in a block, and the text as it is, with a block of its own."""
    both = OPENS.replace(
        "{% set text =",
        "{% set text = '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' + message.content if message.reasoning_content else",
    )
    assert both != OPENS
    stages = make(both)
    assert learned(stages, ASKED, FIELD) == learned(stages, ASKED, {**INLINE, **FIELD, "content": INLINE["content"]})


def test_other_reasoning_inline_than_in_the_field_refuses_the_row(make: Make) -> None:
    [rejection] = make(OPENS).render([chat(ASKED, {**INLINE, "reasoning_content": "Guess."})]).rejections
    assert (rejection.code, rejection.message) == ("wrong_type", 1)


HYBRID = """\
{% set on = thinking is defined and thinking %}
{% for message in messages %}
{{ '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' %}
{{- ('<think>' + (message.reasoning_content or '') + '</think>') if on else '</think>' }}
{%- endif %}
{{- message.content + '<|im_end|>\\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' + ('<think>' if on else '</think>') }}{% endif %}"""
"""As DeepSeek V4: answers at once unless it is asked to reason, and then shows the reasoning of a field."""


@pytest.mark.parametrize("rule", ["refuse", "continue"])
def test_an_answer_is_learned_in_the_mode_that_shows_its_reasoning(make: Make, rule: str) -> None:
    """The default prompt fits, too, and leaves less to write: without the reasoning."""
    stages = make(HYBRID, f"supervision.on_prompt_mismatch={rule}")
    assert learned(stages, ASKED, FIELD) == [("<think>", "Count.</think>One.<|im_end|>")]
    assert learned(stages, ASKED, PLAIN) == [("</think>", "One.<|im_end|>")]


TAGS = [
    *(
        ("<think>", "</think>"),
        ("<Thinking>", "</Thinking>"),
        ("<seed:think>", "</seed:think>"),
        ("[THINK]", "[/THINK]"),
    ),
    *(("<|START_THINKING|>", "<|END_THINKING|>"), ("<|begin_of_thought|>", "<|end_of_thought|>")),
    *(("<|channel>thought", "<channel|>"), ("◁think▷", "◁/think▷"), ("<reasoning>", "</reasoning>")),
]


@pytest.mark.parametrize(("opening", "closing"), TAGS)
def test_reasoning_that_a_prompt_has_closed_is_not_learned_as_text(make: Make, opening: str, closing: str) -> None:
    """A template that knows reasoning in a field only writes the block of a text behind a block that is closed."""
    tagged = HYBRID.replace("<think>", opening).replace("</think>", closing)
    for rules in ((), ("supervision.allow_dropped=[reasoning]",)):
        ((code, reason),) = make(tagged, *rules).reasons([chat(ASKED, INLINE)])
        assert code == "dropped_reasoning" and reason.endswith("as part of the answer: <think>")
    for rule in ("supervision.reasoning=field", "supervision.on_prompt_mismatch=continue"):
        assert learned(make(tagged, rule), ASKED, INLINE) == [(opening, f"Count.{closing}One.<|im_end|>")]


def test_reasoning_behind_an_empty_block_of_the_template_is_not_learned_as_text(make: Make) -> None:
    always = HYBRID.replace("thinking is defined and thinking", "true")
    assert make(always).outcomes([chat(ASKED, INLINE)]) == ["dropped_reasoning"]
    assert learned(make(always), ASKED, FIELD) == [("<think>", "Count.</think>One.<|im_end|>")]


ASKS_TO_REASON = """\
{% set on = thinking is defined and thinking %}
{{ '<|im_start|>system\\nReason.<|im_end|>\\n' if on }}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.reasoning_content %}{{ 'OPEN\\n' + message.reasoning_content + '\\nCLOSE' }}{% endif %}
{{- message.content + '<|im_end|>\\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' + ('' if on else 'OPEN\\nCLOSE') }}{% endif %}"""
"""As Gemma 4: the default prompt closes the reasoning, and no finished answer has the empty block."""


@pytest.mark.parametrize(
    ("opening", "closing"),
    [("<think>", "</think>"), ("<|channel>thought", "<channel|>"), ("<deliberate>", "</deliberate>")],
    ids=["think", "channel", "own"],
)
def test_a_plain_answer_is_not_learned_under_a_prompt_that_asks_for_reasoning(
    make: Make, opening: str, closing: str
) -> None:
    source = ASKS_TO_REASON.replace("OPEN", opening).replace("CLOSE", closing)
    reason = "messages[1]: the template does not begin this turn with its own prompt"
    assert make(source).reasons([chat(ASKED, PLAIN)]) == [("prompt_diverges", reason)]
    stages = make(source, "supervision.on_prompt_mismatch=continue")
    ((prompt, completion),) = stages.turns(chat(ASKED, PLAIN))
    assert "Reason." not in prompt
    assert prompt.endswith(f"{opening}\n{closing}")
    assert completion == "One.<|im_end|>"


@pytest.mark.parametrize("name", ["think", "deliberate"])
@pytest.mark.parametrize("asks", ["thinking is defined and thinking", "(level | default('none')) != 'none'"])
def test_a_reasoned_answer_is_learned_under_the_prompt_that_asks_for_it(make: Make, name: str, asks: str) -> None:
    """Also if all that the template names is the value that asks for none."""
    source = ASKS_TO_REASON.replace("OPEN", f"<{name}>").replace("CLOSE", f"</{name}>")
    source = source.replace("thinking is defined and thinking", asks)
    ((prompt, completion),) = make(source).turns(chat(ASKED, FIELD))
    assert "Reason." in prompt
    assert completion == f"<{name}>\nCount.\n</{name}>One.<|im_end|>"


def test_an_answer_whose_reasoning_is_dropped_is_a_plain_one(make: Make) -> None:
    """It is not learned behind the prompt that asks for reasoning either."""
    drops = ASKS_TO_REASON.replace("message.reasoning_content %}", "false %}")
    assert drops != ASKS_TO_REASON
    drops = drops.replace("OPEN", "<think>").replace("CLOSE", "</think>")
    allowed = "supervision.allow_dropped=[reasoning]"
    assert make(drops, allowed).outcomes([chat(ASKED, FIELD)]) == ["prompt_diverges"]
    assert make(drops, allowed).outcomes([chat(ASKED, PLAIN)]) == ["prompt_diverges"]


TOLD_TO_REASON = """\
{% set off = enable_thinking is defined and not enable_thinking %}
{{ '' if off else '<|im_start|>system\\nReason well.<|im_end|>\\n' }}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' %}{{ '<think>\\n' + (message.reasoning_content or '') + '\\n</think>\\n\\n' }}{% endif %}
{{- message.content + '<|im_end|>\\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' + ('\\n</think>\\n\\n' if off else '') }}{% endif %}"""
"""As Qwen3.8: the default prompt is the longest, because it also says how to reason."""


def test_a_plain_answer_is_learned_under_the_prompt_without_reasoning_that_has_another_context(make: Make) -> None:
    stages = make(TOLD_TO_REASON)
    ((prompt, completion),) = stages.turns(chat(ASKED, PLAIN))
    assert "Reason well." not in prompt
    assert prompt.endswith("<think>\n\n</think>\n\n")
    assert completion == "One.<|im_end|>"
    ((prompt, completion),) = stages.turns(chat(ASKED, FIELD))
    assert "Reason well." in prompt
    assert completion == "Count.\n</think>\n\nOne.<|im_end|>"


def test_any_number_of_tags_may_end_a_prompt() -> None:
    """Where a template writes nothing between a question and the answer, the question may end in them."""
    assert without_ending("one?\n" + "<think>\n</think> " * 2000) == "one?"
