"""A template writes what it writes in Jinja's own sandbox, and raises what it raises there."""

from typing import Any

import jinja2
import jinja2.sandbox
from hypothesis import given
from hypothesis import strategies as st
from search_effort import percent_of_examples

from packer.render.environment import environment_of

NAMES = ("role", "content", "items", "get", "nothing", "first", "index0", "last", "x", "__class__", "format", "append")
VALUES: dict[str, Any] = {
    "role": "user",
    "text": " a<b> a ",
    "number": 3,
    "none": None,
    "list": ["a", {"role": "b"}],
    "row": {"role": "tool", "content": {"content": "c", "items": 5}, "items": ["i"], "x": None, "first": "key"},
}

_name = st.sampled_from([*VALUES, "ns", "loop", "m", "undeclared"])
_constant = st.sampled_from(["'a'", "' '", "1", "0", "none", "'role'", "'<b>'", "text", "role"])
_method = st.sampled_from(
    [
        *("count", "endswith", "get", "index", "items", "join", "keys", "lower", "replace", "rstrip", "split", "strip"),
        *("title", "upper", "values", "format", "pop", "copy"),
    ]
)


def _longer(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, st.sampled_from(NAMES)).map(lambda pair: f"{pair[0]}.{pair[1]}"),
        st.tuples(inner, st.sampled_from(NAMES)).map(lambda pair: f"{pair[0]}['{pair[1]}']"),
        st.tuples(inner, st.sampled_from(["0", "-1", "9", "number"])).map(lambda pair: f"{pair[0]}[{pair[1]}]"),
        st.tuples(inner, _method, st.lists(_constant | inner, max_size=2)).map(
            lambda call: f"{call[0]}.{call[1]}({', '.join(call[2])})"
        ),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]} ~ {pair[1]})"),
        inner.map(lambda value: f"({value} is defined and {value} is string)"),
        inner.map(lambda value: f"shown({value})"),
    )


expressions = st.recursive(_name, _longer, max_leaves=6)
AROUND = """{%% macro shown(v, d=row.role) %%}<{{ v.role }}{{ d.upper() }}>{%% endmacro %%}{%% set ns = namespace(x='n', role=row) %%}
{%% for m in [row, role, list, row.content] if m.role or true %%}{{ %s }}|{%% set ns.x = m.content %%}{%% endfor %%}{{ %s }}"""


def written(environment: jinja2.Environment, source: str) -> tuple[str, str]:
    try:
        return "text", environment.from_string(source).render(VALUES)
    except Exception as error:  # noqa: BLE001 - whatever it is, both are to raise it
        return type(error).__name__, str(error)


@percent_of_examples(200)
@given(within=expressions, behind=expressions)
def test_any_expression_is_written_and_refused_as_by_jinja(within: str, behind: str) -> None:
    own = environment_of("2026-01-01")
    stock = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    stock.globals.update(own.globals)
    source = AROUND % (within, behind)
    assert written(own, source) == written(stock, source)
