"""What a template shows of itself: the headers of its roles."""

from dataclasses import replace
from pathlib import Path

import pytest
import twins

from packer.errors import TemplateError
from packer.model.model import AddedToken, load_model
from packer.pipeline.stages import turn_end_marker, with_role_markers
from packer.recipe.recipe import make_recipe
from packer.render.environment import ChatTemplate, RenderError
from packer.render.wrappers import role_markers, written_markers

HEADS = """\
{% for message in messages %}{{ '[INST]' if message.role == 'user' else '<|bot|>' }}{{ message.content }}
{%- if message.role == 'user' %}[/INST]{% endif %}{% endfor %}
{% if add_generation_prompt %}<|bot|><think>{% endif %}"""


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, date="2026-01-01", variables={"eos_token": "</s>"}, max_bytes=2**26)


def added(*contents: str) -> list[AddedToken]:
    plain = {"special": False, "normalized": False, "single_word": False, "lstrip": False, "rstrip": False}
    return [AddedToken(id=i, content=content, **plain) for i, content in enumerate(contents)]


INSTRUCTED = "<|sys|>Reason in <think> and </think> first." + HEADS
"""As SmolLM3 and Phi-4-reasoning say how to reason; an answer with such a block was rejected."""


@pytest.mark.parametrize(
    ("source", "tokens", "markers"),
    [
        # headers of all roles, though they are not special
        (HEADS, ("[INST]", "[/INST]", "<|bot|>", "<|other|>"), {"[INST]": 0, "[/INST]": 1, "<|bot|>": 2}),
        # tags of reasoning, letters and line breaks are ordinary text
        (HEADS, ("<think>", "</think>", "<|bot|>"), {"<|bot|>": 2}),
        (INSTRUCTED, ("<think>", "</think>", "<|sys|>", "<|bot|>"), {"<|sys|>": 2, "<|bot|>": 3}),
        (HEADS, ("p", "ü", "INST"), {}),
        (HEADS, ("\n", "  ", "<|bot|>"), {"<|bot|>": 2}),
        ("{{ raise_exception('no') }}", ("<|bot|>",), {}),
    ],
)
def test_what_a_template_writes_around_messages_are_control_tokens(
    source: str, tokens: tuple[str, ...], markers: dict[str, int]
) -> None:
    assert role_markers(template(source), added(*tokens)) == markers


@pytest.mark.parametrize(
    "markers", [("<|turn>", "<turn|>"), ("<|im_start|>", "<|im_end|>"), ("<start_of_turn>", "<end_of_turn>")]
)
def test_markers_of_model_families_are_recognized(markers: tuple[str, str]) -> None:
    start, end = markers
    source = f"{{% for m in messages %}}{start}{{{{ m.role + m.content }}}}{end}{{% endfor %}}"
    assert written_markers(template(source)) == markers


def test_written_markers_come_in_the_order_of_their_appearance(tmp_path: Path) -> None:
    model = load_model(twins.swallowing(tmp_path))
    assert model.template is not None
    assert written_markers(template(model.template)) == ("<|system|>", "<|end|>", "<|user|>", "<|assistant|>")


def test_the_end_of_a_turn_is_no_line_break(tmp_path: Path) -> None:
    named = load_model(twins.line_breaks(tmp_path / "named"))
    assert turn_end_marker(replace(named, stop_ids=()), make_recipe({})) == "<end_of_turn>"
    plain = load_model(twins.line_breaks(tmp_path / "plain", template=twins.NO_TERMINATOR))
    assert turn_end_marker(plain, make_recipe({})) is None


CHANNELS = """\
{% for message in messages %}{{ '<|open|>' + message.role + '<|sep|>' }}
{%- for call in message.tool_calls or [] %}{{ '<|open|>call<|sep|>' + call.function.arguments.x + '<|close|>call<|sep|>' }}
{%- endfor %}
{%- if message.content %}{{ '<|open|>text<|sep|>' + message.content + '<|close|>text<|sep|>' }}{% endif %}
{{- '<|calls|>' if message.tool_calls else '<|close|>message<|sep|><|done|>' if message.role == 'assistant' }}
{%- endfor %}
{% if add_generation_prompt %}<|open|>assistant<|sep|>{% endif %}"""
"""As Kimi K3, which closes parts of a turn with one marker and the turn with another; calls end as Solar Open's do."""


def test_the_end_of_a_turn_is_written_once_in_it(tmp_path: Path) -> None:
    model = replace(load_model(twins.byte_level(tmp_path, template=CHANNELS)), stop_ids=())
    model = replace(model, added_tokens=tuple(added("<|open|>", "<|close|>", "<|sep|>", "<|calls|>", "<|done|>")))
    assert turn_end_marker(model, make_recipe({})) == "<|done|>"
    assert turn_end_marker(model, make_recipe({}), of_calls=True) == "<|calls|>"


def test_the_end_of_calls_is_found_in_the_form_that_shows_it(tmp_path: Path) -> None:
    """The first forms that this template accepts show nothing of the arguments."""
    texts = CHANNELS.replace(
        "call.function.arguments.x", "(call.function.arguments if call.function.arguments is string else '')"
    )
    model = replace(load_model(twins.byte_level(tmp_path, template=texts)), stop_ids=())
    model = replace(model, added_tokens=tuple(added("<|open|>", "<|close|>", "<|sep|>", "<|calls|>", "<|done|>")))
    assert turn_end_marker(model, make_recipe({}), of_calls=True) == "<|calls|>"


def test_a_template_that_writes_no_calls_ends_none(tmp_path: Path) -> None:
    model = load_model(twins.byte_level(tmp_path))
    assert turn_end_marker(replace(model, stop_ids=()), make_recipe({}), of_calls=True) is None


def test_templates_are_probed_with_the_variables_of_the_recipe(tmp_path: Path) -> None:
    """Otherwise a template that needs one shows no markers, and those of another tokenizer are trained as text."""
    source = "{{ start + '' }}{% for m in messages %}<|bot|>{{ m.content }}<|stop|>{% endfor %}"
    assert written_markers(template(source)) == ()
    assert written_markers(template(source), {"start": ""}) == ("<|bot|>", "<|stop|>")
    assert role_markers(template(source), added("<|bot|>"), {"start": ""}) == {"<|bot|>": 0}
    recipe = make_recipe({}, ['template.kwargs.start=""'])
    model = load_model(twins.byte_level(tmp_path, template=source))
    with pytest.raises(TemplateError, match=r"splits into \d+ tokens"):
        with_role_markers(model, recipe)
    ends = replace(model, stop_ids=(), added_tokens=tuple(added("<|bot|>", "<|stop|>")))
    assert turn_end_marker(ends, recipe) == "<|stop|>"


def test_a_template_that_is_no_jinja_is_described_in_one_line() -> None:
    """Jinja's own text of such errors ends with a line about the file."""
    with pytest.raises(RenderError, match=r"\(line 1\): No filter named 'nosuch'\.\Z"):
        template("{{ messages | nosuch }}")
