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
CHANCE = "random results"
ADDRESS = "an object with its address"
PRODUCT = "makes a value of more than"
DOUBLING = "{%% set ns = namespace(x=%s, y=%s) %%}{%% for _ in range(60) %%}{%% set ns.x = %s %%}{%% set ns.y = %s %%}{%% endfor %%}%s"


def doubled(start: str, step: str, use: str) -> str:
    """A value made of itself sixty times over, and another like it, and what is done with them."""
    return DOUBLING % (start, start, step % (("ns.x",) * 2), step % (("ns.y",) * 2), use)


ESCAPES = (
    Hostile("class", "{{ ''.__class__.__mro__[1].__subclasses__() }}", reason=UNSAFE),
    Hostile("class by item", "{{ ''['__class__']['__base__'] }}", reason=UNSAFE),
    Hostile("subclasses", "{% for c in [].__class__.__base__.__subclasses__() %}{% if 'warning' in c.__name__ %}{{ c()._module.__builtins__['__import__']('os').popen('touch /tmp/x') }}{% endif %}{% endfor %}", reason=UNSAFE),
    Hostile("globals of a function", "{{ raise_exception.__globals__['os'].system('id') }}", reason=UNSAFE),
    Hostile("globals of cycler", "{{ cycler.__init__.__globals__.os.popen('id').read() }}", reason=UNSAFE),
    Hostile("globals of joiner", "{{ joiner.__init__.__globals__.os.popen('id').read() }}", reason=UNSAFE),
    Hostile("globals of namespace", "{{ namespace.__init__.__globals__.os.popen('id').read() }}", reason=UNSAFE),
    Hostile("globals of lipsum", "{{ lipsum.__globals__['os'].popen('id').read() }}", reason=UNSAFE),
    Hostile("globals of a method", "{{ strftime_now.__self__.__class__.today() }}", reason=UNSAFE),
    Hostile("self", "{{ self._TemplateReference__context.cycler.__init__.__globals__.os }}", reason=UNSAFE),
    Hostile("environment by self", "{{ self['_TemplateReference__context'].environment }}", reason=UNSAFE),
    Hostile("a macro's function", "{% macro m() %}{% endmacro %}{{ m._func.__globals__ }}", reason=UNSAFE),
    Hostile("a macro's environment", "{% macro m() %}{% endmacro %}{{ m._environment.filters }}", reason=UNSAFE),
    Hostile("caller", "{% macro m() %}{{ caller._func.__code__ }}{% endmacro %}{% call m() %}{% endcall %}", reason=UNSAFE),
    Hostile("loop", "{% for m in messages %}{{ loop._iterator.__reduce__() }}{% endfor %}", reason=UNSAFE),
    Hostile("frame of a generator", "{{ (messages|map('upper')).gi_frame.f_globals }}", reason=UNSAFE),
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
    Hostile("subclasses of dict", "{{ dict.__subclasses__() }}", reason=UNSAFE),
    Hostile("private name in a namespace", "{% set n = namespace() %}{% set n.__class__ = 1 %}", reason="namespace cannot hold"),
    Hostile("private name given to a namespace", "{{ namespace(**{'__init__': 1}) }}", reason="namespace cannot hold"),
    Hostile("name of a block (2024-56201)", "{% include '{0}' ~ '\\x00\"+__import__(\"os\").system(\"id\")+\"' %}", reason="no loader"),
    Hostile("include", "{% include '/etc/passwd' %}", reason="no loader"),
    Hostile("include, missing ignored", "{% include '/etc/passwd' ignore missing %}", reason="no loader"),
    Hostile("extends", "{% extends '/etc/passwd' %}", reason="no loader"),
    Hostile("import", "{% import '/etc/passwd' as p %}", reason="no loader"),
    Hostile("from", "{% from '/etc/passwd' import p %}", reason="no loader"),
    Hostile("import of os (2024-34359)", "{% for x in ().__class__.__base__.__subclasses__() %}{{ x.__init__.__globals__['os'].system('id') }}{% endfor %}", reason=UNSAFE),
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
    Hostile("address filled in", "{{ '%s' % ('x'.upper,) }}", reason=ADDRESS),
    Hostile("address formatted", "{{ '{}'.format(range) }}", reason=ADDRESS),
    Hostile("address of a generator", "{{ messages|map('length') }}", reason=ADDRESS),
    Hostile("address of an iterator", "{{ messages|reverse }}", reason=ADDRESS),
    Hostile("address of a block", "{% block b %}{{ self.b }}{% endblock %}", reason=ADDRESS),
    Hostile("address of a cycler", "{{ cycler(1) }}{{ joiner() }}", reason=ADDRESS),
)  # fmt: skip

BOMBS = (
    Hostile("'a' * 10**9", "{{ 'a' * 10**9 }}", reason=PRODUCT),
    Hostile("10**9 * 'a'", "{{ 10**9 * 'a' }}", reason=PRODUCT),
    Hostile("10**10**8", "{{ 10**(10**8) }}", reason=PRODUCT),
    Hostile("a number of many digits", "{{ " + "9" * 5000 + " }}", reason="not a valid Jinja template"),
    Hostile("a hexadecimal number", "{{ 0x" + "f" * 50000 + " }}", reason="not a valid Jinja template"),
    Hostile("int of many digits", "{{ ('f' * 100000)|int(base=16) }}", reason="4300 digits"),
    Hostile("one range", "{{ range(10**9)|list }}", reason="Range too big"),
    Hostile("a macro in itself", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", reason="deep"),
    Hostile("a loop in itself", "{% set n = namespace() %}{% for m in [1] recursive %}{{ loop([1]) }}{% endfor %}", reason="deep"),
    Hostile("parentheses", "{{ " + "(" * 5000 + ")" * 5000 + " }}", reason="not a valid Jinja template"),
    Hostile("blocks in blocks", "{% if true %}" * 200 + "{% endif %}" * 200, reason="not a valid Jinja template"),
)  # fmt: skip

ALL = (*ESCAPES, *MUTATIONS, *CHANCES, *BOMBS)

OVERRUNS = {
    "nested ranges": "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
    "many large texts": "{% set ns = namespace(x=[]) %}{% for a in range(100000) %}"
    "{% set ns.x = ns.x + ['%06d' % a * 100000] %}{% endfor %}",
    "doubling": doubled("'ab'", "%s + %s", ""),
}
"""What takes too long, or too much memory, in steps that each come to an end."""

STUCK = {
    "lists of lists compared": doubled("[1]", "[%s, %s]", "{{ ns.x == ns.y }}"),
    "tuples of tuples as a key": doubled("(1,)", "(%s, %s)", "{{ {}[ns.x] }}"),
}
"""Single steps that take for ever."""

LARGE = {
    "padding": "{{ ('a'.ljust(6*10**9))[:3] }}",
    "a width": "{{ '{:6000000000}'.format(1)[:3] }}",
    "a width that is given": "{{ ('%*d' % (2*10**9, 1))[:3] }}",
    "a text between all characters": "{{ ('a' * 2**20).replace('', 'b' * 2**20)[:3] }}",
    "one text, many times": "{{ (['a' * 2**20] * 2**20)|join|length }}",
    "the rendering": "{% set x = 'a' * 2**20 %}{% for _ in range(100000) %}{{ x }}{% endfor %}",
    "the body of a macro": "{% set x = 'a' * 2**20 %}{% macro m() %}{% for _ in range(100000) %}{{ x }}{% endfor %}"
    "{% endmacro %}{{ m()[:3] }}",
    "one item, many times": "{{ [1]|batch(10**10, 2)|list|length }}",
    "indented JSON": "{{ (messages|tojson(indent=10**10))[:3] }}",
    "bytes": "{{ (1).to_bytes(10**10, 'big')|length }}",
}
"""Single steps that take gigabytes."""
