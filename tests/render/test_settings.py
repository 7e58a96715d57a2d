"""Which values of a variable are tried: those that the template's source tells apart."""

from typing import Any

import pytest

from packer.render.environment import ChatTemplate
from packer.render.settings import settings_of


def values(source: str) -> tuple[Any, ...]:
    template = ChatTemplate(source, date="2026-01-01", variables={}, max_bytes=2**20)
    return settings_of(template.environment.parse(source), frozenset({"x"}))["x"]


BOTH = (True, False)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("{% if x == 'a' or x in ['b', 'c'] %}{% endif %}", ("a", "b", "c", *BOTH)),
        ("{% if (x | default('a')) | lower != 'b' %}{% endif %}", ("a", "b", *BOTH)),
        ("{% set x = x | default('a') %}{% if x == 'b' %}{% endif %}", ("b", "a", *BOTH)),
        ("{{ x | default('a') }}{{ x or 'b' }}{{ x if x is defined else 'c' }}", ("a", "b", "c", *BOTH)),
        ("{% if not x %}{% set x = 'a' %}{% endif %}{{ x }}", ("a", *BOTH)),
        ("{% set y = x | lower %}{% set z = y %}{% if z == 'b' and m == 'c' %}{% endif %}", ("b", *BOTH)),
        ("{% set ns = namespace(y=x) %}{% if ns.y == 'b' or ns.z == 'c' %}{% endif %}", ("b", *BOTH)),
        ("{% set ns = namespace() %}{% set ns.y = x %}{% if ns.y == 'b' %}{% endif %}", ("b", *BOTH)),
        ("{% if x is eq('a') or x.startswith('b') or 'c' in x %}{% endif %}", ("a", "b", "c", *BOTH)),
        ("{% if x > 0 %}{% endif %}", (0, 1, -1, *BOTH)),
        ("{% if x %}{% endif %}", BOTH),
        ("{{ {'a': 5, 'b': 6}[x] }}", ("a", "b", *BOTH)),
        ("{% set of = {'a': 5, 'b': 6} %}{{ of[x] }}", ("a", "b", *BOTH)),
        ("{% macro f(y, z) %}{% if y == 'a' or z == 'b' %}{% endif %}{% endmacro %}{{ f(x) }}", ("a", *BOTH)),
        ("{% macro f(y) %}{% if y == 'a' %}{% endif %}{% endmacro %}{{ f(y=x | lower) }}", ("a", *BOTH)),
        ("{% if (x | default(2) | int) == 5 %}{% endif %}", (1, 2, 3, 4, 5, 6, *BOTH)),
        ("{% set messages = messages[1:] if x else messages %}{{ messages[0].role == 'a' }}", BOTH),
        (
            "{{ x }}{{ m.x == 'a' }}{{ '<a>' if x else 'b' }}{{ 'A sentence of many words, with a comma' if x else y }}",
            BOTH,
        ),
    ],
)
def test_a_variable_has_the_words_and_numbers_near_it(source: str, found: tuple[Any, ...]) -> None:
    assert sorted(map(repr, values(source))) == sorted(map(repr, found))


def test_a_template_is_taken_whatever_its_switches_are_filtered_by() -> None:
    """A filter that fails on a truth value, in a branch that no truth value comes to."""
    source = (
        "{% if x is mapping %}{% for k, v in x | dictsort %}{{ k }}{% endfor %}{% endif %}{{ messages[0].content }}"
    )
    template = ChatTemplate(source, date="2026-01-01", variables={}, max_bytes=2**20)
    assert template.render([{"role": "user", "content": "a"}], kwargs={"x": {"b": 1}}) == "ba"
    assert template.switches.modes == ()
