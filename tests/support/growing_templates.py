"""Templates made by chance of what makes a text longer: methods, operators, filters, widths, loops, and each of another."""

import re

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

_NUMBERS = st.sampled_from(["2", "77", "1000", "2**20", "10**9", "6*10**9", "10**12", "messages|length"])
_TEXTS = st.sampled_from(
    ["'a'", "''", "'ab\\tc'", "'\\n'", "messages[0].content", "messages[1].content", "'é'*2**20", "'{0}{0}'*1000", "'%s'*1000"]
)  # fmt: skip
_OF_LISTS = (
    "[$t]*3", "[$t]*2**20", "($t).split()", "($t|list)", "range(100000)|list", "messages", "([$t]*3|batch($n, $t)|list)",
    "(range(9)|slice($n, $t)|list)",
)  # fmt: skip
_OF_TEXTS = (
    "($t).ljust($n)", "($t).rjust($n)", "($t).center($n)", "($t).zfill($n)", "($t).expandtabs($n)",
    "($t).replace($t, $t)", "($t).join($l)", "($l|join($t))", "'{:9999999999}'.format($t)", "'{:{}}'.format($t, $n)",
    "($t).format($t, $t)", "('%99d' % $n)", "('%*d' % ($n, 1))", "('%9999999999d' % $n)", "(($t) % ([$t]*1000))",
    "(($t) * ($n))", "(($t) ~ ($t))", "(($t) + ($t))", "($t|center($n))", "($t|indent($n))", "($t|wordwrap($n))",
    "($t|e|string)", "($t|urlencode)", "($t|replace($t, $t))", "($l|tojson(indent=$n))", "($l|tojson(indent=$t))",
    "($l|string)", "($l|pprint)", "($t).translate({97: $t})", "($t).encode().ljust($n).hex()",
    "((1).to_bytes($n, 'big')|string)", "([[1]]|sum(start=$l)|string)", "($t|format($t, $t))", "($t|truncate($n, false, $t))",
    "({'a': $t}|xmlattr)", "(($t)[:3] ~ ($t)[::-1])",
)  # fmt: skip
_STEPS = (" ~ ns.x", ".replace('a', 'aa')", "|e", ".ljust(i*10**8)", "|list|string", "|urlencode")


def _filled(form: str, **kinds: SearchStrategy[str]) -> SearchStrategy[str]:
    """A form with other expressions in the places of $t, a text, $l, a list, and $n, a number."""
    parts = re.split(r"\$([tln])", form)
    return st.tuples(*(kinds[part] if number % 2 else st.just(part) for number, part in enumerate(parts))).map("".join)


def _longer(texts: SearchStrategy[str]) -> SearchStrategy[str]:
    lists = st.one_of(*(_filled(form, t=texts, n=_NUMBERS) for form in _OF_LISTS))
    return st.one_of(*(_filled(form, t=texts, n=_NUMBERS, l=lists) for form in _OF_TEXTS))


_EXPRESSIONS = st.recursive(_TEXTS, _longer, max_leaves=5)
_TEMPLATES = (
    "{{{{ ({})[:3] }}}}",
    "{{{{ ({})|length }}}}",
    "{{{{ {} }}}}",
    "{{% set x = {} %}}{{% for i in range(100000) %}}{{{{ x }}}}{{% endfor %}}",
    "{{% set x = {} %}}{{% set y %}}{{% for i in range(100000) %}}{{{{ x }}}}{{% endfor %}}{{% endset %}}{{{{ y[:3] }}}}",
)
_LOOP = "{{% set ns = namespace(x={}) %}}{{% for i in range(60) %}}{{% set ns.x = ns.x{} %}}{{% endfor %}}{{{{ ns.x[:3] }}}}"

GROWING: SearchStrategy[str] = st.one_of(
    st.builds(str.format, st.sampled_from(_TEMPLATES), _EXPRESSIONS),
    st.builds(str.format, st.just(_LOOP), _EXPRESSIONS, st.sampled_from(_STEPS)),
)
