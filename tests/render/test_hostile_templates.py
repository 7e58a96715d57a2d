"""A template can do nothing but write, and nothing without end: no file, no process, no import, no change of a row."""

import functools
import itertools
import json
import re
import signal
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

import pytest
from hostile_templates import ALL, LARGE, OVERRUNS, STUCK, Hostile
from hypothesis import given
from hypothesis import strategies as st
from processes import HANG_S, in_a_process, run_forked, start
from search_effort import IS_DEEP, percent_of_examples

from packer.host.watchdog import TemplateOverrunError, watched
from packer.rejections import CODES
from packer.render.environment import ChatTemplate

MESSAGES = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
ROW = {"messages": MESSAGES, "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, date="2026-01-01", variables={"eos_token": "</s>"}, max_bytes=2**26)


WATCHED = """
import copy, json, re, sys, threading
from pathlib import Path
import hostile_templates
from packer.render.environment import ChatTemplate, RenderError

def most_mebibytes():
    # Not what getrusage says: that knows of the process this one was started from.
    status = Path("/proc/self/status")
    return int(re.search(r"VmHWM:\\s+(\\d+)", status.read_text())[1]) // 1024 if status.exists() else 0

def template(source):
    return ChatTemplate(source, date="2026-01-01", variables={"eos_token": "</s>"}, max_bytes=2**26)

plain = template("{{ messages }}")
events, main = [], threading.get_ident()

def hear(name, _):
    # Not the identity of a value, which Python notes where it indents JSON; nor an attribute that Jinja looks at before
    # it refuses it.
    if recording and name not in ("builtins.id", "object.__getattr__") and threading.get_ident() == main:
        events.append(name)

sys.addaudithook(hear)
recording = False
given = json.loads(sys.argv[1])
for hostile in hostile_templates.ALL:
    try:
        compiled = template(hostile.source)
    except RenderError as error:
        print(json.dumps([error.code, str(error), given, None, 0]))
        continue
    row = copy.deepcopy(given)
    events.clear()
    recording = True
    try:
        code, told = "", compiled.render(row["messages"], tools=row["tools"])
    except RenderError as error:
        code, told = error.code, str(error)
    recording = False
    print(json.dumps([code, told, row, events, most_mebibytes()]))
recording = True
open("/dev/null").close()
print(json.dumps(["", "the hook hears", given, events, 0]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What became of the rendering of a template."""

    code: str
    """Of the rejection; empty where there is none."""

    told: str
    """The text, or the reason of the rejection."""

    row: dict[str, Any]
    """Messages and tools as they are afterwards."""

    events: list[str] | None
    """What Python told of while it rendered; None where it did not compile."""

    most_mebibytes: int


@functools.cache
def ends() -> dict[str, Ended]:
    """Every hostile template rendered, in one process that listens; the last is what the hook hears of a file."""
    process = start(WATCHED, json.dumps(ROW))
    output, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, errors[-4000:]
    found = map(json.loads, output.splitlines())
    names = [*(each.name for each in ALL), "a file"]
    fields = ("code", "told", "row", "events", "most_mebibytes")
    return {name: Ended(**dict(zip(fields, each, strict=True))) for name, each in zip(names, found, strict=True)}


def test_hostile_templates_are_harmless_or_refused_with_their_reasons() -> None:
    found = ends()
    assert [name for name, end in found.items() if end.row != ROW] == [], "a row is as it was before"
    assert {each.name: found[each.name] for each in ALL if not is_as_told(found[each.name], each)} == {}


def is_as_told(end: Ended, hostile: Hostile) -> bool:
    if hostile.text is not None:
        return (end.code, end.told) == ("", hostile.text)
    # A reason is written to rejected.jsonl, the same every time: it holds no address.
    same_every_time = re.search("0x[0-9a-f]{6}", end.told) is None
    return end.code == hostile.code and end.code in CODES and hostile.reason in end.told and same_every_time


def test_no_hostile_template_touches_the_host() -> None:
    """Python tells of every file, process, socket, import and look into a function: there is none of them."""
    found = dict(ends())
    assert found.pop("a file").events == ["open"]
    rendered = {name: end.events for name, end in found.items() if end.events is not None}
    assert len(rendered) > 0.8 * len(ALL)
    assert {name: events for name, events in rendered.items() if events} == {}
    assert max(end.most_mebibytes for end in found.values()) < 1024


@pytest.mark.parametrize("name", OVERRUNS)
def test_what_only_goes_on_for_too_long_is_no_rejection(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packer.host.watchdog.MAX_CPU_S", 0.05)
    with pytest.raises(TemplateOverrunError, match=r"0\.05 s of processor time|more memory than") as raised:
        template(OVERRUNS[name]).render(MESSAGES)
    assert raised.value.exit_code == 2
    assert template("{{ messages[0].content }}").render(MESSAGES) == "hi", "the process goes on as before"


def test_an_application_has_its_signals_back_and_in_its_threads_a_rendering_fails_when_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A handler of its own is not touched: then the limit is that of a thread."""
    monkeypatch.setattr("packer.host.watchdog.MAX_CPU_S", 0.05)
    ends: list[object] = []

    def render() -> None:
        handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
        with pytest.raises(TemplateOverrunError):
            watched(lambda: sum(number for number in range(3 * 10**6)))
        assert {number: signal.getsignal(number) for number in signal.valid_signals()} == handlers
        ends.append(signal.getitimer(signal.ITIMER_VIRTUAL))

    render()
    thread = threading.Thread(target=render)
    thread.start()
    thread.join(HANG_S)
    before = signal.signal(signal.SIGVTALRM, lambda *_: ends.append("not the application's timer"))
    try:
        render()
    finally:
        signal.signal(signal.SIGVTALRM, before)
    assert ends == [(0.0, 0.0)] * 3


def test_waiting_takes_no_processor_time_and_is_no_overrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy or asleep fails no build."""
    monkeypatch.setattr("packer.host.watchdog.MAX_CPU_S", 0.1)
    assert watched(lambda: time.sleep(0.3) or "slept") == "slept"


def test_an_end_that_is_swallowed_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packer.host.watchdog.MAX_CPU_S", 0.1)
    swallowed = []

    def stubborn() -> None:
        while True:
            try:
                while True:
                    pass
            except BaseException as error:
                swallowed.append(error)
                if len(swallowed) == 3:
                    raise

    with pytest.raises(TemplateOverrunError):
        watched(stubborn)
    assert len(swallowed) == 3


def test_an_end_never_arrives_after_the_rendering(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renderings that end about when they are to be ended: each is whole or ended, and nothing is raised beside them."""
    monkeypatch.setattr("packer.host.watchdog.MAX_CPU_S", 0.002)
    monkeypatch.setattr("packer.host.watchdog.TICK_S", 0.0005)
    whole = ended = 0

    def work(milliseconds: int) -> None:
        until = time.thread_time() + milliseconds / 1000
        while time.thread_time() < until:
            pass

    lengths = itertools.cycle((0, 1, 2, 5, 20))
    until = time.monotonic() + 30
    while time.monotonic() < until and min(whole, ended) < 20:
        try:
            watched(functools.partial(work, next(lengths)))
            whole += 1
        except TemplateOverrunError:
            ended += 1
    assert whole > 0 and ended > 0


STUCK_TEMPLATE = """
import sys
from packer.host import watchdog
from packer.render.environment import ChatTemplate

watchdog.MAX_STUCK_S = 0.2
watchdog.limit_process()
ChatTemplate(sys.argv[1], date="2026-01-01", variables={}, max_bytes=2**24).render([])
"""


@pytest.mark.parametrize("name", STUCK)
def test_a_process_of_packers_own_is_ended_where_a_step_takes_for_ever(name: str) -> None:
    ended = run_forked(STUCK_TEMPLATE, STUCK[name])
    assert ended.returncode == -signal.SIGPROF, ended.stderr


def test_long_work_beside_renderings_ends_no_process() -> None:
    """The timer is for renderings: what else a process does may take as long as it likes."""
    source = STUCK_TEMPLATE.rpartition("\n")[0].replace("sys.argv[1]", "'{{ messages }}'")
    ended = run_forked(f"{source}\nsum(range(2 * 10**7))")
    assert ended.returncode == 0, ended.stderr


MEASURED = """
import json, re, sys
from pathlib import Path
from packer.host import watchdog
from packer.render.environment import ChatTemplate, RenderError

def mebibytes(name):
    return int(re.search(name + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024

watchdog.MAX_CPU_S = 0.5
watchdog.limit_process()
row = [{"role": "user", "content": "hello a b\\n" * 400}, {"role": "assistant", "content": "ho"}]
for source in json.loads(sys.argv[1]):
    Path("/proc/self/clear_refs").write_text("5")  # the most there was is what there is
    before = mebibytes("VmRSS")
    try:
        ChatTemplate(source, date="2026-01-01", variables={}, max_bytes=2**26).render(row)
        end = "written"
    except RenderError as error:
        end = "rejected: " + str(error)
    except watchdog.TemplateOverrunError as error:
        end = error.message
    print(json.dumps([source, end, mebibytes("VmHWM") - before]))
"""

MARGIN_MEBIBYTES = 64
"""Memory that was free before a rendering, and is no growth."""

PER_PROCESS = 8 if IS_DEEP else 3
"""Templates that grow, each to half a gibibyte or for half a second."""

# -- templates made by chance of what makes a text longer, each of another -------------------------------------------------

NUMBERS = st.sampled_from(["2", "77", "1000", "2**20", "10**9", "6*10**9", "10**12", "messages|length"])
TEXTS = st.sampled_from(
    ["'a'", "''", "'ab\\tc'", "'\\n'", "messages[0].content", "messages[1].content", "'é'*2**20", "'{0}{0}'*1000", "'%s'*1000"]
)  # fmt: skip
OF_LISTS = (
    "[$t]*3", "[$t]*2**20", "($t).split()", "($t|list)", "range(100000)|list", "messages", "([$t]*3|batch($n, $t)|list)",
    "(range(9)|slice($n, $t)|list)",
)  # fmt: skip
OF_TEXTS = (
    "($t).ljust($n)", "($t).rjust($n)", "($t).center($n)", "($t).zfill($n)", "($t).expandtabs($n)",
    "($t).replace($t, $t)", "($t).join($l)", "($l|join($t))", "'{:9999999999}'.format($t)", "'{:{}}'.format($t, $n)",
    "($t).format($t, $t)", "('%99d' % $n)", "('%*d' % ($n, 1))", "('%9999999999d' % $n)", "(($t) % ([$t]*1000))",
    "(($t) * ($n))", "(($t) ~ ($t))", "(($t) + ($t))", "($t|center($n))", "($t|indent($n))", "($t|wordwrap($n))",
    "($t|e|string)", "($t|urlencode)", "($t|replace($t, $t))", "($l|tojson(indent=$n))", "($l|tojson(indent=$t))",
    "($l|string)", "($l|pprint)", "($t).translate({97: $t})", "($t).encode().ljust($n).hex()",
    "((1).to_bytes($n, 'big')|string)", "([[1]]|sum(start=$l)|string)", "($t|format($t, $t))", "($t|truncate($n, false, $t))",
    "({'a': $t}|xmlattr)", "(($t)[:3] ~ ($t)[::-1])",
)  # fmt: skip
STEPS = (" ~ ns.x", ".replace('a', 'aa')", "|e", ".ljust(i*10**8)", "|list|string", "|urlencode")


def filled(form: str, **kinds: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """A form with other expressions in the places of $t, a text, $l, a list, and $n, a number."""
    parts = re.split(r"\$([tln])", form)
    return st.tuples(*(kinds[part] if number % 2 else st.just(part) for number, part in enumerate(parts))).map("".join)


def longer(texts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    lists = st.one_of(*(filled(form, t=texts, n=NUMBERS) for form in OF_LISTS))
    return st.one_of(*(filled(form, t=texts, n=NUMBERS, l=lists) for form in OF_TEXTS))


EXPRESSIONS = st.recursive(TEXTS, longer, max_leaves=5)
TEMPLATES = (
    "{{{{ ({})[:3] }}}}",
    "{{{{ ({})|length }}}}",
    "{{{{ {} }}}}",
    "{{% set x = {} %}}{{% for i in range(100000) %}}{{{{ x }}}}{{% endfor %}}",
    "{{% set x = {} %}}{{% set y %}}{{% for i in range(100000) %}}{{{{ x }}}}{{% endfor %}}{{% endset %}}{{{{ y[:3] }}}}",
)
LOOP = "{{% set ns = namespace(x={}) %}}{{% for i in range(60) %}}{{% set ns.x = ns.x{} %}}{{% endfor %}}{{{{ ns.x[:3] }}}}"

GROWING: st.SearchStrategy[str] = st.one_of(
    st.builds(str.format, st.sampled_from(TEMPLATES), EXPRESSIONS),
    st.builds(str.format, st.just(LOOP), EXPRESSIONS, st.sampled_from(STEPS)),
)

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no system limits the memory of a rendering")


def test_a_single_step_that_takes_too_long_is_noticed_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """No signal is handled meanwhile."""
    monkeypatch.setattr("packer.host.watchdog.MAX_CPU_S", 0.01)
    with pytest.raises(TemplateOverrunError, match="of processor time in one rendering"):
        watched(lambda: sum(range(3 * 10**6)))
    assert watched(lambda: sum(range(10))) == 45


@on_linux
def test_a_single_step_that_takes_gigabytes_ends_the_rendering_before_it_has_them() -> None:
    found = in_a_process(MEASURED, json.dumps(list(LARGE.values())))
    assert {end for _, end, _ in found} == {"the chat template takes more than 512 MiB of memory in one rendering"}
    assert max(most for _, _, most in found) < 512 + MARGIN_MEBIBYTES


@on_linux
@pytest.mark.slow  # templates that take it in a single step are tried above
@percent_of_examples(40)
@given(st.lists(GROWING, min_size=PER_PROCESS, max_size=PER_PROCESS))
def test_no_template_takes_more_memory_than_a_rendering_may(sources: list[str]) -> None:
    found = in_a_process(MEASURED, json.dumps(sources))
    assert [source for source, *_ in found] == sources
    assert [each for each in found if each[2] >= 512 + MARGIN_MEBIBYTES] == []


@on_linux
def test_the_limit_of_memory_holds_while_a_template_runs_and_in_processes_of_packers_own_alone() -> None:
    """An application's allocations are not packer's to limit, nor are those of packer beside a rendering."""
    found = in_a_process(
        """
import json, resource
from packer.host import watchdog

def soft():
    return resource.getrlimit(resource.RLIMIT_DATA)[0]

def overrun():
    raise MemoryError

before = soft()
print(json.dumps(watchdog.watched(soft) == before))
watchdog.limit_process()
print(json.dumps(watchdog.watched(soft) != before and soft() == before))
try:
    watchdog.watched(overrun)
except watchdog.TemplateOverrunError:
    print(json.dumps(soft() == before))
"""
    )
    assert found == [True, True, True]
