"""Every call through which packer's store touches the disk, in one list: recorded, refused, or the last one.

Only what lies below one folder counts, so that a build is watched and the interpreter is not. Files being written go
through :class:`_Raw` in place of the C file object, so that every `write` is seen; `fsync` is recorded and not done,
since what would survive a power cut is worked out from the record.

On the record, a file is a number given at its creation, so that renames and links can be replayed:

    ["create", path, file]  ["write", file, bytes]  ["sync", file]  ["mkdir", path]  ["sync_folder", path]
    ["rename", old, new]    ["link", old, new]      ["unlink", path]
"""

import base64
import builtins
import fcntl
import io
import os
import signal
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

READING = ("stat", "open_read", "listdir", "scandir", "map", "read", "pread")
SPENDING = ("open_write", "write", "fsync", "mkdir", "rename", "link", "pwrite", "truncate", "close_write")
REMOVING = ("unlink",)
OTHER = ("open_folder", "fsync_folder", "lock")
CHANGING = (*SPENDING, *REMOVING, "fsync_folder")
CALLS = (*READING, *SPENDING, *REMOVING, *OTHER)
"""Everything that can fail, by name."""


@dataclass(kw_only=True)
class Fault:
    """What goes wrong, and when: at the `at`-th (from 0) of the calls named."""

    calls: tuple[str, ...]
    at: int
    code: int = 0
    """errno; 0: the process is killed after the call, -1: a write takes half of its bytes."""

    lasting: bool = False
    """Every later one of these calls fails as well, as on a full disk."""


@dataclass(kw_only=True)
class Storage:
    """The watcher of one folder."""

    root: str
    fault: Fault | None = None
    trace: list[list[Any]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    num_hit: int = 0
    _seen: int = 0
    _paths: dict[int, str] = field(default_factory=dict)
    _files: dict[int, int] = field(default_factory=dict)
    _num_files: int = 0

    def install(self) -> None:
        """Put the watched calls in place; there is no way back, a process has one build."""
        self._os = {name: getattr(os, name) for name in _OS}
        for name in _OS:
            setattr(os, name, partial(self._plain, name, _PLAIN[name]) if name in _PLAIN else getattr(self, f"_{name}"))
        self._io_open, self._fdopen = io.open, os.fdopen
        io.open = builtins.open = self._open_file  # type: ignore[assignment]
        os.fdopen = self._open_descriptor  # type: ignore[assignment]
        self._flock_done, self._map = fcntl.flock, pa.memory_map
        fcntl.flock = self._flock
        pa.memory_map = self._memory_map

    def _inside(self, path: Any) -> str | None:
        """The path as text where it is watched."""
        if isinstance(path, int):
            return self._paths.get(path)
        try:
            text = os.path.abspath(os.fspath(path))  # noqa: PTH100 - pathlib is watched
        except TypeError:
            return None
        text = text.decode() if isinstance(text, bytes) else text
        return text if text == self.root or text.startswith(f"{self.root}/") else None

    def _at(self, path: Any, folder: int | None) -> str | None:
        """The path as text, seen from a folder that is open, where it is watched."""
        if folder is None:
            return self._inside(path)
        return f"{self._paths[folder]}/{os.fspath(path)}" if folder in self._paths else None

    def _call(self, name: str, path: str | None, do: Callable[[], Any]) -> Any:
        if path is None:
            return do()
        self.counts[name] = self.counts.get(name, 0) + 1
        fault = self.fault
        if fault is None or name not in fault.calls:
            return do()
        number, self._seen = self._seen, self._seen + 1
        if number != fault.at and not (fault.lasting and number > fault.at):
            return do()
        self.num_hit += 1
        if fault.code > 0:
            raise OSError(fault.code, os.strerror(fault.code), path)
        try:
            return do()
        finally:  # also where the call fails, as to make a folder that exists does
            if fault.code == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def _record(self, *entry: Any) -> None:
        self.trace.append(list(entry))

    # What is watched, one method a call, named as in `os`.

    def _open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        inside = self._at(path, dir_fd)
        name = "open_folder" if flags & os.O_DIRECTORY else "open_write" if flags & os.O_ACCMODE else "open_read"
        is_new = inside is not None and flags & os.O_CREAT and not os.path.lexists(inside)
        descriptor: int = self._call(name, inside, lambda: self._os["open"](path, flags, mode, dir_fd=dir_fd))
        if inside is not None:
            self._paths[descriptor] = inside
            if is_new:
                self._files[descriptor] = self._num_files
                self._record("create", inside, self._num_files)
                self._num_files += 1
        return descriptor

    def _close(self, descriptor: int) -> None:
        path = self._paths.pop(descriptor, None)
        name = "close_write" if self._files.pop(descriptor, None) is not None else "close"
        if path is None or name == "close":
            return self._os["close"](descriptor)
        try:
            return self._call(name, path, lambda: None)
        finally:
            self._os["close"](descriptor)

    def _fsync(self, descriptor: int) -> None:
        path = self._paths.get(descriptor)
        if path is None:
            return self._os["fsync"](descriptor)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            self._call("fsync_folder", path, lambda: self._record("sync_folder", path))
        else:
            file = self._files.get(descriptor)
            self._call("fsync", path, lambda: self._record("sync", file))
        return None

    def _replace(self, old: Any, new: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
        def do() -> None:
            self._os["replace"](old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            self._record("rename", self._at(old, src_dir_fd), self._at(new, dst_dir_fd))

        self._call("rename", self._at(new, dst_dir_fd), do)

    def _link(self, old: Any, new: Any, *, dst_dir_fd: int | None = None, **options: Any) -> None:
        def do() -> None:
            self._os["link"](old, new, dst_dir_fd=dst_dir_fd, **options)
            self._record("link", self._inside(old), self._at(new, dst_dir_fd))

        self._call("link", self._at(new, dst_dir_fd), do)

    def _unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        self._recorded("unlink", path, dir_fd=dir_fd)

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        self._recorded("mkdir", path, mode, dir_fd=dir_fd)

    def _recorded(self, name: str, path: Any, *more: Any, dir_fd: int | None) -> None:
        def do() -> None:
            self._os[name](path, *more, dir_fd=dir_fd)
            if inside:
                self._record(name, inside)

        inside = self._at(path, dir_fd)
        self._call(name, inside, do)

    def _stat(self, path: Any, *, dir_fd: int | None = None, **options: Any) -> os.stat_result:
        inside = None if isinstance(path, int) else self._at(path, dir_fd)
        found: os.stat_result = self._call("stat", inside, lambda: self._os["stat"](path, dir_fd=dir_fd, **options))
        return found

    def _plain(self, name: str, call: str, target: Any = ".", *more: Any) -> Any:
        """A call that leaves nothing on the record, of a path or a descriptor."""
        return self._call(call, self._inside(target), lambda: self._os[name](target, *more))

    def _flock(self, descriptor: Any, operation: int) -> None:
        self._call("lock", self._inside(descriptor), lambda: self._flock_done(descriptor, operation))

    def _memory_map(self, path: Any, mode: str = "r") -> Any:
        return self._call("map", self._inside(path), lambda: self._map(path, mode))

    def _open_file(self, file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        inside = None if isinstance(file, int) else self._inside(file)
        if inside is None:
            return self._io_open(file, mode, *arguments, **options)
        assert set(mode) <= set("rbt"), f"{file}: packer writes through descriptors"
        return self._call("open_read", inside, lambda: self._io_open(file, mode, *arguments, **options))

    def _open_descriptor(self, descriptor: int, *arguments: Any, buffering: int = -1, **options: Any) -> Any:
        if descriptor in self._files:
            return io.BufferedWriter(_Raw(self, descriptor), buffering)
        return self._fdopen(descriptor, *arguments, buffering=buffering, **options)


_PLAIN = {"listdir": "listdir", "scandir": "scandir", "ftruncate": "truncate", "pwrite": "pwrite", "pread": "pread"}
"""What it is counted as."""

_OS = ("open", "close", "fsync", "replace", "link", "unlink", "mkdir", "stat", *_PLAIN)


class _Raw(io.RawIOBase):
    """A file being written, unbuffered."""

    def __init__(self, storage: Storage, descriptor: int) -> None:
        super().__init__()
        self._storage = storage
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write(self, data: Any) -> int:
        storage, content = self._storage, bytes(data)
        fault = storage.fault
        half = fault is not None and fault.code == -1 and "write" in fault.calls and storage._seen == fault.at
        wanted = content[: max(1, len(content) // 2)] if half else content
        file = storage._files[self._descriptor]

        def do() -> int:
            done = os.write(self._descriptor, wanted)
            storage._record("write", file, base64.b64encode(wanted[:done]).decode())
            return done

        done: int = storage._call("write", storage._paths[self._descriptor], do)
        return done

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._descriptor)
