"""A template can do nothing but write, and nothing without end: no file, no process, no import, no change of a row."""

import functools
import itertools
import json
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hostile_templates import ALL, OVERRUNS, TOLD, Hostile
from processes import HANG_S, in_a_process

from packer.rejections import CODES
from packer.render import ChatTemplate, bounds
from packer.render.watchdog import TemplateOverrunError, watched

MESSAGES = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
ROW = {"messages": MESSAGES, "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, date="2026-01-01", variables={"eos_token": "</s>"}, max_bytes=2**26)


def test_there_are_enough_and_each_has_a_name() -> None:
    assert len(ALL) >= 100
    assert len({each.name for each in ALL}) == len(ALL)


WATCHED = """
import copy, json, re, sys, threading
from pathlib import Path
import hostile_templates
from packer.render import ChatTemplate, RenderError, bounds

bounds.MAX_VALUES = int(sys.argv[2])

def most_mebibytes():
    # Not what getrusage says: that knows of the process this one was started from.
    status = Path("/proc/self/status")
    return int(re.search(r"VmHWM:\\s+(\\d+)", status.read_text())[1]) // 1024 if status.exists() else 0

def template(source):
    return ChatTemplate(source, date="2026-01-01", variables={"eos_token": "</s>"}, max_bytes=2**26)

plain = template("{{ messages }}")
events, main = [], threading.get_ident()

def hear(name, _):
    # Not the identity of a value, by which JSON that was written before is found again.
    if recording and name != "builtins.id" and threading.get_ident() == main:
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
    plain.render([])  # the watchdog runs from now on, if it did not
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


FEW_VALUES = pytest.mark.parametrize("max_values", [2**15, pytest.param(bounds.MAX_VALUES, marks=pytest.mark.slow)])
"""A value that holds so many others is too large: making one of millions takes a second."""


@functools.cache
def ends(max_values: int) -> dict[str, Ended]:
    """Every hostile template rendered, in one process that listens; the last is what the hook hears of a file."""
    found = in_a_process(WATCHED, json.dumps(ROW), max_values)
    names = [*(each.name for each in ALL), "a file"]
    fields = ("code", "told", "row", "events", "most_mebibytes")
    return {name: Ended(**dict(zip(fields, each, strict=True))) for name, each in zip(names, found, strict=True)}


@FEW_VALUES
def test_hostile_templates_are_harmless_or_refused_with_their_reasons(max_values: int) -> None:
    found = ends(max_values)
    assert [name for name, end in found.items() if end.row != ROW] == [], "a row is as it was before"
    assert {each.name: found[each.name] for each in ALL if not is_as_told(found[each.name], each)} == {}


def is_as_told(end: Ended, hostile: Hostile) -> bool:
    if hostile.text is not None:
        return (end.code, end.told) == ("", hostile.text)
    # A reason is written to rejected.jsonl, the same every time: it holds no address.
    same_every_time = re.search("0x[0-9a-f]{6}", end.told) is None
    return end.code == hostile.code and end.code in CODES and hostile.reason in end.told and same_every_time


@FEW_VALUES
def test_no_hostile_template_touches_the_host(max_values: int) -> None:
    """Python tells of every file, process, socket, import and look into a function: there is none of them."""
    found = dict(ends(max_values))
    assert found.pop("a file").events == ["open"]
    rendered = {name: end.events for name, end in found.items() if end.events is not None}
    assert len(rendered) > 0.8 * len(ALL)
    assert {name: events for name, events in rendered.items() if events} == {}
    assert max(end.most_mebibytes for end in found.values()) < 1024


@pytest.mark.parametrize("name", OVERRUNS)
def test_what_only_goes_on_for_too_long_is_no_rejection(name: str) -> None:
    with pytest.raises(TemplateOverrunError, match=TOLD[name]) as raised:
        template(OVERRUNS[name]).render(MESSAGES)
    assert raised.value.exit_code == 2
    assert template("{{ messages[0].content }}").render(MESSAGES) == "hi", "the thread goes on as before"


def test_a_thread_of_an_application_is_watched_too_and_its_signals_are_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import signal

    from packer.render import watchdog

    monkeypatch.setattr(watchdog, "MAX_CPU_S", 0.3)
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    ends: list[BaseException] = []

    def render() -> None:
        try:
            template(OVERRUNS["nested ranges"]).render(MESSAGES)
        except TemplateOverrunError as error:
            ends.append(error)

    thread = threading.Thread(target=render)
    thread.start()
    thread.join(HANG_S)
    assert len(ends) == 1
    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == handlers


def test_waiting_takes_no_processor_time_and_is_no_overrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy or asleep fails no build."""
    import time

    from packer.render import watchdog

    monkeypatch.setattr(watchdog, "MAX_CPU_S", 0.3)
    assert watched(lambda: time.sleep(1) or "slept") == "slept"

    def work() -> None:
        while True:
            pass

    with pytest.raises(TemplateOverrunError):
        watched(work)


def test_an_end_that_is_swallowed_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from packer.render import watchdog

    monkeypatch.setattr(watchdog, "MAX_CPU_S", 0.1)
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
    import time

    from packer.render import watchdog

    monkeypatch.setattr(watchdog, "MAX_CPU_S", 0.0)
    monkeypatch.setattr(watchdog, "TICK_S", 0.0005)
    whole = ended = 0

    def work(milliseconds: int) -> None:
        until = time.thread_time() + milliseconds / 1000
        while time.thread_time() < until:
            pass

    lengths = itertools.cycle((0, 1, 2, 5, 20))
    until = time.monotonic() + 30
    while time.monotonic() < until and min(whole, ended) < 50:
        try:
            watched(functools.partial(work, next(lengths)))
            whole += 1
        except TemplateOverrunError:
            ended += 1
    assert whole > 0 and ended > 0


ARGUMENTS = ("", "10**9", "big", "big, big", "10**9, 'x'", "['x'] * 100000", "big, 10**9", "'', big", "-(10**9)")
"""What would make a filter or a method large, if anything does."""

VALUES = {
    str: ("'ab' * 4000000", "'a\\n' * 400000", "('<a ' * 400000)|safe"),
    list: ("[1, 2] * 200000", "[['x'] * 1000] * 300"),
    dict: ("dict.fromkeys(range(100000), 'x')",),
    int: ("10**4000",),
    float: ("1.5",),
    tuple: ("(1, 2) * 200000",),
    range: ("range(100000)",),
    bytes: ("('ab' * 4000000).encode()",),
}

SWEEP = """
import json, sys, time
from packer.render import ChatTemplate, RenderError
from packer.render import watchdog
from packer.render.watchdog import TemplateOverrunError

watchdog.MAX_CPU_S = 0.3
for source in json.load(open(sys.argv[1])):
    before = time.process_time()
    try:
        ChatTemplate(source, date="2026-01-01", variables={}, max_bytes=2**24).render([{"role": "user"}])
        ended = "rendered"
    except RenderError as error:
        ended = error.code
    except TemplateOverrunError as error:
        ended = error.code
    print(json.dumps([source, ended, time.process_time() - before]))
"""


def steps() -> list[str]:
    """Templates of one step each: every filter and method a template can name, with every argument."""
    from packer.render.sandbox import environment_of

    filters = [name for name in environment_of("2026-01-01", 2**24).filters if name.isidentifier()]
    return [
        f"{{% set big = {value} %}}{{{{ big{use}({arguments}) }}}}"
        for kind, values in VALUES.items()
        for value in values
        for use in (*(f"|{name}" for name in filters), *(f".{name}" for name in dir(kind) if name[0] != "_"))
        for arguments in ARGUMENTS
    ]


@pytest.mark.parametrize("part", [311, pytest.param(4, marks=pytest.mark.slow)])
def test_every_step_that_a_template_can_take_can_be_ended(part: int, tmp_path: Path) -> None:
    """What goes on is ended soon after the limit (here 0.3 s), as each step is short; a long one would let nobody end it.

    In `make deep` every filter and method of every value is tried, with two or three of the nine arguments.
    """
    sources = steps()[::part]
    place = tmp_path / "sources.json"
    place.write_text(json.dumps(sources))
    ends = in_a_process(SWEEP, place, timeout=HANG_S + 2 * len(sources))
    assert [source for source, _, _ in ends] == sources and len(sources) >= 6000 // part
    assert {ended for _, ended, _ in ends} <= {"rendered", "template_error", "render_too_large", "template_overrun"}
    assert [source for source, _, cpu_s in ends if cpu_s > 4] == []
