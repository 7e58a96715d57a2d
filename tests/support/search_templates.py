"""Templates that look for something in all messages before their loop: what they find shows in what they write."""

_BEFORE = "{% set ns = namespace(on=true, at=-1, n=0, said='') %}"
_MACROS = (
    "{% macro hit(q) %}{% if q.role == 'user' %}{% set ns.n = ns.n + 1 %}{% endif %}{% endmacro %}"
    "{% macro seen() %}{{ ns.at }}{% endmacro %}{% macro around() %}<{{ caller() }}>{% endmacro %}"
)
_AFTER = "[{{ ns.on }}{{ ns.at }}{{ ns.n }}{{ ns.said }}]{% for m in messages %}{{ m.content }}{% endfor %}"
_COUNT = "{% set ns.n = ns.n + 1 %}"
_FOUND = "{% set ns.at = loop.index0 %}"
_USER = "q.role == 'user'"


def _when(test: str, then: str = _COUNT) -> str:
    return f"{{% if {test} %}}{then}{{% endif %}}"


_BODIES = {
    "all": _COUNT,
    "questions": _when(_USER),
    "the last question": _when(_USER, _FOUND),
    "by place": _when(f"loop.index0 > 2 and {_USER}", _FOUND),
    "by place, and then": _when(f"{_USER} and loop.index > 2", _FOUND),
    "by place, counted": "{% set i = loop.index0 + 1 %}" + _when(f"{_USER} and i > 2"),
    "by place, counted from the end": "{% set i = messages | length - loop.index0 %}" + _when(f"{_USER} and i > 2"),
    "the place in the test of a loop within": "{% for x in [1, 2, 3] if x <= loop.index %}"
    + _when("x == 3")
    + "{% endfor %}",
    "the place in what a loop within runs over": "{% for x in [loop.index] %}" + _when("x == 3") + "{% endfor %}",
    "the place in a loop within": "{% for x in [1, 2] %}" + _when(f"loop.index0 == 1 and {_USER}") + "{% endfor %}",
    "by what was found": _when(f"ns.at < 0 and {_USER}", _FOUND),
    "by what was found, and then": _when(f"{_USER} and ns.at < 0", _FOUND),
    "by the number of messages": _when("messages | length > 3 and q.role == 'assistant'"),
    "by the number of messages, and then": _when("q.role == 'assistant' and messages | length != 4"),
    "by the number of messages, counted": "{% set k = messages | length %}" + _when("q.role == 'assistant' and k > 3"),
    "by the last message": _when("q.content == messages[-1].content"),
    "by the first message": _when("q.content == messages[0].content"),
    "by all messages": "{% for r in messages %}" + _when("r.role == q.role") + "{% endfor %}",
    "what is written": _when(_USER, "<{{ q.content }}>"),
    "what is always written": ".",
    "what is written else": "{% if q.role == 'user' %}{% else %}{{ q.role }}{% endif %}",
    "a line": _when(_USER, "\n \n"),
    "a block": "{% set text %}{{ ns.at }}{% endset %}" + _when(f"text == '-1' and {_USER}", _FOUND),
    "a block of a namespace": _when(_USER, "{% set ns.said %}{{ q.content }}{% endset %}"),
    "an empty block of a namespace": (
        _when("q.role == 'assistant'", "{% set ns.said = q.content %}") + _when(_USER, "{% set ns.said %}{% endset %}")
    ),
    "what a macro reads": _when(f"seen() == '-1' and {_USER}", _FOUND),
    "what a macro sets": "{% set x = hit(q) %}",
    "what a macro sets in a test": _when("hit(q)"),
    "a call": "{% call around() %}" + _when(_USER) + "{% endcall %}",
    "an empty call": _when(_USER, "{% call around() %}{% endcall %}"),
    "the place in a call": "{% call around() %}{{ loop.index0 }}{% endcall %}",
    "a filter": "{% filter upper %}{{ q.role if q.role == 'user' }}{% endfilter %}",
    "with": "{% with r = q.role %}" + _when("r == 'user'") + "{% endwith %}",
    "an end": _when("q.role == 'tool'", "{% break %}") + _when(_USER),
    "an end by number": _when("ns.n > 1", "{% break %}") + _when(_USER),
    "a step over": _when("q.role != 'user'", "{% continue %}") + _COUNT,
    "a flag": _when(f"ns.on and {_USER}", "{% set ns.on = false %}" + _FOUND),
    "a flag, ended by itself": _when("not ns.on", "{% break %}")
    + _when(f"ns.on and {_USER}", "{% set ns.on = false %}" + _FOUND),
    "a flag that is looked at twice": _when(f"ns.on and {_USER} and ns.on == true", "{% set ns.on = 1 %}" + _FOUND),
    "a flag set otherwise": _when(f"ns.on and {_USER}", "{% set ns.on = loop.index0 < 3 %}" + _FOUND),
    "a flag beside another": (
        _when("not ns.on", "{% break %}") + _when(f"ns.n and {_USER}", _FOUND) + _when("q.role == 'tool'")
    ),
    "a variable of the row": _when(f"enable_thinking is defined and {_USER}"),
    "tools": _when(f"tools and {_USER}"),
    "a name set before": "{% set x = k %}" + _when(f"x and {_USER}"),
    "a key": _when("'tool_calls' in q or 'name' in q"),
    "a key that may be missing": _when("q.name is defined"),
    "a key by get": _when("q.get('role') == 'user'"),
    "the number of keys": _when("q | length > 2"),
    "the keys": "{% for k in q %}" + _when("k == 'name'") + "{% endfor %}",
    "the items": "{% for k, v in q.items() %}" + _when("v == 'user'") + "{% endfor %}",
    "a whole message": _when("q == messages[0]"),
    "a copy": _when("dict(q).role == 'user'"),
    "a class": _when("dict.get(q, 'role') == 'user'"),
    "a text": _when("q['content'] == 'a'"),
    "a text in JSON": _when('(q | tojson).startswith(\'{"role": "user"\')'),
    "a text in another": _when("'user' ~ q.content == 'usera'"),
    "what is printed": _when("(q | string) is string and 'user' in q | string"),
    "the kind of a text": _when("q.content is string and q.content is not none"),
    "a change": _when("loop.changed(q.role)"),
    "a cycle": "{% set c = loop.cycle('a', 'b') %}" + _when(f"c == 'a' and {_USER}"),
    "the message before": _when("loop.previtem is defined and loop.previtem.role == 'user'"),
    "the last one": _when("loop.last and q.role == 'assistant'"),
    "the last one in the test of a loop within": "{% for x in [1] if loop.last and q.role == 'user' %}"
    + _COUNT
    + "{% endfor %}",
    "another name": "{% set other = ns %}" + _when(f"other.at < 0 and {_USER}", _FOUND),
    "another name from before": _when(f"alias.at < 0 and {_USER}", _FOUND),
    "calls": _when("q.tool_calls and q.tool_calls[0].function.name == 'g'"),
}
_LOOPS = {
    "": "{{% for q in messages %}}{}{{% endfor %}}",
    ", from the end": "{{% for q in messages[::-1] %}}{}{{% endfor %}}",
    ", behind the first": "{{% set rest = messages[1:] %}}{{% for q in rest %}}{}{{% endfor %}}",
    ", behind the first, from the end": "{{% set rest = messages[1:] %}}{{% for q in rest[::-1] %}}{}{{% endfor %}}",
}
SEARCHES = {
    f"{name}{where}": (
        f"{_MACROS}{_BEFORE}{{{{ messages[0].content }}}}{'{% set alias = ns %}' if 'alias' in body else ''}"
        f"{{% set k = messages | length > 3 %}}{loop.format(body)}{_AFTER}"
    )
    for name, body in _BODIES.items()
    for where, loop in _LOOPS.items()
} | {
    "two loops": (
        f"{_BEFORE}{{% for q in messages[::-1] %}}{_when(f'ns.on and {_USER}', '{% set ns.on = false %}')}{{% endfor %}}"
        f"{{% for q in messages %}}{_when('not ns.on and q.content')}{{% endfor %}}{_AFTER}"
    ),
    "a name between": (
        f"{_BEFORE}{{% for q in messages %}}{_when(_USER, _FOUND)}{{% endfor %}}{{% set k = ns.at %}}"
        f"{{% for q in messages %}}{_when('k > 1 and q.content')}{{% endfor %}}{_AFTER}"
    ),
    "a loop in a condition": f"{_BEFORE}{{% if tools %}}{{% for q in messages %}}{_when(_USER)}{{% endfor %}}{{% endif %}}{_AFTER}",
    "without the system message": (
        f"{_BEFORE}{{% if messages[0].role == 'system' %}}{{% set messages = messages[1:] %}}{{% endif %}}"
        f"{{% for q in messages %}}{_when(_USER, _FOUND)}{{% endfor %}}{_AFTER}"
    ),
    "counted from the end": (
        f"{_BEFORE}{{% for q in messages[::-1] %}}{{% set i = (messages | length - 1) - loop.index0 %}}"
        + _when(f"ns.on and {_USER}", "{% set ns.on = false %}{% set ns.at = i %}")
        + f"{{% endfor %}}{_AFTER}"
    ),
    "counted from the end, and kept if not found": (
        "{% set ns = namespace(on=true, at=messages | length - 1, n=0, said='') %}{% for q in messages[::-1] %}"
        + _when("ns.on and q.role == 'tool'", "{% set ns.on = false %}{% set ns.at = messages | length - loop.index %}")
        + f"{{% endfor %}}{_AFTER}"
    ),
    "a namespace of two halves": (
        "{% set ns = namespace(on=true, at=0, n=0, said=messages[0].role) %}{{ ns.said }}"
        f"{{% for q in messages %}}{_when(_USER)}{{% endfor %}}{{% set ns.at = ns.at + 1 %}}{_AFTER}"
    ),
    "another namespace of that name": (
        f"{_BEFORE}{{{{ messages[0].role }}}}{{% set other = namespace(n=7) %}}{{% for q in messages %}}{_when(_USER)}{{% endfor %}}"
        f"{{% set other = namespace(n=ns.n) %}}{{{{ other.n }}}}{_AFTER}"
    ),
    "a name set in both halves": (
        f"{_BEFORE}{{% set x = 'a' %}}{{% macro f() %}}{{{{ x }}}}{{% endmacro %}}{{{{ f() }}}}{{{{ messages[0].role }}}}"
        f"{{{{ messages | length }}}}{{{{ f() }}}}{{% for q in messages %}}{{{{ x }}}}{{% endfor %}}{{% set x = 'b' %}}{{{{ f() }}}}{_AFTER}"
    ),
    "a name set in the second half": (
        f"{_BEFORE}{{% macro f() %}}{{{{ x }}}}{{{{ tools is defined }}}}{{% endmacro %}}{{{{ f() }}}}{{% for y in [1] %}}{{{{ x }}}}{{% endfor %}}"
        f"{{{{ messages | length }}}}{{{{ f() }}}}{{% set x = 'b' %}}{{% set tools = 1 %}}{{{{ f() }}}}{_AFTER}"
    ),
    "a name set in a condition": (
        f"{_BEFORE}{{% if messages[0].role == 'system' %}}{{% set x = 'a' %}}{{% endif %}}{{{{ x }}}}{{{{ messages | length }}}}"
        f"{{% for q in messages %}}{{{{ x is defined }}}}{{% endfor %}}{{% set x = 'b' %}}{{{{ x }}}}{_AFTER}"
    ),
    "macros of both halves": (
        f"{_MACROS}{_BEFORE}{{{{ messages[0].role }}}}{{% for q in messages %}}{{% set x = hit(q) %}}{{% endfor %}}"
        f"{{% macro hit(q) %}}{{% set ns.n = 100 %}}{{% endmacro %}}{{% for q in messages %}}{{% set x = hit(q) %}}{{% endfor %}}{_AFTER}"
    ),
    "whether there are messages behind the first": (
        f"{_BEFORE}{{% set r = messages[1:] %}}{{{{ 'more' if r }}}}{_AFTER}"
    ),
    "what kind of number there is": (
        f"{_BEFORE}{{% if messages | length is integer and messages | length is number %}}{_COUNT}{{% endif %}}{_AFTER}"
    ),
    "the number as it is written": f"{_BEFORE}{{% set ns.said = '%d' % (messages | length) %}}{_AFTER}",
    "half the number": f"{_BEFORE}{{% if (messages | length) // 2 > 1 %}}{_COUNT}{{% endif %}}{_AFTER}",
    "an odd number": f"{_BEFORE}{{% if messages | length is odd %}}{_COUNT}{{% endif %}}{_AFTER}",
    "a message by number": f"{_BEFORE}{{{{ messages[messages | length - 1].content }}}}{_AFTER}",
    "a macro by another name": (
        f"{_MACROS}{_BEFORE}{{% set other = hit %}}{{{{ messages[0].role }}}}"
        f"{{% for q in messages %}}{{% set x = other(q) %}}{{% endfor %}}{_AFTER}"
    ),
    "a macro in a list": (
        f"{_MACROS}{_BEFORE}{{% set other = [hit] %}}{{{{ messages[0].role }}}}"
        f"{{% for q in messages %}}{{% set x = other[0](q) %}}{{% endfor %}}{_AFTER}"
    ),
    "a macro by another name, of a namespace that is another later": (
        f"{_MACROS}{_BEFORE}{{% set other = seen %}}{{{{ messages | length }}}}{{% set ns = namespace(at=7, n=0) %}}{{{{ other() }}}}{_AFTER}"
    ),
    "a macro that is asked about the last message": (
        f"{{% macro f(q) %}}{{{{ q.content in 'abc' }}}}{{% endmacro %}}{{% set g = f %}}{_BEFORE}{{{{ g(messages[-1]) }}}}{_AFTER}"
    ),
    "a name that was a macro's": (
        f"{{% macro f() %}}M{{% endmacro %}}{{% set f = 'x' %}}{_BEFORE}{{{{ messages[0].role }}}}{{{{ messages | length }}}}{{{{ f }}}}{_AFTER}"
    ),
    "a filter around nothing": (
        f"{_BEFORE}{{% for q in messages %}}{_when(_USER, '{% filter replace(' + repr('') + ', ' + repr('x') + ') %}{% endfilter %}')}"
        f"{{% endfor %}}{_AFTER}"
    ),
    "a flag of another namespace": (
        f"{_BEFORE}{{% set other = {{'on': messages | length % 4 >= 2}} %}}{{% for q in messages %}}"
        + _when("not ns.on", "{% break %}")
        + "{% set ns = other %}"
        + _when(f"ns.on and {_USER}", "<{{ q.content }}>")
        + "{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}"
    ),
    "one number": f"{_BEFORE}{{% if messages | length is sameas 3 %}}{_COUNT}{{% endif %}}{_AFTER}",
    "parts of a number": f"{_BEFORE}{{{{ (messages | length).shift }}}}{{{{ '{{0.shift}}'.format(messages | length) }}}}{_AFTER}",
    "parts of a number, by filter": f"{_BEFORE}{{{{ (messages | length) | attr('real') is defined }}}}{_AFTER}",
    "parts of the list": f"{_BEFORE}{{{{ messages.size }}}}{{{{ messages.start is defined }}}}{{{{ messages.known is defined }}}}{_AFTER}",
    "a namespace within another": (
        "{% set ns = namespace(inner=namespace(n=0)) %}{{ messages[0].role }}{{ messages | length }}{% set i = ns.inner %}"
        "{% set ns.inner = none %}{% set i.n = i.n + 1 %}{{ i.n }}{% for m in messages %}{{ m.content }}{% endfor %}"
    ),
    "what may raise while it counts": (
        f"{_BEFORE}{{% set k = none if messages | length % 4 >= 2 else 1 %}}{{% for q in messages %}}{{% set i = k + 1 %}}"
        f"{_when(_USER, '{{ i }}')}{{% endfor %}}{_AFTER}"
    ),
    "what may be no list": (
        f"{_BEFORE}{{% set rest = messages if messages | length > 2 else none %}}{{% for q in rest[::-1] %}}{_when(_USER)}{{% endfor %}}{_AFTER}"
    ),
    "behind the first two, from the end": (
        f"{{{{ messages[0].role }}}}{_BEFORE}{{% set rest = messages[2:] %}}{{% for q in rest[::-1] %}}"
        f"{_when(f'ns.on and {_USER}', '{% set ns.on = false %}{% set ns.at = 9 %}')}{{% endfor %}}{_AFTER}"
    ),
    "the role of the last but the first": (
        f"{{{{ messages[0].role }}}}{_BEFORE}{{% for q in messages[1:][::-1] %}}<{{{{ q.role }}}}>{{% break %}}{{% endfor %}}{_AFTER}"
    ),
    "whether there are messages": f"{_BEFORE}{{% if not messages %}}none{{% endif %}}{{{{ tools | length if tools }}}}{{{{ messages | length }}}}{_AFTER}",
    "whether there are more messages": (
        f"{_BEFORE}{{% if messages | length > 2 and messages %}}{{{{ messages[2].role }}}}{{% endif %}}{{% set r = messages[1:] %}}"
        f"{{{{ 'more' if r }}}}{{% for q in messages %}}{_when(_USER)}{{% endfor %}}{_AFTER}"
    ),
}
FEWER = [
    name
    for number, name in enumerate(SEARCHES)
    if number >= len(_BODIES) * len(_LOOPS) or number % len(_LOOPS) == number // len(_LOOPS) % len(_LOOPS)
]
"""Each body in one loop, the loops in turn, and all that has no body."""
