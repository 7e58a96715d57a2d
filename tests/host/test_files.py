"""What is opened is a regular file, and opening never waits."""

import errno
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from packer.host.files import open_descriptor, open_regular, read_regular_bytes, regular_path
from packer_cli.main import cli


def bind(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(place))


SPECIAL: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a socket": bind,
    "a device": lambda place: place.symlink_to("/dev/zero"),
    "a file of the kernel": lambda place: place.symlink_to("/proc/self/environ"),
}


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("linked", [False, True])
def test_what_is_not_a_regular_file_is_refused_whatever_name_leads_to_it(
    kind: str, linked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "a file of the kernel" and not sys.platform.startswith("linux"):
        pytest.skip("no /proc")
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    SPECIAL[kind](Path("named"))
    Path("link").symlink_to("named")
    for opens in (open_regular, read_regular_bytes, regular_path, open_descriptor):
        with pytest.raises(OSError, match=f"it is {kind}, not a regular file") as refused:
            opens(Path("link" if linked else "named"))
        assert refused.value.errno == errno.ENXIO


def test_a_file_is_read_through_links_unless_they_are_ruled_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"bytes")
    (tmp_path / "empty").touch()
    (tmp_path / "link").symlink_to("file")
    assert read_regular_bytes(tmp_path / "link") == b"bytes" and read_regular_bytes(tmp_path / "empty") == b""
    with pytest.raises(OSError, match="symbolic link"):
        open_descriptor(tmp_path / "link", os.O_RDONLY | os.O_NOFOLLOW)
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")


def test_rows_from_a_command_are_told_to_be_piped_in(starter: Path, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    words = ["build", f"/dev/fd/{reading}", "--tokenizer", str(starter / "tokenizer"), "-o", str(tmp_path / "cache")]
    done = CliRunner().invoke(cli, words)
    os.close(reading)
    os.close(writing)
    assert done.exit_code == 3 and "packer build -" in done.output
