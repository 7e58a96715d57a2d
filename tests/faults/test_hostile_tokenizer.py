"""Tokenizer folders made to hang, crash or mislead a build: refused by name, or what they ask for is not followed."""

import json
import shutil
import signal
import time
from pathlib import Path

from faults.amount import FULL
from faults.hostile_tokenizers import FOLDERS, NEUTRALISED, cut_by
from faults.jobs import Job
from faults.lab import Lab
from processes import run_forked

SMALL = [name for number, name in enumerate(FOLDERS) if number % 5 == 0 and "MB" not in name]
"""A fifth, and none that takes long to write."""


def test_a_hostile_tokenizer_folder_is_refused_by_name_or_neutralised(
    lab: Lab, tiny_job: Job, tmp_path: Path, tally
) -> None:
    names = FOLDERS if FULL else SMALL
    built: dict[str, str] = {}
    slowest = (0.0, "")
    for number, name in enumerate(names):
        folder, own = FOLDERS[name], tiny_job.copy(tmp_path / str(number))
        cache, tokenizer = own.folder / "cache", own.folder / "tokenizer"
        (own.folder / "text.jsonl").write_text('{"text": "the river"}\n')
        folder.change(tokenizer)
        words = own.command(cache, *(word.replace("TOKENIZER", str(tokenizer)) for word in folder.words))
        started = time.monotonic()
        done = lab.run(words, root=cache, as_owner=True, cwd=own.folder, limit_s=100)
        slowest = max(slowest, (round(time.monotonic() - started, 1), name))
        assert done.code == folder.code, (name, done.code, done.told)
        assert "Traceback" not in done.told and len(done.told) < 2500, (name, done.told)
        if folder.code:
            assert "error: " in done.told and folder.says in done.told, (name, done.told)
            assert not (cache / "manifest.json").exists(), name
        else:
            manifest = json.loads((cache / "manifest.json").read_bytes())
            rejected = [f"{code} {number}" for code, number in sorted(manifest["totals"]["rejected"].items())]
            assert ", ".join(rejected) == folder.says, name
            built[name] = manifest["content_fingerprint"]  # what it holds, whatever its files are called
        assert not (own.folder / "WAS_RUN").exists(), name
        shutil.rmtree(own.folder)
    neutral = [name for name in NEUTRALISED if name in built]
    assert neutral and all(built[name] == built["nothing changed"] for name in neutral)
    tally("hostile tokenizer folders", tried=len(names), held=len(names), note=f"slowest {slowest[0]} s: {slowest[1]}")


IMPATIENT = """
from packer.tokenize import reference_encoder
from packer_cli.main import main

reference_encoder._GRACE_S, reference_encoder._MIN_CHARACTERS_PER_S = 0.2, 10**7
main()
"""


def test_an_expression_that_only_a_long_text_makes_slow_ends_the_process(tiny_job: Job, tmp_path: Path) -> None:
    """Twice the spaces, four times the steps: those of this text would take minutes. Nothing may come of it but an error."""
    job = tiny_job.copy(tmp_path / "job")
    cut_by(r"\s+$")(job.folder / "tokenizer")
    (job.folder / "text.jsonl").write_text(json.dumps({"text": " " * 500_000 + "a"}) + "\n")
    words = job.command(tmp_path / "cache", "--set", f"sources=[{{path: {job.folder}/text.jsonl}}]")
    done = run_forked(IMPATIENT, *words)
    assert done.returncode == -signal.SIGPROF, done.stderr
    assert not (tmp_path / "cache" / "manifest.json").exists()
