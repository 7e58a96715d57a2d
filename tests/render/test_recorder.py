"""What was recorded of a template is what it writes for words it was never shown, or nothing is filled in.

Whatever a template can do with a text is tried on every way a text can come to it, with words made to give each way away.
"""

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from supervision_stages import chat

from packer.render import ChatTemplate, RenderError
from packer.render.filling import Filling
from packer.render.recorder import TemplateRecorder, TrialTemplate, placeholder_text
from packer.render.rewritten_history import EncodedText, RenderedRow
from packer.render.sandbox import environment_of
from packer.render.symbolic import Condition, OpaqueError, Slot, SymbolicText

DATE = "2026-01-01"
WORDS = (
    *("plain words", " padded both ways\n", "\n", "x", "ab", "a", "abc", "</think>reasoned", "0", "7", "True", "none"),
    *("{{ 7 * 7 }}", "<b>&amp;</b>", "ümläut ß ﬀ", "UPPER case", "words " * 60, "\"quoted\" \\ 'text'", "%s %d {0}"),
    *("http://example.org", "\u2028line\x85", "[1, 2]", "content", "user", "zq", "upper", "index", "\t ab \t"),
)
WAYS = {
    "itself": "{% set t = messages[0].content %}",
    "item": "{% set t = messages[0]['content'] %}",
    "get": "{% set t = messages[0].get('content', '') %}",
    "loop": "{% set n = namespace(t='') %}{% for m in messages %}{% set n.t = m.content %}{% endfor %}{% set t = n.t %}",
    "list": "{% set t = [messages[0].content][0] %}",
    "dict": "{% set t = {'k': messages[0].content}.k %}",
    "items": "{% set n = namespace(t='') %}{% for k, v in messages[0].items() %}{% if k == 'content' %}"
    "{% set n.t = v %}{% endif %}{% endfor %}{% set t = n.t %}",
    "macro": "{% macro f(c) %}{{ c }}{% endmacro %}{% set t = f(messages[0].content) %}",
    "caller": "{% macro f() %}{{ caller() }}{% endmacro %}{% set t %}{% call f() %}{{ messages[0].content }}"
    "{% endcall %}{% endset %}",
    "captured": "{% set t %}{{ messages[0].content }}{% endset %}",
    "block": "{% set t %}{% generation %}{{ messages[0].content }}{% endgeneration %}{% endset %}",
    "tilde": "{% set t = 'a' ~ messages[0].content %}",
    "plus": "{% set t = messages[0].content + 'b' %}",
    "plus before": "{% set t = 'a' + messages[0].content %}",
    "trimmed": "{% set t = messages[0].content | trim %}",
    "stripped": "{% set t = messages[0].content.rstrip() %}",
    "split": "{% set t = messages[0].content.split('</think>')[-1] %}",
    "replaced": "{% set t = messages[0].content.replace('y', 'zz') %}",
    "mapped": "{% set t = messages | map(attribute='content') | first %}",
    "selected": "{% set t = (messages | selectattr('role', 'equalto', 'user') | list)[0].content %}",
    "default": "{% set t = messages[0].content | default('d') %}",
    "string": "{% set t = messages[0].content | string %}",
    "joined": "{% set t = [messages[0].content, 'c'] | join('-') %}",
    "twice": "{% set t = messages[0].content ~ messages[0].content %}",
}
FILTERS = sorted(name for name in environment_of(DATE).filters if " " not in name)
METHODS = sorted(name for name in dir(str) if not name.startswith("_"))
ARGUMENTS = ("", "'a'", "'a', 'b'", "10", "t", "'\\n'")
DOES = (
    *(f"{{{{ t | {name} }}}}" for name in FILTERS),
    *(f"{{{{ [t] | {name} }}}}" for name in FILTERS),
    *(f"{{{{ 'y' if t is {name} else 'n' }}}}" for name in sorted(environment_of(DATE).tests)),
    *(f"{{{{ 'y' if t is {name} 'ab' else 'n' }}}}" for name in ("eq", "ne", "lt", "in", "sameas", "==", "equalto")),
    *(f"{{{{ t.{name}({given_}) }}}}" for name in METHODS for given_ in ARGUMENTS),
    *(f"{{{{ 'a,b'.{name}(t) }}}}" for name in METHODS),
    *(f"{{{{ t {op} 'ab' }}}}" for op in ("<", "<=", ">", ">=", "==", "!=", "in", "not in", "+", "~", "%")),
    *(f"{{{{ 'ab' {op} t }}}}" for op in ("<", "<=", ">", ">=", "==", "!=", "in", "not in", "+", "~", "%")),
    *(f"{{{{ t {op} 2 }}}}" for op in ("*", "/", "//", "**", "-", "%")),
    *("{{ t }}", "{{ t[0] }}", "{{ t[:2] }}", "{{ t[-1] }}", "{{ t['k'] }}", "{{ t.k is defined }}", "{{ t[1:] }}"),
    *("{{ 'y' if t else 'n' }}", "{{ not t }}", "{{ t and 'y' }}", "{{ t or 'y' }}", "{{ -t }}", "{{ (t, t) }}"),
    *("{% for c in t %}{{ c }}.{% endfor %}", "{{ {t: 1} }}", "{{ {'a': 1}[t] }}", "{{ [t] }}", "{{ {'k': t} }}"),
    *("{{ t in ['ab', 'x'] }}", "{{ t in {'ab': 1} }}", "{{ 'x' in [t] }}", "{{ [t] == ['ab'] }}", "{{ t == t }}"),
    *("{{ 'ab' if t == 'ab' else t }}", "{{ '%s-%s' % (t, 'a') }}", "{{ '%s' % t }}", "{{ '{}'.format(t) }}"),
    *("{{ t ~ t ~ 1 ~ none }}", "{{ t.split('</think>') | length }}", "{{ t.split() | length }}", "{{ t.pieces }}"),
    *("{{ t._pieces }}", "{{ t.__class__ }}", "{{ t.__len__() }}", "{{ t._asked('holds', 'a') }}"),
    *("{{ range(t | length) | list }}", "{{ dict(a=t).a }}", "{{ dict(a=t) }}", "{{ namespace(a=t).a }}"),
    *("{{ cycler(t, 'b').next() }}", "{{ joiner(t)() }}", "{{ raise_exception(t) }}", "{{ strftime_now(t) }}"),
    *("{% filter upper %}{{ t }}{% endfilter %}", "{% filter trim %} {{ t }} {% endfilter %}"),
    *(
        "{{ messages.index(messages[0]) }}",
        "{{ messages | tojson }}",
        "{{ messages | string | length }}",
        "{{ messages }}",
    ),
    *("{{ messages | map('length') | sum }}", "{{ messages | map(attribute='content') | map('upper') | list }}"),
    *("{{ messages | map(attribute='content') | select('in', ['ab']) | list | length }}",),
    *("{{ messages | selectattr('content', 'eq', 'ab') | list | length }}", "{{ messages | groupby('content') }}"),
    *("{{ messages | map(attribute='content') | join(', ') }}", "{{ messages | join('; ', attribute='content') }}"),
    *("{{ messages | sort(attribute='content') | length }}", "{{ messages | unique(attribute='content') | list }}"),
    *("{% set u = t.strip('ab') %}{{ u }}", "{% set u = t.lstrip('\\n') %}{{ u }}{{ u.startswith('a') }}"),
    *("{{ t.startswith(('a', 'x')) }}", "{{ t.endswith(('b', 'x')) }}", "{{ t.startswith('a', 1) }}"),
    *(
        "{{ '' in t }}",
        "{{ t.startswith('') }}",
        "{{ t == '' }}",
        "{{ (t | trim) == '' }}",
        "{{ t.strip('\\n') == '' }}",
    ),
    *(
        "{{ t.split('a')[0] }}",
        "{{ t.split('a', 1)[-1] }}",
        "{{ t.rsplit('a', 1)[0] }}",
        "{{ t.split('</think>')[1] }}",
    ),
    *("{{ t | trim | length }}", "{{ (t ~ '') | trim }}", "{{ (' ' ~ t ~ ' ') | trim }}", "{{ ('x' ~ t) is string }}"),
    *("{{ 'ab'[t] }}", "{{ 'ab'[t] is defined }}", "{{ messages[t] is defined }}", "{{ messages[0][t] }}"),
    *("{{ 'a' <= t in 'ab' }}", "{{ t in 'ab' in 'abc' }}", "{{ t in messages[0] }}", "{{ t is in messages[0] }}"),
    *("{{ t is in 'ab' }}", "{{ t is not in 'ab' }}", "{{ [t] in [['ab']] }}", "{{ t in t }}", "{{ 'a' in t ~ t }}"),
    *("{{ messages[t:] | length }}", "{{ messages[0] | attr(t) is defined }}", "{{ t ** t is defined }}"),
    *(
        "{{ ('ab' | safe) == t }}",
        "{{ t in ('ab abc' | e) }}",
        "{{ t in ['ab' | safe] }}",
        "{{ 'a' in ('b' | safe) + t }}",
    ),
    *(
        f"{{% autoescape true %}}{{% set u %}}{{{{ t }}}}{{% endset %}}{{{{ {asked} }}}}{{% endautoescape %}}"
        for asked in ("'a' in u", "u == 'ab'", "u | length")
    ),
    *("{% if t is string %}s{% elif t is iterable %}i{% endif %}", "{{ t is mapping }}", "{{ loop }}", "{{ self }}"),
)


def template_of(source):
    return ChatTemplate(source, date=DATE, variables={}, max_bytes=2**18)


def define(sample, template):
    """The whole conversation as one text without turns."""
    text = template.render([message.fields for message in sample.messages])
    return RenderedRow((EncodedText(text.encode(), ()),), 0)


def filling_of(source):
    return Filling(template_of(source), define, stops=["<|im_end|>"], control=[])


def filled(filling, all_words):
    """What is filled in of conversations of users, by their number; as many as there are words in the first."""
    rows = [chat(*({"role": "user", "content": word} for word in words), row=k) for k, words in enumerate(all_words)]
    return {number: row.texts[0].content.decode() for number, row in filling.fill(rows).items()}


def written(template, words):
    try:
        return template.render([{"role": "user", "content": word} for word in words])
    except RenderError as error:
        return repr(error)


def hold_to(source, all_words):
    """How many of some words were filled in, each of them rightly; None where there is no skeleton."""
    try:
        filling, template = filling_of(source), template_of(source)
    except (RenderError, jinja2.TemplateError):
        return None
    texts = filled(filling, [[word] for word in all_words])
    for number, text in texts.items():
        assert text == written(template, [all_words[number]]), (source, all_words[number])
    return len(texts) if any(filling._made.values()) else None


@pytest.fixture(autouse=True)
def a_skeleton_for_each_shape(monkeypatch):
    monkeypatch.setattr("packer.render.filling.WORTH_A_SKELETON", 1)


@pytest.mark.parametrize(
    ("way", "every"),
    [("itself", 12), *((way, 24) for way in WAYS), *(pytest.param(way, 1, marks=pytest.mark.slow) for way in WAYS)],
)
def test_whatever_a_template_does_with_a_text_a_recording_is_right_or_there_is_none(way, every):
    """In `make test` a twelfth of the doings on the text itself, and on it after each way a part, another one each time."""
    tried = DOES[list(WAYS).index(way) % every :: every]
    outcomes = [hold_to(WAYS[way] + does, WORDS) for does in tried]
    assert len(outcomes) > 550 // every
    num_skeletons = sum(outcome is not None for outcome in outcomes)
    assert num_skeletons > 16 // every, "only what is refused was tried"
    assert sum(filter(None, outcomes)) >= 5 * num_skeletons


@given(
    steps=st.lists(st.sampled_from(DOES), min_size=2, max_size=4),
    way=st.sampled_from(sorted(WAYS)),
    words=st.lists(st.text(alphabet=" \nab<>/thinkxü{%}0", max_size=12), min_size=1, max_size=8),
)
def test_a_recording_is_right_for_any_words_after_several_doings(steps, way, words):
    hold_to(WAYS[way] + "|".join(steps), [*words, *WORDS])


@given(
    sources=st.lists(
        st.sampled_from(
            [
                "{% if 'a' in messages[0].content and not messages[1].content.startswith('b') %}q{% endif %}",
                "{{ messages[1].content | trim }}{{ messages[0].content }}",
                "{% for m in messages %}{{ loop.index }}{{ m.role }}{{ m.content.strip() ~ '\\n' }}{% endfor %}",
                "{% if messages[0].content == messages[1].content %}same{% endif %}",
                "{% if messages[0].content in messages[1].content %}in{% endif %}",
                "{{ messages[0].content.replace(messages[1].content, '') }}",
                "{% set ns = namespace(s='') %}{% for m in messages %}{% set ns.s = ns.s ~ m.content %}{% endfor %}{{ ns.s }}",
                "{% if (messages[0].content ~ messages[1].content) == 'ab' %}ab{% endif %}",
                "{{ (messages[0].content ~ ' ' ~ messages[1].content) | trim }}",
                "{{ messages[0].content.split(messages[1].content) | length }}",
            ]
        ),
        min_size=1,
        max_size=3,
    ),
    words=st.tuples(*[st.text(alphabet=" \nab", min_size=1, max_size=3)] * 2),
)
def test_several_texts_do_not_speak_for_each_other(sources, words):
    source = "".join(sources)
    for text in filled(filling_of(source), [words]).values():
        assert text == written(template_of(source), words)


def test_a_symbolic_text_has_no_method_of_a_text_that_it_does_not_answer_for_itself():
    """A method that a later Python adds to texts ends the recording too."""
    inherited = {name for name in dir(str) if getattr(SymbolicText, name) is getattr(str, name, None)}
    harmless = {"__class__", "__dir__", "__getattribute__", "__getstate__", "__init__", "__setattr__", "__delattr__"}
    assert inherited <= harmless | {"__init_subclass__", "__subclasshook__", "__doc__"}
    text = SymbolicText([Slot(0)], [])
    refused = 0
    for name in METHODS:
        if name in {"strip", "lstrip", "rstrip", "split", "rsplit", "replace", "startswith", "endswith"}:
            continue
        with pytest.raises(OpaqueError):
            getattr(text, name)("a")
        refused += 1
    assert refused > 35


def recorded(source):
    recorder = TemplateRecorder(TrialTemplate(template_of(source)))
    return recorder, recorder.render([{"role": "user", "content": placeholder_text(0)}])


def test_joins_of_a_template_keep_what_is_joined():
    """Also under the names that Jinja's code joins texts by; where a later Jinja has others, this fails first."""
    source = "{{ 'a' ~ messages[0].content }}{% macro f() %}{{ messages[0].content }}{% endmacro %}{{ f() }}"
    code = jinja2.Environment(extensions=[]).compile(source, raw=True)
    assert "str_join(" in code
    assert "concat = environment.concat" in code
    assert recorded(source)[1] == "a" + f"{placeholder_text(0)}s000x" * 2


def test_questions_are_kept_as_conditions_on_what_is_written():
    source = (
        "{% set t = messages[0].content | trim %}"
        "{% if t.startswith('a') or '</think>' in t or t == 'y' %}{% endif %}{{ t }}"
    )
    slot = Slot(0, (("lstrip", None), ("rstrip", None)))
    assert recorded(source)[0].conditions == (
        Condition(slot, "starts", "a"),
        Condition(slot, "holds", "</think>"),
        Condition(slot, "equals", "y"),
    )
    assert filled(filling_of(source), [[word] for word in ("b", " ab", "b</think>", " y ", "yy")]) == {0: "b", 4: "yy"}


def test_words_longer_than_those_of_the_trial_are_rendered():
    filling = filling_of("{{ messages[0].content }}")
    assert filled(filling, [["w"]])
    longest = next(iter(filling._made.values())).longest
    assert [*filled(filling, [["w" * longest], ["w" * (longest + 1)]])] == [0]


@pytest.mark.parametrize(
    "source",
    [
        "{{ lipsum() }}",
        "{{ messages[0].items }}",
        "{{ 'a' * 2000000 }}",
        "{% for i in range(1000000) %}{% endfor %}",
    ],
)
def test_what_the_sandbox_refuses_or_limits_is_not_filled_in(source):
    assert not filled(filling_of(source + "{{ messages[0].content }}" * 9), [["word"]])


@pytest.mark.parametrize(
    "source",
    [
        "{% if false %}{{ 9 ** (9 ** 9) }}{% endif %}",
        "{% if false %}{{ 'a' * 30000000000 }}{% endif %}",
        "{% if false %}{% set n = 10 ** 6000 %}{% endif %}",
        "{% set n = 9 %}{{ n ** (n ** n) }}",
        "{% set n = 30000000000 %}{{ ('a' * n) | length }}",
    ],
)
def test_what_the_sandbox_compiles_and_bounds_neither_crashes_a_recording_nor_keeps_it(source):
    """The sandbox takes these templates; of those that ask for too much it rejects the row."""
    outcome = written(template_of(source + "{{ messages[0].content }}"), ["word"])
    spoken_for = hold_to(source + "{{ messages[0].content }}", ["word"])
    assert not spoken_for or outcome.endswith("word")
