"""An input changes while it is read: noticed, exit 3, and nothing of it is committed."""

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from faults.amount import FULL
from faults.jobs import Job, contents, row

from packer.errors import InputError
from packer.pipeline import run as building
from packer.pipeline.from_python import build
from packer.pipeline.stages import Stages
from packer.recipe.recipe import load_recipe


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(row(7777))


def rewrite(path: Path) -> None:
    """As many bytes and rows as before, and the time of the last change put back."""
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"river", b"rivet").replace(b"stone", b"stove"))
    assert path.stat().st_size == before.st_size


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def replace(path: Path) -> None:
    """As an editor does it: another file takes the name."""
    other = path.with_suffix(".new")
    other.write_bytes(path.read_bytes().replace(b"river", b"rivet"))
    other.replace(path)


def remove(path: Path) -> None:
    path.unlink()


class Moment:
    """Changes the first input at the `at`-th batch of rows, or behind the last one, before the blocks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None], path: Path, at: int) -> None:
        self.num_batches = 0
        self._change = change
        self._path = path
        self._at = at
        run, pack = Stages.run, building.pack_documents
        monkeypatch.setattr(Stages, "run", lambda stages, *batch: (self._batch(), run(stages, *batch))[1])
        monkeypatch.setattr(building, "pack_documents", lambda *a, **k: (self._packing(), pack(*a, **k))[1])

    @property
    def is_last(self) -> bool:
        return self._at >= self.num_batches

    def _batch(self) -> None:
        if self.num_batches == self._at:
            self._change(self._path)
        self.num_batches += 1

    def _packing(self) -> None:
        if self.is_last:
            self._change(self._path)


CHANGES = [append, rewrite, truncate, replace, remove]


@pytest.mark.parametrize(
    ("change", "rebuilding"),
    [*itertools.product(CHANGES, [False, True])] if FULL else [(append, False), (rewrite, True), (truncate, False)],
)
def test_an_input_that_changes_while_it_is_read_is_noticed(
    change: Callable[[Path], None],
    rebuilding: bool,
    job: Job,
    tiny_job: Job,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tally,
) -> None:
    """At every partition, and behind the last one."""
    tried = held = at = 0
    is_last, anew = False, dict[str, str]()
    while not is_last:
        shutil.rmtree(tmp_path / "job", ignore_errors=True)
        own = (job if FULL else tiny_job).copy(tmp_path / "job")
        cache = tmp_path / f"cache{tried}"
        if rebuilding:
            own.build(cache)
            with own.inputs[0].open("ab") as file:
                file.write(row(4242))
        before = contents(cache) if rebuilding else {}
        with monkeypatch.context() as patched:
            moment = Moment(patched, change, own.inputs[0], at)
            with pytest.raises(InputError) as caught:
                own.build(cache)
        is_last = moment.is_last
        assert caught.value.exit_code == 3
        assert str(own.inputs[0]) in caught.value.message
        after = contents(cache)
        held += {name: after.get(name) for name in before} == before and (rebuilding or "manifest.json" not in after)
        if change is not remove:
            own.build(cache)
            anew = anew or contents(own.build(tmp_path / "anew"))
            assert contents(cache) == anew
        tried += 1
        at += 1 if FULL else 8
    assert tried > 1
    tally(f"input: {change.__name__}, {'rebuild' if rebuilding else 'first build'}", tried=tried, held=held)


def test_an_input_that_is_only_touched_is_the_same(
    tiny_job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tiny_job.copy(tmp_path / "job")
    Moment(monkeypatch, lambda path: os.utime(path, (1, 1)), own.inputs[0], 0)
    assert build(load_recipe(own.recipe), tmp_path / "cache", jobs=1, fail_above=1).built
