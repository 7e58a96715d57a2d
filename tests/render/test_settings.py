"""Which values of a variable are tried: those that the template's source tells apart."""

from typing import Any

import pytest

from packer.render import ChatTemplate
from packer.render.settings import settings_of


def values(source: str) -> tuple[Any, ...]:
    template = ChatTemplate(source, date="2026-01-01", variables={}, max_bytes=2**20)
    return settings_of(template.environment.parse(source), frozenset({"x"}))["x"]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("{% if x == 'a' or x in ['b', 'c'] %}{% endif %}", ("a", "b", "c")),
        ("{% if (x | default('a')) | lower != 'b' %}{% endif %}", ("a", "b")),
        ("{% set x = x | default('a') %}{% if x == 'b' %}{% endif %}", ("b", "a")),
        ("{{ x | default('a') }}{{ x or 'b' }}{{ x if x is defined else 'c' }}", (True, False, "a", "b", "c")),
        ("{% if not x %}{% set x = 'a' %}{% endif %}{{ x }}{{ 'b' if x else 'c' }}{{ 'd' if x }}", (True, False, "a")),
        ("{% set y = x | lower %}{% set z = y %}{% if z == 'b' and m == 'c' %}{% endif %}", ("b",)),
        ("{% set ns = namespace(y=x) %}{% if ns.y == 'b' %}{% endif %}", ("b",)),
        ("{% set ns = namespace() %}{% set ns.y = x %}{% if ns.y == 'b' %}{% endif %}", ("b",)),
        ("{% if x is eq('a') or x.startswith('b') or 'c' in x %}{% endif %}", ("a", "b", "c", [])),
        ("{% if x.y == 'a' and x['z'] == false %}{% endif %}", ({"y": "a"}, {"z": False}, {})),
        ("{% if x > 0 %}{% endif %}", (0, 1)),
        ("{% if x %}{% endif %}", (True, False)),
        ("{% if x is defined and x is not false %}{% endif %}", (True, False)),
        ("{% if x == true or x == 'a' %}{% endif %}", (True, False, "a")),
        ("{{ x }}{{ m.x == 'a' }}{{ x ~ m == 'b' }}", (True, False)),
    ],
)
def test_a_variable_has_the_values_with_which_it_is_compared(source: str, found: tuple[Any, ...]) -> None:
    assert sorted(map(repr, values(source))) == sorted(map(repr, found))


def test_a_template_is_taken_whatever_its_switches_are_filtered_by() -> None:
    """A filter that fails on a truth value, in a branch that no truth value comes to."""
    source = (
        "{% if x is mapping %}{% for k, v in x | dictsort %}{{ k }}{% endfor %}{% endif %}{{ messages[0].content }}"
    )
    template = ChatTemplate(source, date="2026-01-01", variables={}, max_bytes=2**20)
    assert template.render([{"role": "user", "content": "a"}], kwargs={"x": {"b": 1}}) == "ba"
    assert template.switches.modes == ()
