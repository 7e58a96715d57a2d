"""The power goes: whatever the disk kept of what was not flushed, there is the old cache or the new one, never a mix."""

import hashlib
import random
import shutil
from pathlib import Path

import pytest
from faults.amount import amount
from faults.disk import Disk, write_state
from faults.jobs import Job, contents
from faults.lab import Lab

from packer.audit.verify import verify
from packer.errors import InputError
from packer.store.cache import Cache
from packer.store.manifest import read_manifest
from packer.store.row_tables import read_rejected


def states(start: Path, trace: list[list], rng: random.Random, num_states: int):
    """Moment and state: at every call of the record about as many states, more towards the commit."""
    moments = sorted(rng.choices(range(len(trace) + 1), k=num_states // 2))
    last = max(0, len(trace) - 40)
    moments += sorted(rng.choices(range(last, len(trace) + 1), k=num_states - len(moments) - 3))
    moments += [len(trace)] * 3  # the build said that it was done
    for moment in moments:
        disk = Disk.holding(start)
        for entry in trace[:moment]:
            disk.play(entry)
        yield moment, disk.after_a_power_cut(rng)


def sha256_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("kind", ["first build", "rebuild"])
def test_after_a_power_cut_there_is_the_old_cache_or_the_new_one(
    kind: str, lab: Lab, tiny_job: Job, tiny_changed: Job, tmp_path: Path, tally
) -> None:
    root, store, start = tmp_path / "disk", tmp_path / "store", tmp_path / "start"
    root.mkdir()
    store.mkdir()
    job = tiny_job if kind == "first build" else tiny_changed
    words = job.command(root / "cache")
    if kind != "first build":
        tiny_job.build(root / "cache")
    shutil.copytree(root, start)
    old = sha256_of((root / "cache" / "manifest.json").read_bytes()) if kind != "first build" else None
    outcome = lab.run(words, root=root, trace=True)
    assert outcome.code == 0, outcome.told
    whole = contents(root / "cache")
    new = whole["manifest.json"]
    trace = [
        entry
        if entry[0] == "write"
        else [value.replace(str(root), str(start)) if isinstance(value, str) else value for value in entry]
        for entry in outcome.trace
    ]
    rng = random.Random(kind)
    num_states, held, seen, found_old, found_new = amount(small=16, full=1000), 0, set(), 0, 0
    for number, (moment, state) in enumerate(states(start, trace, rng, num_states)):
        folder = tmp_path / "state"
        folder.mkdir()
        write_state(state, old=start, new=folder, store=store)
        content = state.get(str(start / "cache" / "manifest.json"))
        found = None if content is None else sha256_of(content)
        assert found in (old, new), f"call {moment}: neither the old manifest nor the new one"
        assert moment < len(trace) or found == new, "a build that reported success has succeeded"
        if found is None:
            with pytest.raises(InputError, match="not a cache"):
                Cache.open(folder / "cache")
        else:
            assert verify(folder / "cache", threads=1).findings == (), f"call {moment}"
            assert len(list(read_rejected(folder / "cache", read_manifest(folder / "cache")))) > 0
        found_old += found == old
        found_new += found == new
        seen.add(tuple(sorted((path, content) for path, content in state.items() if content is not None)))
        if number % amount(small=12, full=8) == 0:
            again = [word.replace(str(root), str(folder)) for word in words]
            finished = lab.run(again, root=folder)
            assert finished.code == 0, finished.told
            assert contents(folder / "cache") == whole
        held += 1
        shutil.rmtree(folder)
    assert found_old and found_new
    note = f"{len(seen)} different; {found_old} held the old, {found_new} the new"
    tally(f"power loss, {kind}", tried=num_states, held=held, note=note)
