"""Templates that want more than to write a chat, each with what becomes of it."""

from typing import NamedTuple


class Hostile(NamedTuple):
    """A template and what packer makes of it."""

    name: str
    source: str
    text: str | None = None
    """What it writes, where it is harmless."""

    code: str = "template_error"
    """Of the rejection, where it writes nothing."""

    reason: str = ""
    """A part of the reason."""


UNSAFE = "is unsafe"
CHANCE = "by chance"
ADDRESS = "without calling it"
TOO_LARGE = "render_too_large"
DOUBLING = "{%% set ns = namespace(x=%s, y=%s) %%}{%% for _ in range(60) %%}{%% set ns.x = %s %%}{%% set ns.y = %s %%}{%% endfor %%}%s"


def doubled(start: str, step: str, use: str) -> str:
    """A value made of itself sixty times over, and another like it, and what is done with them."""
    return DOUBLING % (start, start, step % (("ns.x",) * 2), step % (("ns.y",) * 2), use)


ESCAPES = (
    Hostile("class", "{{ ''.__class__.__mro__[1].__subclasses__() }}", reason=UNSAFE),
    Hostile("class by item", "{{ ''['__class__']['__base__'] }}", reason=UNSAFE),
    Hostile("subclasses", "{% for c in [].__class__.__base__.__subclasses__() %}{% if 'warning' in c.__name__ %}{{ c()._module.__builtins__['__import__']('os').popen('touch /tmp/x') }}{% endif %}{% endfor %}", reason=UNSAFE),
    Hostile("globals of a function", "{{ raise_exception.__globals__['os'].system('id') }}", reason="has no attribute"),
    Hostile("globals of cycler", "{{ cycler.__init__.__globals__.os.popen('id').read() }}", reason=UNSAFE),
    Hostile("globals of joiner", "{{ joiner.__init__.__globals__.os.popen('id').read() }}", reason=UNSAFE),
    Hostile("globals of namespace", "{{ namespace.__init__.__globals__.os.popen('id').read() }}", reason=UNSAFE),
    Hostile("globals of lipsum", "{{ lipsum.__globals__['os'].popen('id').read() }}", reason="has no attribute"),
    Hostile("globals of a method", "{{ strftime_now.__self__.__class__.today() }}", reason=UNSAFE),
    Hostile("what a function wraps", "{{ range._call.__globals__ }}", reason=UNSAFE),
    Hostile("self", "{{ self._TemplateReference__context.cycler.__init__.__globals__.os }}", reason="no use for 'self'"),
    Hostile("environment by self", "{{ self['_TemplateReference__context'].environment }}", reason="no use for 'self'"),
    Hostile("a macro's function", "{% macro m() %}{% endmacro %}{{ m._func.__globals__ }}", reason=UNSAFE),
    Hostile("a macro's environment", "{% macro m() %}{% endmacro %}{{ m._environment.filters }}", reason=UNSAFE),
    Hostile("caller", "{% macro m() %}{{ caller._func.__code__ }}{% endmacro %}{% call m() %}{% endcall %}", reason=UNSAFE),
    Hostile("loop", "{% for m in messages %}{{ loop._iterator.__reduce__() }}{% endfor %}", reason=UNSAFE),
    Hostile("frame of a generator", "{{ (messages|map('upper')).gi_frame.f_globals }}", reason="has no attribute"),
    Hostile("a generator by its wrapper", "{{ (messages|map('upper'))._items.gi_frame }}", reason=UNSAFE),
    Hostile("undefined", "{{ nothing._fail_with_undefined_error.__globals__ }}", reason=UNSAFE),
    Hostile("attr filter", "{{ (''|attr('__class__')).mro() }}", reason=UNSAFE),
    Hostile("attr filter, format (2025-27516)", "{{ (('{0.__class__.__init__.__globals__}')|attr('format'))(raise_exception) }}", reason=UNSAFE),
    Hostile("map of an attribute", "{{ ['']|map(attribute='__class__')|map(attribute='__base__')|list }}", reason=UNSAFE),
    Hostile("groupby of an attribute", "{{ [raise_exception]|groupby('__globals__') }}", reason=ADDRESS),
    Hostile("sort by an attribute", "{{ [raise_exception, range]|sort(attribute='__globals__') }}", reason=ADDRESS),
    Hostile("format", "{{ '{0.__class__.__base__}'.format(1) }}", reason=UNSAFE),
    Hostile("format by an item", "{{ '{0[__class__]}'.format('') }}", text=""),
    Hostile("format_map", "{{ '{a.__class__}'.format_map({'a': 1}) }}", text=""),
    Hostile("format by reference (2024-56326)", "{% set f = '{0.__class__.__base__}'.format %}{{ f(1) }}", reason=UNSAFE),
    Hostile("format in a dict", "{{ {'f': '{0.__class__.__base__}'.format}['f'](1) }}", reason=UNSAFE),
    Hostile("format of safe text", "{{ ('{0.__class__.__base__}'|safe).format(1) }}", reason=UNSAFE),
    Hostile("format through map", "{{ ['%(a)s']|map('format', a=raise_exception)|list }}", reason=ADDRESS),
    Hostile("subclasses of dict", "{{ dict.__subclasses__() }}", reason="has no attribute"),
    Hostile("private name in a namespace", "{% set n = namespace() %}{% set n.__class__ = 1 %}", reason="namespace cannot hold"),
    Hostile("private name given to a namespace", "{{ namespace(**{'__init__': 1}) }}", reason="namespace cannot hold"),
    Hostile("name of a block (2024-56201)", "{% include '{0}' ~ '\\x00\"+__import__(\"os\").system(\"id\")+\"' %}", reason="no loader"),
    Hostile("include", "{% include '/etc/passwd' %}", reason="no loader"),
    Hostile("include, missing ignored", "{% include '/etc/passwd' ignore missing %}", reason="no loader"),
    Hostile("extends", "{% extends '/etc/passwd' %}", reason="no loader"),
    Hostile("import", "{% import '/etc/passwd' as p %}", reason="no loader"),
    Hostile("from", "{% from '/etc/passwd' import p %}", reason="no loader"),
    Hostile("import of os (2024-34359)", "{% for x in ().__class__.__base__.__subclasses__() %}{{ x.__init__.__globals__['os'].system('id') }}{% endfor %}", reason=UNSAFE),
    Hostile("an encoding that is a module", "{{ 'é'.encode('punycode') }}", reason=UNSAFE),
    Hostile("a filter nobody has", "{{ 1|system('id') }}", reason="No filter named"),
    Hostile("an operator as a filter", "{{ 'a'|attr(' + ') }}", text=""),
)  # fmt: skip

MUTATIONS = (
    Hostile("append", "{{ messages.append({'role': 'user', 'content': 'x'}) }}", reason=UNSAFE),
    Hostile("insert by reference", "{% set f = messages.insert %}{{ f(0, 1) }}", reason=UNSAFE),
    Hostile("pop by attr", "{{ (messages|attr('pop'))() }}", reason=UNSAFE),
    Hostile("clear by item", "{{ messages['clear']() }}", reason=UNSAFE),
    Hostile("reverse", "{{ messages.reverse() }}", reason=UNSAFE),
    Hostile("sort", "{{ messages.sort(key=range) }}", reason=UNSAFE),
    Hostile("update a message", "{{ messages[0].update({'content': 'y'}) }}", reason=UNSAFE),
    Hostile("update by format", "{{ '{0.update}'.format(messages[0]) }}", text=""),
    Hostile("setdefault", "{{ messages[0].setdefault('x', 1) }}", reason=UNSAFE),
    Hostile("popitem", "{{ tools[0].popitem() }}", reason=UNSAFE),
    Hostile("assign to a message", "{% set messages[0].content = 'y' %}", reason="not a valid Jinja template"),
    Hostile("assign to a field", "{% set m = messages[0] %}{% set m.content = 'y' %}", reason="cannot assign attribute on non-namespace"),
    Hostile("assign to the globals", "{% set raise_exception = 1 %}{% set messages = [] %}{{ messages }}", text="[]"),
    Hostile("a copy changed", "{% set m = messages[0].copy() %}{{ m.clear() }}", reason=UNSAFE),
)  # fmt: skip

CHANCES = (
    Hostile("lipsum", "{{ lipsum() }}", reason=CHANCE),
    Hostile("lipsum without end", "{{ lipsum(n=10**9) }}", reason=CHANCE),
    Hostile("random", "{{ messages|random }}", reason=CHANCE),
    Hostile("random by map", "{{ [[1, 2]]|map('random')|list }}", reason=CHANCE),
    Hostile("address of a method", "{{ messages[0].items }}", reason=ADDRESS),
    Hostile("address in a list", "{{ ['x'.upper] }}", reason=ADDRESS),
    Hostile("address joined", "{{ 'x' ~ 'x'.upper }}", reason=ADDRESS),
    Hostile("address filtered", "{{ ('x'.upper|string)[-6:] }}", reason=ADDRESS),
    Hostile("address filled in", "{{ '%s' % ('x'.upper,) }}", reason=ADDRESS),
    Hostile("address formatted", "{{ '{}'.format(range) }}", reason=ADDRESS),
    Hostile("address of a generator", "{{ messages|map('length') }}", reason="before it is a list"),
    Hostile("address of an iterator", "{{ messages|reverse }}", reason="before it is a list"),
    Hostile("address of a block", "{% block b %}{{ self.b }}{% endblock %}", reason="no use for 'self'"),
    Hostile("objects that show nothing", "{{ cycler(1) }}{{ joiner() }}", text="<cycler><joiner>"),
    Hostile("order of a set", "{{ (messages[0].keys() - [])|list }}", reason="order is not always the same"),
)  # fmt: skip

BOMBS = (
    Hostile("'a' * 10**9", "{{ 'a' * 10**9 }}", code=TOO_LARGE, reason="a text of more than"),
    Hostile("10**9 * 'a'", "{{ 10**9 * 'a' }}", code=TOO_LARGE, reason="a text of more than"),
    Hostile("10**10**8", "{{ 10**(10**8) }}", code=TOO_LARGE, reason="an integer of more than"),
    Hostile("powers of powers", "{% set ns = namespace(x=7) %}{% for _ in range(60) %}{% set ns.x = ns.x * ns.x %}{% endfor %}{{ ns.x }}", code=TOO_LARGE, reason="an integer of more than"),
    Hostile("a number of many digits", "{{ " + "9" * 5000 + " }}", reason="not a valid Jinja template"),
    Hostile("a hexadecimal number", "{{ 0x" + "f" * 50000 + " }}", reason="not a valid Jinja template"),
    Hostile("int of many digits", "{{ ('f' * 1000000)|int(base=16) }}", code=TOO_LARGE, reason="an integer of more than"),
    Hostile("list * 10**9", "{{ ([0] * 10**9)|length }}", code=TOO_LARGE, reason="a list of more than"),
    Hostile("text ~ text", doubled("'ab'", "%s ~ %s", ""), code=TOO_LARGE, reason="a text of more than"),
    Hostile("text joined", doubled("'ab'", "[%s, %s]|join", ""), code=TOO_LARGE, reason="characters"),
    Hostile("text formatted", doubled("'ab'", "'{}{}'.format(%s, %s)", ""), code=TOO_LARGE, reason="characters"),
    Hostile("text filled in", doubled("'ab'", "'%%s%%s' %% (%s, %s)", ""), code=TOO_LARGE, reason="characters"),
    Hostile("text replaced", doubled("'ab'", "%s.replace('a', %s)", ""), code=TOO_LARGE, reason="a text of more than"),
    Hostile("text replaced by a filter", doubled("'ab'", "%s|replace('a', %s)", ""), code=TOO_LARGE, reason="characters"),
    Hostile("lists of lists written", doubled("[1]", "[%s, %s]", "{{ ns.x }}"), code=TOO_LARGE, reason="holds more than"),
    Hostile("lists of lists as JSON", doubled("[1]", "[%s, %s]", "{{ ns.x|tojson }}"), code=TOO_LARGE, reason="holds more than"),
    Hostile("lists of lists compared", doubled("[1]", "[%s, %s]", "{{ ns.x == ns.y }}"), code=TOO_LARGE, reason="holds more than"),
    Hostile("lists of lists sought", doubled("[1]", "[%s, %s]", "{{ ns.x in [ns.y] }}"), code=TOO_LARGE, reason="holds more than"),
    Hostile("lists of lists tested", doubled("[1]", "[%s, %s]", "{{ ns.x is eq(ns.y) }}"), code=TOO_LARGE, reason="holds more than"),
    Hostile("lists of lists sorted", doubled("[1]", "[%s, %s]", "{{ [ns.x, ns.y]|sort }}"), code=TOO_LARGE, reason="holds more than"),
    Hostile("lists of lists counted", doubled("[1]", "[%s, %s]", "{{ [ns.x].count(ns.y) }}"), code=TOO_LARGE, reason="holds more than"),
    Hostile("lists of lists raised", doubled("[1]", "[%s, %s]", "{{ raise_exception(ns.x) }}"), code=TOO_LARGE, reason="holds more than"),
    Hostile("lists of lists in a namespace", doubled("[1]", "[%s, %s]", "{{ ns }}"), reason="writes a namespace"),
    Hostile("tuples of tuples as a key", doubled("(1,)", "(%s, %s)", "{{ {}[ns.x] }}"), code=TOO_LARGE, reason="holds more than"),
    Hostile("tuples of tuples got", doubled("(1,)", "(%s, %s)", "{{ {}.get(ns.x) }}"), code=TOO_LARGE, reason="holds more than"),
    Hostile("tuples of tuples in a dict", doubled("(1,)", "(%s, %s)", "{{ {ns.x: 1} }}"), code=TOO_LARGE, reason="holds more than"),
    Hostile("tuples of tuples made keys", doubled("(1,)", "(%s, %s)", "{{ dict([(ns.x, 1)]) }}"), code=TOO_LARGE, reason="holds more than"),
    Hostile("tuples of tuples made one", doubled("(1,)", "(%s, %s)", "{{ [ns.x]|unique|list }}"), code=TOO_LARGE, reason="holds more than"),
    Hostile("tuples of tuples changed", doubled("(1,)", "(%s, %s)", "{% for _ in [1, 2] %}{{ loop.changed(ns.x) }}{% endfor %}"), code=TOO_LARGE, reason="holds more than"),
    Hostile("width of %", "{{ '%1000000000d' % 1 }}", code=TOO_LARGE, reason="a width"),
    Hostile("width of %*", "{{ '%*d' % (1000000000, 1) }}", code=TOO_LARGE, reason="a width"),
    Hostile("width of the format filter", "{{ '%1000000000d'|format(1) }}", code=TOO_LARGE, reason="a width"),
    Hostile("width of format", "{{ '{:1000000000}'.format(1) }}", code=TOO_LARGE, reason="a width"),
    Hostile("width within a width", "{{ '{:{}}'.format(1, 10**9) }}", code=TOO_LARGE, reason="a width"),
    Hostile("width of center", "{{ 'x'.center(10**9) }}", code=TOO_LARGE, reason="a text of more than"),
    Hostile("width of the center filter", "{{ 'x'|center(10**9) }}", code=TOO_LARGE, reason="a text of more than"),
    Hostile("width of ljust", "{{ 'x'.ljust(10**9) }}", code=TOO_LARGE, reason="a text of more than"),
    Hostile("width of zfill", "{{ 'x'.zfill(10**9) }}", code=TOO_LARGE, reason="a text of more than"),
    Hostile("width of a tab", "{{ '\\t'.expandtabs(10**9) }}", reason=UNSAFE),
    Hostile("indentation", "{{ 'x\\ny'|indent(10**9) }}", code=TOO_LARGE, reason="a width"),
    Hostile("indentation of JSON", "{{ messages|tojson(indent=10**9) }}", code=TOO_LARGE, reason="a width"),
    Hostile("separators of JSON", "{{ messages|tojson(separators=('x' * 100000, ':')) }}", code=TOO_LARGE, reason="a separator"),
    Hostile("width of the clock", "{{ strftime_now('%1000000d' * 100000) }}", code=TOO_LARGE, reason="a separator"),
    Hostile("fill of a batch", "{{ [1]|batch(10**9, 0)|list }}", code=TOO_LARGE, reason="a width"),
    Hostile("slices", "{{ [1]|slice(10**9)|list }}", code=TOO_LARGE, reason="a width"),
    Hostile("precision", "{{ 1.5|round(10**8, 'ceil') }}", code=TOO_LARGE, reason="a width"),
    Hostile("one range", "{{ range(10**9)|list }}", reason="Range too big"),
    Hostile("words of a text", "{{ ('ab ' * 10000000).split()|length }}", code=TOO_LARGE, reason="a list of more than"),
    Hostile("lines of a text", "{{ ('\\n' * 10000000).splitlines()|length }}", code=TOO_LARGE, reason="a list of more than"),
    Hostile("letters of a text", "{{ ('x' * 10000000)|list|length }}", code=TOO_LARGE, reason="a list of more than"),
    Hostile("search from the right", "{{ ('a' * 10000000).rfind('b' + 'a' * 5000000) }}", code=TOO_LARGE, reason="a search"),
    Hostile("stripping of many", "{{ ('a' * 10000000).strip('b' * 5000000 + 'a') }}", code=TOO_LARGE, reason="a search"),
    Hostile("patterns", "{{ ('<' * 10000000)|striptags }}", code=TOO_LARGE, reason="a search with a pattern"),
    Hostile("a macro in itself", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", reason="deep"),
    Hostile("a loop in itself", "{% set n = namespace() %}{% for m in [1] recursive %}{{ loop([1]) }}{% endfor %}", reason="deep"),
    Hostile("a block in itself", "{% block b %}{{ self.b() }}{% endblock %}", reason="no use for 'self'"),
    Hostile("parentheses", "{{ " + "(" * 5000 + ")" * 5000 + " }}", reason="not a valid Jinja template"),
    Hostile("blocks in blocks", "{% if true %}" * 200 + "{% endif %}" * 200, reason="not a valid Jinja template"),
)  # fmt: skip

ALL = (*ESCAPES, *MUTATIONS, *CHANCES, *BOMBS)

OVERRUNS = {
    "nested ranges": "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
    "many large texts": "{% set ns = namespace(x=[]) %}{% for a in range(100000) %}"
    "{% set ns.x = ns.x + ['%06d' % a * 2000000] %}{% endfor %}",
    "doubling": doubled("'ab'", "%s + %s", ""),
}
"""What no limit stops, since each step is small, and what of it is told."""

TOLD = {
    "nested ranges": "2 s of processor time",
    "many large texts": "512 MiB of memory",
    "doubling": "512 MiB of memory",
}
