"""Links, pipes and devices in place of files and folders, and commands that meet them.

Run in a process of its own (:func:`run`), which a command that hangs in a library cannot take the tests with.
"""

import contextlib
import io
import json
import os
import shutil
import signal
import stat
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SECRET = "what only the canary says"
HANG_S = 60
"""Commands take some hundredths of a second; one that takes a minute waits for something."""


def _pipe(place: Path, outside: Path) -> None:
    os.mkfifo(place)


def _folder(place: Path, outside: Path) -> None:
    place.mkdir()
    (place / "file").write_text(SECRET)


def _link_to(name: str) -> Callable[[Path, Path], None]:
    return lambda place, outside: place.symlink_to(outside / name)


KINDS: dict[str, Callable[[Path, Path], None]] = {
    "link to a file": _link_to("canary"),
    "second name of a file": lambda place, outside: place.hardlink_to(outside / "canary"),
    "link to a folder": _link_to("folder"),
    "link to nothing": _link_to("absent"),
    "pipe": _pipe,
    "link to a pipe": _link_to("pipe"),
    "link to a device": _link_to("/dev/zero"),
    "link to a file of the kernel": _link_to("/proc/self/environ"),
    "folder": _folder,
}


def make_outside(folder: Path) -> Path:
    """What must stay as it is: a file, a pipe, and a folder with the names that a cache has."""
    for name in ("canary", "folder/lock", "folder/.packer/lock", "folder/new/file", "folder/old/file"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{SECRET}\n" * 50)
    (folder / "folder" / "train-00000-000000000000.arrow").write_text(SECRET)
    (folder / "folder" / ".tmp-packer-1-00000000").write_text(SECRET)
    os.mkfifo(folder / "pipe")
    return folder


def seen(folder: Path) -> dict[str, Any]:
    """Kind and bytes of everything in a folder."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        found[str(path.relative_to(folder))] = path.read_bytes() if stat.S_ISREG(mode) else stat.S_IFMT(mode)
    return found


@dataclass(frozen=True, kw_only=True)
class Case:
    """A command in a folder of its own; `{here}` in its words is that folder."""

    whole: str
    """Folder that is copied to `{here}/there`, where something is replaced."""

    place: str
    """What is replaced, relative to `there`; it may be new."""

    kind: str
    words: list[str]
    may_show: bool = False
    """Whether the command may show what it finds there, because the user named it."""

    exit_codes: list[int] = field(default_factory=lambda: [0, 1, 2, 3, 4, 5])


def run(cases: list[Case], outside: Path, work: Path) -> list[str]:
    """Try all cases in a copy of this process; return what went wrong."""
    from processes import in_a_process

    (work / "cases.json").write_text(json.dumps([asdict(case) for case in cases]))
    code = "import sys\nfrom faults.planted import try_all\ntry_all(*sys.argv[1:])"
    found = in_a_process(code, work / "cases.json", outside, work)
    assert [each["number"] for each in found] == list(range(len(cases))), "every case was tried"
    return [wrong for each in found for wrong in each["wrong"]]


def try_all(cases: str, outside: str, work: str) -> None:
    """Print, for each case in a file, what went wrong."""
    signal.signal(signal.SIGALRM, _hangs)
    for number, case in enumerate(json.loads(Path(cases).read_text())):
        print(json.dumps({"number": number, "wrong": _try(Case(**case), Path(outside), Path(work) / "here")}))


def _hangs(*_: object) -> None:
    raise TimeoutError("it waits for something")


def _try(case: Case, outside: Path, here: Path) -> list[str]:
    from packer_cli.main import cli

    shutil.copytree(case.whole, here / "there")
    place = here / "there" / case.place
    place.parent.mkdir(exist_ok=True)
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    KINDS[case.kind](place, outside)
    words = [word.replace("{here}", str(here)) for word in case.words]
    name = f"{case.kind} as {case.place}: packer {' '.join(case.words)}"
    print(name, file=sys.stderr)
    before, said, code = seen(outside), io.StringIO(), None
    signal.setitimer(signal.ITIMER_REAL, HANG_S)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            cli.main(words, prog_name="packer")
    except SystemExit as end:
        code = end.code
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    wrong = [] if code in case.exit_codes else [f"{name}: exit {code}: {said.getvalue()[-2000:]}"]
    if seen(outside) != before:
        wrong.append(f"{name}: something outside has changed")
        shutil.rmtree(outside)
        make_outside(outside)
    if SECRET in said.getvalue() and not case.may_show:
        wrong.append(f"{name}: shows {SECRET!r}")
    if case.kind != "folder" and [path for path in here.rglob(".tmp-packer-*") if path != place]:
        wrong.append(f"{name}: leaves temporary files")
    shutil.rmtree(here)
    return wrong
