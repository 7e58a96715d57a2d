"""What a disk may hold after the power went, worked out from the record of what was asked of it.

The model is the pessimistic one of ALICE (Pillai et al., OSDI 2014): nothing is on the disk but what was flushed. Data
of a file written after its last flush is there, missing, or there by half; entries of a folder made, moved or removed
after the folder's last flush are there or not, each for itself and in any order. A rename is atomic: where the new name
is there, the old one is gone. Files and folders are numbers, so that a name may outlive the record of its making.
"""

import base64
import hashlib
import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Entry = tuple[str, int | None]
"""A path and the file it stands for; None: it is gone."""

FOLDER = -1


@dataclass(kw_only=True)
class Disk:
    """The record, as far as it was played."""

    names: dict[str, int] = field(default_factory=dict)
    """Path → file, or :data:`FOLDER`, as a program sees it."""

    flushed_names: dict[str, int] = field(default_factory=dict)
    pending: dict[str, list[tuple[Entry, ...]]] = field(default_factory=dict)
    """Folder → changes of its entries since its last flush; those of one change come together."""

    data: dict[int, list[bytes]] = field(default_factory=dict)
    num_flushed: dict[int, int] = field(default_factory=dict)
    """Writes of a file that its last flush made safe."""

    @classmethod
    def holding(cls, folder: Path) -> "Disk":
        """A disk on which everything below a folder is safe."""
        disk = cls()
        for number, path in enumerate(sorted(folder.rglob("*")), 1):
            file = FOLDER if path.is_dir() else -1 - number
            disk.names[str(path)] = file
            if file != FOLDER:
                disk.data[file], disk.num_flushed[file] = [path.read_bytes()], 1
        disk.flushed_names = dict(disk.names)
        return disk

    def play(self, entry: list[Any]) -> None:
        """The next call of the record."""
        kind, *values = entry
        getattr(self, f"_{kind}")(*values)

    def _create(self, path: str, file: int) -> None:
        self.data[file], self.num_flushed[file] = [], 0
        self._change((path, file))

    def _mkdir(self, path: str) -> None:
        self._change((path, FOLDER))

    def _write(self, file: int, content: str) -> None:
        self.data[file].append(base64.b64decode(content))

    def _sync(self, file: int) -> None:
        self.num_flushed[file] = len(self.data[file])

    def _rename(self, old: str, new: str) -> None:
        if self.names.get(new) == self.names[old]:
            return  # onto another name of the same file: nothing happens
        self._change((new, self.names[old]), (old, None))

    def _link(self, old: str, new: str) -> None:
        self._change((new, self.names[old]))

    def _unlink(self, path: str) -> None:
        self._change((path, None))

    def _sync_folder(self, folder: str) -> None:
        for change in self.pending.pop(folder, []):
            _apply(self.flushed_names, change)

    def _change(self, *entries: Entry) -> None:
        _apply(self.names, entries)
        self.pending.setdefault(os.path.dirname(entries[0][0]), []).append(entries)  # noqa: PTH120 - text

    def after_a_power_cut(self, rng: random.Random) -> dict[str, bytes | None]:
        """One of the states the disk may be in: path → bytes, or None for a folder."""
        names = dict(self.flushed_names)
        likely = rng.choice((0.0, 0.5, 0.5, 1.0))
        changes = [change for folder in self.pending.values() for change in folder if rng.random() < likely]
        rng.shuffle(changes)
        for change in changes:
            _apply(names, change)
        kept = {file: self._survives(file, rng) for file in sorted(set(names.values()) - {FOLDER})}
        return {
            path: None if file == FOLDER else kept[file]
            for path, file in names.items()
            if _is_reachable(path, names, self.flushed_names | self.names)
        }

    def _survives(self, file: int, rng: random.Random) -> bytes:
        safe, later = self.data[file][: self.num_flushed[file]], self.data[file][self.num_flushed[file] :]
        content = b"".join(safe)
        for piece in later:
            fate = rng.choice(("kept", "dropped", "halved", "zeroed"))
            if fate == "dropped":
                break
            half = piece[: len(piece) // 2]
            content += {"kept": piece, "halved": half, "zeroed": half + bytes(len(piece) - len(half))}[fate]
            if fate != "kept":
                break
        return content


def _apply(names: dict[str, int], change: tuple[Entry, ...]) -> None:
    for path, file in change:
        if file is None:
            names.pop(path, None)
        else:
            names[path] = file


def _is_reachable(path: str, names: dict[str, int], known: dict[str, int]) -> bool:
    """What lies in a folder that is not there is lost with it."""
    return all(str(parent) in names for parent in Path(path).parents if str(parent) in known)


def write_state(state: dict[str, bytes | None], *, old: Path, new: Path, store: Path) -> None:
    """Make the files of a state that lay below `old` below `new`; equal bytes are one file, linked from `store`."""
    for path in sorted(state):
        target, content = new / Path(path).relative_to(old), state[path]
        if content is None:
            target.mkdir(parents=True, exist_ok=True)
            continue
        kept = store / hashlib.sha256(content).hexdigest()
        if not kept.exists():
            kept.write_bytes(content)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(kept, target)
