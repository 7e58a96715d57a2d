"""Settings of a switch that a template takes anyway are no modes of their own."""

import pytest
from supervision_stages import user

from packer.render import ChatTemplate


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, date="2026-01-01", variables={}, max_bytes=2**20)


def test_a_template_is_taken_whatever_its_switches_are_filtered_by() -> None:
    """A filter that fails on a truth value, in a branch that no truth value comes to."""
    source = "{% if thinking is mapping %}{% for k, v in thinking | dictsort %}{{ k }}{% endfor %}{% endif %}{{ messages[0].content }}"
    assert template(source).render([user("a")], kwargs={"thinking": {"b": 1}}) == "ba"


SETTINGS = {
    "{{ 'no' if x is defined and x is false }}": {False: False, True: True},
    "{% if x is not defined or x %}a{% else %}b{% endif %}": {False: False, True: True},
    "{{ x | default(true) }}{{ messages[0].content if not (x | default(true)) }}": {False: False, True: True},
    "{% if x | default(false) and messages %}a{% endif %}": {False: True, True: False},
    "{{ x }}": {False: False, True: False},
    "{% set x = x | default(false) %}{{ x }}": {False: True, True: False},
    "{% if not x is defined %}{% set x = true %}{% endif %}{{ 'a' if x }}": {False: False, True: True},
    "{{ 'a' if x is defined }}{{ 'b' if x is true }}": {False: False, True: False},
    "{% macro m(x) %}{{ x is true }}{% endmacro %}{{ m(1) }}{{ x is false }}": {False: False, True: True},
    "{{ x | default(0) }}{{ messages[0].content if (x | default(0)) is false }}": {False: False, True: False},
    "{{ [x is true] | first }}{{ x is true and y }}": {False: True, True: False},
}


@pytest.mark.parametrize("source", SETTINGS)
def test_a_setting_that_the_template_takes_anyway_is_no_mode(source: str) -> None:
    chat_template = template(source.replace("x", "enable_thinking"))
    kept = {value for name, value in chat_template.modes if name == "enable_thinking"}
    assert {value: value not in kept for value in (False, True)} == SETTINGS[source]
    assert chat_template.switches == ("enable_thinking",) or "set enable_thinking" in source.replace(
        "x", "enable_thinking"
    )
    for value in (value for value, is_dropped in SETTINGS[source].items() if is_dropped):
        for rest in ({}, {"y": 1}):
            by_itself = chat_template.render([user("a")], kwargs=rest)
            assert chat_template.render([user("a")], kwargs={"enable_thinking": value, **rest}) == by_itself
