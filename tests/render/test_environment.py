"""A template sees what transformers shows it, and nothing of the machine it runs on."""

import json
from typing import Any

import jinja2
import pytest

from packer.render.environment import ChatTemplate, RenderError


def template(source: str, *, max_bytes: int = 2**20, **variables: object) -> ChatTemplate:
    return ChatTemplate(source, date="2026-01-01", variables=variables, max_bytes=max_bytes)


def test_the_clock_shows_the_date_of_the_recipe() -> None:
    assert template("{{ strftime_now('%d %b %Y') }}").render([]) == "01 Jan 2026"


def test_generation_marks_leave_no_trace() -> None:
    marked = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}!{% endfor %}"
    assert template(marked).render([{"role": "user", "content": "hi"}]) == "hi!"


def test_json_that_is_kept_is_that_of_the_value_and_the_settings() -> None:
    """Equal values may be written differently, and a value in many ways; each as if nothing were kept."""
    values = [{"a": 1, "b": [2]}, {"a": True, "b": [2]}, {"a": 1.0, "b": [2]}, {"b": [2], "a": 1}, [1], [True], {}]
    settings: list[dict[str, Any]] = [
        {}, {"indent": 1}, {"indent": True}, {"indent": "-"}, {"sort_keys": True}, {"sort_keys": [1]},
        {"ensure_ascii": True}, {"separators": (",", ":")}, {"indent": 1, "sort_keys": True},
    ]  # fmt: skip
    chat = template("{% for v in values %}{{ v | tojson(**s) }}{% endfor %}", values=values)
    for _ in range(2):
        for setting in settings:
            expected = "".join(json.dumps(value, **{"ensure_ascii": False, **setting}) for value in values)
            assert chat.render([], kwargs={"s": setting}) == expected


def test_a_templates_own_words_come_back_as_the_error() -> None:
    with pytest.raises(RenderError, match=r"^roles must alternate$") as raised:
        template("{{ raise_exception('roles must alternate') }}").render([])
    assert raised.value.code == "template_error"


def test_invalid_jinja_is_refused_with_its_line() -> None:
    with pytest.raises(RenderError, match=r"line 2"):
        template("fine\n{% if %}")


def test_a_rendering_over_the_limit_is_refused() -> None:
    with pytest.raises(RenderError) as raised:
        template("{{ 'é' * 6 }}", max_bytes=11).render([])
    assert raised.value.code == "render_too_large"
    assert template("{{ 'é' * 6 }}", max_bytes=12).render([]) == "é" * 6


@pytest.mark.parametrize("source", ["{% break %}", "{{" + "(" * 3000 + ")" * 3000 + "}}"], ids=["break", "nesting"])
def test_what_only_pythons_compiler_refuses_is_no_valid_template(source: str) -> None:
    with pytest.raises(RenderError, match="not a valid Jinja template"):
        ChatTemplate(source, date="2026-01-01", variables={}, max_bytes=1000)


def test_a_row_may_set_a_token_or_the_documents_of_its_template() -> None:
    template = ChatTemplate(
        "{{ bos_token }}{{ documents }}", date="2026-01-01", variables={"bos_token": "<s>"}, max_bytes=99
    )
    assert template.render([], kwargs={"documents": ["a"]}) == "<s>['a']"
    assert template.render([], kwargs={"bos_token": "", "messages": "ignored"}) == "None"


def test_a_text_with_many_addresses_of_its_own_is_rendered_at_once() -> None:
    """As a debugger prints them; to search the row for each of its 50,000 addresses would take minutes."""
    chat, leaky = (
        template(f"{{% for m in messages %}}{{{{ m.content }}}}{end}{{% endfor %}}", max_bytes=2**24)
        for end in ("", "{{ m.items }}")
    )
    said = " ".join(f"<Node object at 0x7f{number:010x}>" for number in range(50_000))
    messages = [{"role": "user", "content": said}]
    assert chat.render(messages) == said
    with pytest.raises(RenderError, match="an object with its address"):
        leaky.render(messages)


@pytest.mark.parametrize("number", [50, 5000])
def test_a_long_sum_is_parsed_or_refused_as_jinja_does_it(number: int) -> None:
    source = "{{ " + " + ".join(["1"] * number) + " }}"
    try:
        expected: str | None = jinja2.Environment(optimized=False).from_string(source).render()
    except RecursionError:
        expected = None
    try:
        found: str | None = template(source).render([])
    except RenderError:
        found = None
    assert found == expected
