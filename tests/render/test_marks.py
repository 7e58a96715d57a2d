"""Turns as `{% generation %}` blocks mark them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import twins
from supervision_stages import Stages, assistant, chat, user

from packer.errors import TemplateError
from packer.model.model import load_model
from packer.recipe.recipe import make_recipe

Make = Callable[..., Stages]

ANSWER = "{% generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}"
MARKED = """\
{% for message in messages %}
{{ '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' %}ANSWER{% else %}{{ message.content + '<|im_end|>\\n' }}{% endif %}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def stages(answer: str, *overrides: str) -> Stages:
        folder = twins.byte_level(tmp_path / "model", template=MARKED.replace("ANSWER", answer))
        return Stages.load(folder, "supervision.source=generation_tags", *overrides)

    return stages


def trained(stages: Stages, *messages: dict[str, Any], **options: Any) -> list[str]:
    return [completion for _, completion in stages.turns(chat(*messages, **options))]


TALK = (user("one?"), assistant("One."), user("two?"), assistant("Two."))


def test_what_the_blocks_hold_is_trained(make: Make) -> None:
    assert trained(make(ANSWER), *TALK) == ["One.<|im_end|>", "Two.<|im_end|>"]


def test_a_block_may_take_in_the_header(make: Make) -> None:
    """The marks decide; a comparison with what inference asks for is the business of lint."""
    header = "{% generation %}{{ '!' + message.content + '<|im_end|>' }}{% endgeneration %}"
    assert trained(make(header), *TALK) == ["!One.<|im_end|>", "!Two.<|im_end|>"]


def test_nothing_is_trained_behind_the_stop_token(make: Make) -> None:
    longer = "{% generation %}{{ message.content + '<|im_end|>\\n' }}{% endgeneration %}"
    assert trained(make(longer), *TALK) == ["One.<|im_end|>", "Two.<|im_end|>"]


def test_a_block_without_a_stop_token_rejects_the_row(make: Make) -> None:
    without = "{% generation %}{{ message.content }}{% endgeneration %}{{ '<|im_end|>\\n' }}"
    assert make(without).outcomes([chat(*TALK)]) == ["no_terminator"]


def test_blocks_of_one_message_that_touch_are_one(make: Make) -> None:
    two = "{% generation %}{{ message.content }}{% endgeneration %}{% generation %}<|im_end|>{% endgeneration %}"
    assert trained(make(two), *TALK) == ["One.<|im_end|>", "Two.<|im_end|>"]


def test_blocks_of_one_message_that_do_not_touch_reject_the_row(make: Make) -> None:
    apart = "{% generation %}{{ message.content }}{% endgeneration %}-{% generation %}<|im_end|>{% endgeneration %}"
    assert make(apart).outcomes([chat(*TALK)]) == ["bad_marks"]


def test_the_last_message_alone_may_be_marked(make: Make) -> None:
    last = "{% if loop.last %}" + ANSWER + "{% else %}{{ message.content + '<|im_end|>\\n' }}{% endif %}"
    assert trained(make(last), *TALK) == ["Two.<|im_end|>"]


def test_weights_choose_among_marked_messages(make: Make) -> None:
    assert trained(make(ANSWER), *TALK, weights={1: 0.0}) == ["Two.<|im_end|>"]


def test_a_dropped_message_is_a_loss_under_marks_too(make: Make) -> None:
    stages = make(ANSWER.replace("message.content", "message.content[:3]"))
    assert stages.outcomes([chat(user("one?"), assistant("A longer answer."))]) == ["dropped_content"]


EARLIER = ANSWER.replace("message.content", "(message.content if loop.last else message.content[:3])")


def test_what_a_later_message_takes_away_is_a_loss_under_marks(make: Make) -> None:
    """All turns are cut from one rendering, in which only the last is still the last."""
    stages = make(EARLIER)
    row = [user("one?"), assistant("A longer answer."), user("two?"), assistant("Another answer.")]
    assert trained(stages, *row[:2]) == ["A longer answer.<|im_end|>"]
    assert stages.outcomes([chat(*row)]) == ["dropped_content"]
    short = [user("one?"), assistant("abcd"), user("two?"), assistant("efgh")]
    assert stages.outcomes([chat(*short)]) == ["dropped_content"]


def test_reasoning_that_history_forgets_is_a_loss_under_marks(make: Make) -> None:
    thinks = "{% generation %}{{ (message.reasoning_content if loop.last) or '' }}{{ message.content + '<|im_end|>' }}{% endgeneration %}"
    row = [user("one?"), assistant("One.", reasoning_content="Count the ones."), user("two?"), assistant("Two.")]
    assert make(thinks).outcomes([chat(*row)]) == ["dropped_reasoning"]


def test_control_tokens_are_looked_for_in_the_rendering_that_is_used(make: Make) -> None:
    """The template reacts to what was typed only where another message follows."""
    reacts = ANSWER + "{{ '!' if not loop.last and '<|im_start|>' in messages[0].content }}"
    row = [user("<|im_start|>?"), assistant("One."), user("two?"), assistant("Two.")]
    assert trained(make(ANSWER), *row) == ["One.<|im_end|>", "Two.<|im_end|>"]
    assert make(reacts).outcomes([chat(*row)]) == ["control_render"]


def test_marks_around_a_question_are_not_taken_for_the_answer(tmp_path: Path) -> None:
    template = MARKED.replace("ANSWER", "{{ message.content + '<|im_end|>\\n' }}").replace(
        "{% else %}{{ message.content + '<|im_end|>\\n' }}",
        "{% else %}{% generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}",
    )
    stages = Stages.load(twins.byte_level(tmp_path, template=template), "supervision.source=generation_tags")
    assert stages.outcomes([chat(*TALK)]) == ["bad_marks"]


def test_blocks_are_not_dealt_by_their_number(make: Make) -> None:
    """Two blocks in the first answer and none in the second are not one for each."""
    two = (
        "{% if loop.index == 2 %}{% generation %}{{ message.content }}{% endgeneration %}-"
        "{% generation %}<|im_end|>{% endgeneration %}{% else %}{{ message.content + '<|im_end|>' }}{% endif %}"
    )
    assert make(two).outcomes([chat(*TALK)]) == ["bad_marks"]
    assert make(two).outcomes([chat(*TALK, weights={1: 0.0})]) == ["nothing_trained"]


def test_a_template_without_blocks_is_refused_as_a_whole(tmp_path: Path) -> None:
    from packer.pipeline.stages import with_role_markers

    model = load_model(twins.byte_level(tmp_path))
    with pytest.raises(TemplateError, match="generation"):
        with_role_markers(model, make_recipe({}, ["supervision.source=generation_tags"]))


def test_a_block_inside_a_macro_is_found_where_its_text_ends_up(make: Make) -> None:
    macro = (
        "{% macro say(x) %}{% generation %}{{ x }}<|im_end|>{% endgeneration %}{% endmacro %}{{ say(message.content) }}"
    )
    assert trained(make(macro), *TALK) == ["One.<|im_end|>", "Two.<|im_end|>"]
