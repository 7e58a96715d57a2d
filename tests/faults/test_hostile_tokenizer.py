"""Tokenizer folders made to hang, crash or mislead a build: refused by name, or what they ask for is not followed."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from faults.amount import FULL
from faults.hostile_tokenizers import FOLDERS, NEUTRALISED, Folder, cut_by
from faults.jobs import Job

RUN = """
import json, os, signal, sys, time
import packer.pipeline, packer.store.rejected
from packer_cli.main import cli

for line in sys.stdin:
    name, words, told, place = json.loads(line)
    started = time.monotonic()
    child = os.fork()
    if not child:
        signal.alarm(100)
        os.chdir(place)
        output = os.open(told, os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1), os.dup2(output, 2)
        from faults.lab import obey_permissions
        obey_permissions()
        cli.main(words, prog_name="packer")
    _, status = os.waitpid(child, 0)
    print(json.dumps([name, os.waitstatus_to_exitcode(status), round(time.monotonic() - started, 1)]), flush=True)
"""

SMALL = [name for number, name in enumerate(FOLDERS) if number % 4 == 0 and "MB" not in name]
"""A quarter, and none that takes long to write."""


def run(folders: dict[str, Folder], job: Job, place: Path) -> dict[str, tuple[int, str, float, Path]]:
    """Name → exit code, what was told, seconds and cache of a build with each of the folders."""
    requests, found = [], {}
    for number, (name, folder) in enumerate(folders.items()):
        own = job.copy(place / str(number))
        (own.folder / "text.jsonl").write_text('{"text": "the river"}\n')
        folder.change(own.folder / "tokenizer")
        words = [word.replace("TOKENIZER", str(own.folder / "tokenizer")) for word in folder.words]
        requests.append([name, own.command(own.folder / "cache", *words), str(own.folder / "told"), str(own.folder)])
    tests = Path(__file__).resolve().parents[1]
    paths = os.pathsep.join([str(tests / "support"), str(tests), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input="".join(json.dumps(request) + "\n" for request in requests),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": paths, "TOKENIZERS_PARALLELISM": "false", "XDG_CACHE_HOME": str(place)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for line, request in zip(done.stdout.splitlines(), requests, strict=True):
        name, code, seconds = json.loads(line)
        folder = Path(request[3])
        found[name] = (code, (folder / "told").read_text(), seconds, folder / "cache")
        if (folder / "tokenizer").stat().st_mode & 0o777 == 0:
            (folder / "tokenizer").chmod(0o700)
    return found


def rejections(cache: Path) -> str:
    totals = json.loads((cache / "manifest.json").read_bytes())["totals"]
    return ", ".join(f"{code} {number}" for code, number in sorted(totals["rejected"].items()))


def held_documents(cache: Path) -> str:
    """What a cache holds, whatever its files are called."""
    fingerprint: str = json.loads((cache / "manifest.json").read_bytes())["content_fingerprint"]
    return fingerprint


def test_a_hostile_tokenizer_folder_is_refused_by_name_or_neutralised(tiny_job: Job, tmp_path: Path, tally) -> None:
    folders = FOLDERS if FULL else {name: FOLDERS[name] for name in SMALL}
    found = run(folders, tiny_job, tmp_path)
    held, slowest = 0, ("", 0.0)
    built: dict[str, str] = {}
    for name, folder in folders.items():
        code, told, seconds, cache = found[name]
        assert code == folder.code, (name, code, told)
        assert "Traceback" not in told, (name, told)
        if code:
            (error,) = re.findall(r"^error: .*", told, re.MULTILINE | re.DOTALL)
            assert folder.says in error and len(error) < 2500, (name, error)
            assert not (cache / "manifest.json").exists(), name
        else:
            assert rejections(cache) == folder.says, name
            built[name] = held_documents(cache)
        assert not (cache.parent / "WAS_RUN").exists(), name
        slowest = max(slowest, (name, seconds), key=lambda pair: pair[1])
        held += 1
        shutil.rmtree(cache.parent)
    neutral = [name for name in NEUTRALISED if name in built]
    assert neutral and all(built[name] == built["nothing changed"] for name in neutral)
    tally("hostile tokenizer folders", tried=len(folders), held=held, note=f"slowest {slowest[1]} s: {slowest[0]}")


IMPATIENT = """
import sys
from packer.tokenize import deadline
from packer_cli.main import cli

deadline.GRACE_S, deadline.MIN_CHARACTERS_PER_S = 1.0, 10**7
cli.main(sys.argv[1:], prog_name="packer")
"""


def test_an_expression_that_only_a_long_text_makes_slow_ends_the_build_by_name(tiny_job: Job, tmp_path: Path) -> None:
    """Twice the spaces, four times the steps: those of this text would take hours. Nothing may come of it but an error."""
    job = tiny_job.copy(tmp_path / "job")
    cut_by(r"\s+$")(job.folder / "tokenizer")
    (job.folder / "text.jsonl").write_text(json.dumps({"text": " " * 2_000_000 + "a"}) + "\n")
    words = job.command(tmp_path / "cache", "--set", f"sources=[{{path: {job.folder}/text.jsonl}}]")
    done = subprocess.run(
        [sys.executable, "-c", IMPATIENT, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
    )
    assert done.returncode == 3, done.stderr
    assert done.stderr.startswith("error: the tokenizer came to no end within 1 s with 1 texts of 20000")
    assert "hint: a regular expression in the pre_tokenizer or the normalizer" in done.stderr
    assert not (tmp_path / "cache" / "manifest.json").exists()
