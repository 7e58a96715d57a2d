"""Folders that somebody sent: what is hidden in them makes packer neither ask a bucket nor touch anything else.

They have what a copy of a cache in a bucket has, in the forms of all versions, and are read and built in by everything
that takes the folder of a cache.
"""

import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from bucket_objects import put
from click.testing import CliRunner
from faults.planted import seen
from single_documents import read_document

from packer.errors import PackerError
from packer.names import shown
from packer.store import bucket as buckets
from packer.store.bucket import Bucket
from packer.store.cache import Cache
from packer.store.manifest import MANIFEST_NAME
from packer.store.place import build_place, make_mirror, own_folder
from packer_cli.main import cli

pytest.importorskip("obstore", reason="OBSTORE MISSING: tests/requirements.txt")
STRANGER = "s3://stranger/bucket"


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """What any process of the test asks of a store; there is nothing in it."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            asked.append(f"{self.command} {self.path}")
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    for method in ("GET", "PUT", "HEAD", "POST", "DELETE"):
        setattr(Handler, f"do_{method}", Handler.answer)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_address[1]}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
            monkeypatch.setenv(name, "us-east-1")
        monkeypatch.setenv("PACKER_CACHE_DIR", str(tmp_path / "kept"))
        buckets._opened.cache_clear()
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield asked
        server.shutdown()
        thread.join()
    buckets._opened.cache_clear()


def forge(folder: Path) -> None:
    """Hide in a folder what every version of packer ever kept in a copy of a cache in a bucket."""
    (folder / ".mirror").mkdir()
    (folder / ".mirror" / "origin").write_text(f'{{"url":"{STRANGER}","most_bytes":1}}')


@pytest.fixture
def received(starter_cache: Path, tmp_path: Path) -> Path:
    folder = Path(shutil.copytree(starter_cache, tmp_path / "received"))
    forge(folder)
    return folder


READ = [
    ["verify"],
    ["verify", "--full"],
    ["verify", "--full", "-j", "2"],
    ["stats"],
    ["inspect"],
    ["check"],
    ["report", "-o", "out.html"],
    ["export", "-o", "out", "--to", "datasets"],
]


@pytest.mark.parametrize(
    ("command", "is_whole"), [*((each, True) for each in READ), (READ[2], False), (READ[4], False)]
)
def test_reading_a_received_folder_sends_no_request_and_changes_nothing(
    command: list[str], is_whole: bool, received: Path, requests: list[str], tmp_path: Path, monkeypatch
) -> None:
    """Also of what it lacks, which of a copy would be fetched."""
    if not is_whole:
        for path in received.glob("[bd]*/*.arrow"):
            path.unlink()
    monkeypatch.chdir(tmp_path)
    before = seen(received)
    done = CliRunner().invoke(cli, [command[0], "received", *command[1:]])
    assert done.exit_code == (0 if is_whole else 1), done.output
    assert seen(received) == before
    assert {path.name for path in tmp_path.iterdir()} <= {"received", "out", "out.html"}
    assert not requests


WRITTEN = [
    ["build", "-c", "RECIPE", "-o", "received", "--block-len", "64", "--fail-above", "1", "--force", "-j", "1"],
    ["build", "-c", "RECIPE", "-o", "received", "--block-len", "64", "--fail-above", "1", "--force", "-j", "2"],
    ["build", "-c", "RECIPE", "-o", "received"],
    ["build", "-c", "RECIPE", "-o", "received", "--repair"],
    ["build", "-c", "RECIPE", "-o", "received", "--block-len", "64", "--fail-above", "1", "--force", "--dry-run"],
]


@pytest.mark.parametrize("command", WRITTEN, ids=" ".join)
def test_building_in_a_received_folder_uploads_nothing(
    command: list[str], received: Path, requests: list[str], starter: Path, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, [str(starter / "recipe.yaml") if word == "RECIPE" else word for word in command])
    assert done.exit_code == 0, done.output
    assert str(received.name) in done.output and "stranger" not in done.output
    assert {path.name for path in tmp_path.iterdir()} <= {"received", "kept"}
    assert not list((tmp_path / "kept").rglob("*stranger*")), "nothing is built for the bucket"
    assert not requests


def _read(folder: Path) -> object:
    from packer.load import PackedLoader

    with PackedLoader(folder, rank=0, world_size=1) as loader:
        return [step.block_ids.tolist() for step in loader]


def _read_pickled(folder: Path) -> object:
    cache = pickle.loads(pickle.dumps(Cache.open(folder)))
    documents = pickle.loads(pickle.dumps(cache.documents("train")))
    return cache.blocks("train").read([0]), read_document(documents, 0)


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("read", [_read, _read_pickled])
def test_a_received_folder_is_read_in_python_without_a_request(
    read: Callable[[Path], object], is_whole: bool, received: Path, requests: list[str]
) -> None:
    pytest.importorskip("torch", reason="TORCH MISSING: the reader is not tested")
    before = seen(received)
    assert read(received)
    assert seen(received) == before
    if not is_whole:
        for path in received.glob("[bd]*/*.arrow"):
            path.unlink()
        with pytest.raises(PackerError, match="is missing"):
            read(received)
    assert not requests


def test_a_folder_of_other_files_is_no_cache_whatever_is_hidden_in_it(
    requests: list[str], starter: Path, tmp_path: Path
) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("text")
    forge(tmp_path / "thesis")
    done = CliRunner().invoke(cli, ["build", "-c", str(starter / "recipe.yaml"), "-o", str(tmp_path / "thesis")])
    assert done.exit_code == 2 and "contains other files and is not a cache" in done.output
    assert not requests


def test_a_copy_of_a_copy_is_a_folder_of_its_own(in_memory: Bucket, starter_cache: Path, tmp_path: Path) -> None:
    """With what was fetched, and without what was not; in this process, which knows the bucket, as in others."""
    put(in_memory, starter_cache)
    with Cache.open(in_memory.url) as cache:
        cache.blocks("train").read([0])
        copy = Path(shutil.copytree(cache.folder, tmp_path / "copy"))
        read_document(cache.documents("train"), 0)
    with Cache.open(cache.folder) as again:
        assert read_document(again.documents("train"), 0), "the copy itself is the bucket's"
    assert (shown(cache.folder), shown(copy)) == (in_memory.url, str(copy))
    with pytest.raises(PackerError, match="is missing"):
        Cache.open(copy)
    code = "import sys; from packer.names import shown; from pathlib import Path; print(shown(Path(sys.argv[1])))"
    done = subprocess.run([sys.executable, "-c", code, cache.folder], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(cache.folder), "a process that was told no URL knows none"


def test_a_copy_of_an_earlier_version_goes_on_with_the_url_that_is_given(
    in_memory: Bucket, starter_cache: Path, tmp_path: Path
) -> None:
    put(in_memory, starter_cache)
    with Cache.open(in_memory.url, cache_dir=tmp_path / "kept") as cache:
        cache.blocks("train").read([0])
        fetched = {path: path.stat().st_ino for path in cache.folder.rglob("*.arrow")}
    shutil.rmtree(cache.folder / ".mirror")
    forge(cache.folder)
    with Cache.open(in_memory.url, cache_dir=tmp_path / "kept") as cache:
        cache.blocks("train").read([0])
        assert shown(cache.folder) == in_memory.url
        assert {path: path.stat().st_ino for path in cache.folder.rglob("*.arrow")} == fetched != {}


def test_a_forged_manifest_in_a_folder_for_copies_is_fetched_again(
    in_memory: Bucket, starter_cache: Path, tmp_path: Path
) -> None:
    put(in_memory, starter_cache)
    folder = own_folder(in_memory.url, "caches", tmp_path / "sent")
    folder.mkdir(parents=True)
    (folder / MANIFEST_NAME).write_text("{}")
    with Cache.open(in_memory.url, cache_dir=tmp_path / "sent") as cache:
        assert (cache.folder, cache.fingerprint) == (folder, Cache.open(starter_cache).fingerprint)


def test_of_shards_that_are_links_the_links_are_removed_alone(
    in_memory: Bucket, starter_cache: Path, tmp_path: Path
) -> None:
    put(in_memory, starter_cache)
    names = list(in_memory.sizes("blocks"))
    own = tmp_path / "own.arrow"
    own.write_bytes((starter_cache / names[0]).read_bytes())
    before = own.stat()
    folder = own_folder(in_memory.url, "caches", tmp_path / "sent")
    (folder / "blocks").mkdir(parents=True)
    (folder / names[0]).symlink_to(own)
    make_mirror(folder, in_memory.url).remove_copies(but=())
    assert not (folder / names[0]).is_symlink()
    assert (own.stat().st_mtime_ns, own.stat().st_size) == (before.st_mtime_ns, before.st_size)


def test_a_home_that_cannot_be_written_is_no_obstacle(
    in_memory: Bucket, starter_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PACKER_CACHE_DIR")
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, "/proc/none")
    put(in_memory, starter_cache)
    with Cache.open(in_memory.url, cache_dir=tmp_path / "kept") as cache:
        assert cache.blocks("train").read([0])


def test_the_folder_of_a_bucket_is_built_as_the_bucket_by_the_process_that_opened_it(in_memory: Bucket) -> None:
    folder = build_place(in_memory.url)
    assert build_place(folder) == folder and shown(folder) == in_memory.url
