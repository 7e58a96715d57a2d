"""Calls written as Python, read as a server reads them, and arguments that are hard to write so."""

import ast
from typing import Any

HARD = (
    "", " ", "Paris", "5", "True", "None", "null", "it's", 'say "hi"', """both ' and ".""", "a\nb", "a\r\nb", "a\tb", "\\", "C:\\new",
    "\\d+", "ends with \\", "'''", '""', "x', days='3", "x', b=5, c='", "f(city='x')", "f(city=1)", "]", ")", "(", "[f(", "#", "{}",
    '{"a": 1}', "日本語", "👩‍👩‍👧", "\u2028", "é\u0301", "\x7f", "%s", "{{ city }}", "<b>&amp;</b>", "a=1, b=2",
)  # fmt: skip
OTHERS = (
    0, -1, 7, 2**63, 10**40, 0.1, -2.5, 1e-7, 1e22, 3.0, True, False, None, [], {}, [1, [2, {"k": None}]], {"a": {"b": True}},
    {"it's": 'say "hi"'}, ["it's", 'say "hi"', "a\nb"], [True, None], {"a": 1.5, "b": [None, False]}, {"": ""},
)  # fmt: skip


def read(text: str) -> Any:
    """The calls that Python reads from a list of them, with the names of JSON's constants, which servers take, too."""
    try:
        found = ast.parse(text, mode="eval").body
        assert isinstance(found, ast.List)
        return [
            (ast.unparse(each.func), {item.arg: value_of(item.value) for item in each.keywords})
            for each in found.elts
            if isinstance(each, ast.Call) and not each.args
        ]
    except (SyntaxError, ValueError, AssertionError, AttributeError):
        return None


def value_of(node: ast.expr) -> Any:
    if isinstance(node, ast.Dict):
        keys = [ast.literal_eval(key) for key in node.keys if key]
        return dict(zip(keys, map(value_of, node.values), strict=True))
    if isinstance(node, ast.List):
        return [*map(value_of, node.elts)]
    if isinstance(node, ast.Name):
        return {"true": True, "false": False, "null": None}.get(node.id, node)
    return ast.literal_eval(node)
