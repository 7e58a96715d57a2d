"""A cache that somebody sent: whatever its manifest names, nothing outside of it is opened and nothing is asked for."""

import hashlib
import itertools
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from faults.amount import FULL
from faults.forging import put_at, texts_of, write_manifest
from faults.jobs import Job
from processes import HANG_S, in_a_process, start

from packer.pipeline.from_python import build
from packer.recipe.recipe import load_recipe

SECRET = "a line that must stay where it is"
NUM_ROWS = 40
COMMIT = "0123456789abcdef0123456789abcdef01234567"

WATCHED = """
import builtins, contextlib, io, json, os, sys, time
from pathlib import Path
import pyarrow as pa
from packer_cli.main import cli

pairs = list(zip(sys.argv[1::2], sys.argv[2::2]))  # a root, a cache
opened, imports, mapped = [], builtins.__import__, pa.memory_map

def watch(event, arguments):
    if event in ("open", "os.scandir", "os.listdir") and isinstance(arguments[0], (str, bytes)):
        opened.append(os.path.realpath(os.fsdecode(arguments[0])))
    elif event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen"):
        opened.append(event)
        raise ConnectionError("nothing is asked for here")

def memory_map(path, mode="r"):
    opened.append(os.path.realpath(os.fsdecode(path)))
    return mapped(path, mode)

def imported(name, *rest, **named):
    if name.partition(".")[0] == "obstore":
        opened.append("obstore")
        raise ImportError(name)
    return imports(name, *rest, **named)

def printed(*words):
    with contextlib.redirect_stdout(io.StringIO()) as shown, contextlib.redirect_stderr(shown):
        try:
            cli.main(words, prog_name="packer")
        except SystemExit as end:
            assert end.code in (0, 1, 2, 3, 5), f"{words}: exit {end.code}: {shown.getvalue()}"
    return shown.getvalue()

def commands(root, cache, page):
    yield "verify", cache, "--sources", root, "--reencode", "-j", "1"
    yield "check", cache, "--sources", root, "-j", "1"
    if Path(cache).name.startswith("named"):
        return  # by the user: it is about sources alone
    name = json.loads(Path(cache, "manifest.json").read_bytes())["inputs"][0]["path"]
    yield "verify", "--full", cache
    yield "stats", cache
    yield "inspect", cache
    yield "inspect", cache, "--row", f"{name}:0"
    yield "check", "--near", cache
    yield "report", cache, "-o", page
    yield "diff", cache, cache
    yield "export", cache, "--to", "datasets", "-o", page + ".data"

time.sleep = lambda _: None  # the Hub's client waits before it tries again
pa.memory_map, builtins.__import__ = memory_map, imported
root, cache = pairs[0]
printed("verify", cache, "--sources", root, "--reencode", "-j", "1")  # everything is imported and loaded once
sys.addaudithook(watch)
for root, cache in pairs:
    opened.clear()
    page = cache + ".html"
    shown = "".join(printed(*words) for words in commands(root, cache, page))
    shown += Path(page).read_text() if Path(page).exists() else ""
    print(json.dumps({"opened": sorted(set(opened)), "shown": shown}))
"""


@pytest.fixture
def project(tmp_path: Path, tiny_job: Job) -> Path:
    """A folder with all that a recipe can name, and a cache that was built from it."""
    folder = tmp_path / "project"
    folder.mkdir()
    rows = (json.dumps({"text": f"row {i} says something of its own"}) for i in range(NUM_ROWS))
    (folder / "rows.jsonl").write_text("\n".join(rows))
    (folder / "questions.jsonl").write_text(json.dumps({"question": "which of all these rows is asked for here?"}))
    shutil.copytree(tiny_job.folder / "tokenizer", folder / "tokenizer")
    (folder / "own.jinja").write_text("{% for message in messages %}{{ message.content }}{{ eos_token }}{% endfor %}")
    recipe = {
        "version": 1,
        "sources": [{"path": "rows.jsonl"}],
        "tokenizer": "tokenizer",
        "template": {"file": "own.jinja"},
        "decontaminate": {"against": [{"path": "questions.jsonl"}]},
    }
    (folder / "recipe.yaml").write_text(json.dumps(recipe))
    return folder


@pytest.fixture
def cache(project: Path, tmp_path: Path) -> Path:
    build(load_recipe(project / "recipe.yaml"), tmp_path / "cache", jobs=1)
    return tmp_path / "cache"


@pytest.fixture
def outside(tmp_path: Path, project: Path) -> Path:
    """What must not be opened: a file, a folder of files, and links to them from below the root that the user names."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.jsonl").write_text("\n".join([json.dumps({"text": SECRET})] * NUM_ROWS))
    shutil.copytree(project / "tokenizer", folder / "tokenizer")
    (project / "link.jsonl").symlink_to(folder / "secret.jsonl")
    (project / "folder").symlink_to(folder)
    return folder


def names(project: Path, outside: Path) -> list[str]:
    """Where a name may lead."""
    return [
        str(outside / "secret.jsonl"),
        f"{project}/../outside/secret.jsonl",
        os.path.relpath(outside / "secret.jsonl"),
        f"{project}/link.jsonl",
        f"{project}/folder/*.jsonl",
        f"{project}/folder/tokenizer",
        "/proc/self/environ",
        f"hf://datasets/some/one@{COMMIT}/secret.jsonl",
        f"some/one@{COMMIT}",
        "s3://somebody/secret.jsonl",
        "-",
    ]


INPUT = ("inputs", 0, "path")
NAMED = (
    INPUT,
    ("recipe", "sources", 0, "path"),
    ("recipe", "tokenizer"),
    ("recipe", "template", "file"),
    ("recipe", "decontaminate", "against", 0, "path"),
)


def forged(cache: Path, at: tuple[Any, ...], name: str, place: Path, outside: Path) -> Path:
    """A copy of a cache with another name in its manifest; of an input, with the size and the digest of what is there."""
    folder = Path(shutil.copytree(cache, place))
    manifest = json.loads((folder / "manifest.json").read_bytes())
    put_at(manifest, at, name)
    if at == INPUT:
        content = (outside / "secret.jsonl").read_bytes()
        manifest["inputs"][0] |= {"num_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    write_manifest(folder, manifest)
    return folder


def test_no_name_in_a_manifest_leads_out_of_the_cache(
    project: Path, cache: Path, outside: Path, tmp_path: Path, tally
) -> None:
    """Every text of the manifest, also those that name nothing today, is a name of something outside."""
    manifest = json.loads((cache / "manifest.json").read_bytes())
    every = [*texts_of(manifest)]
    assert {*NAMED} < {*every} and len(every) > 40
    ways = names(project, outside)
    pairs = [*itertools.product(every, ways)] if FULL else [*itertools.product(NAMED, ways)][::7]
    folders = [forged(cache, *pair, tmp_path / f"cache{i}", outside) for i, pair in enumerate(pairs)]
    looked = in_a_process(WATCHED, *itertools.chain(*((project, folder) for folder in folders)))
    held = 0
    for pair, folder, found in zip(pairs, folders, looked, strict=True):
        led = [path for path in found["opened"] if Path(path).is_relative_to(outside) or path.endswith("/environ")]
        led += [event for event in found["opened"] if not event.startswith("/")]
        assert not led, f"{pair} opened {led}"
        assert SECRET not in found["shown"], pair
        assert str(folder / "manifest.json") in found["opened"], "the watch sees what is opened"
        held += 1
    tally("names in a received cache", tried=len(pairs), held=held)


@pytest.mark.slow
def test_what_the_user_names_is_followed(
    project: Path, cache: Path, outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the watch sees it: with the same names as roots, files are opened and requests are sent."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.setenv(name, "0")
    leads = {
        str(outside / "secret.jsonl"): str(outside / "secret.jsonl"),
        "/proc/self/environ": "/proc/",
        f"hf://datasets/some/one@{COMMIT}/secret.jsonl": "socket.",
        "s3://somebody/secret.jsonl": "obstore",
    }
    folders = [forged(cache, INPUT, root, tmp_path / f"named{number}", outside) for number, root in enumerate(leads)]
    # Not a copy of this process, which may have used a bucket.
    process = start(WATCHED, *itertools.chain(*zip(leads, folders, strict=True)))
    told, _ = process.communicate(timeout=HANG_S)
    for (root, seen), line in zip(leads.items(), told.splitlines(), strict=True):
        opened = json.loads(line)["opened"]
        assert any(path.startswith(seen) for path in opened), (root, opened)
