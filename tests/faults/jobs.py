"""A small job: two inputs, a tokenizer, a recipe; five document shards and more, five block shards and more."""

import hashlib
import json
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

from packer.pipeline.from_python import build
from packer.recipe.recipe import load_recipe
from packer.starter import write_starter

_WORDS = (
    *("the", "a", "river", "stone", "quick", "lamp", "seven", "under", "green", "winter", "paper", "so", "bright"),
    *("we", "go", "home", "and", "find", "it", "there"),
)

_RECIPE = """version: 1
sources: [{path: "chat.jsonl", split: train}, {path: "more.jsonl", split: eval}]
tokenizer: tokenizer
engine: reference
partition_bytes: 16KiB
pack: {block_len: 64}
shard_bytes: 3KiB
rows: {call_ids: as_given}
supervision: {on_prompt_mismatch: refuse}
"""
"""The last two keys are what builds find out by rendering the first rows of each input, a quarter of their time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A folder with everything a build needs."""

    folder: Path

    @property
    def recipe(self) -> Path:
        return self.folder / "recipe.yaml"

    @property
    def inputs(self) -> tuple[Path, Path]:
        return self.folder / "chat.jsonl", self.folder / "more.jsonl"

    def build(self, cache: Path, *overrides: str, **options: object) -> Path:
        """Build it here, and nothing goes wrong."""
        build(load_recipe(self.recipe, overrides), cache, **{"jobs": 1, "fail_above": 1.0} | options)  # type: ignore[arg-type]
        return cache

    def command(self, cache: Path, *more: str) -> list[str]:
        """What a person types; what lies in another folder and has changed is another input, which needs a word."""
        named = ["build", "-c", str(self.recipe), "-o", str(cache)]
        return [*named, "-j", "1", "-q", "--fail-above", "1", "--force", *more]

    def copy(self, folder: Path) -> "Job":
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return Job(folder=folder)

    def changed(self, folder: Path) -> "Job":
        """A copy whose inputs changed in the middle and grew at the end."""
        copied = self.copy(folder)
        for number, path in enumerate(copied.inputs):
            lines = path.read_bytes().splitlines(keepends=True)
            lines[len(lines) // 2] = row(900 + number)
            path.write_bytes(b"".join([*lines, row(990 + number), b"not json either\n"]))
        return copied


def write_job(folder: Path, *, num_rows: int = 40) -> Job:
    """Write the job; the same one every time. Some rows are rejected, and some documents are too long for a block."""
    folder.mkdir(parents=True, exist_ok=True)
    write_starter(folder / "starter")
    shutil.move(folder / "starter" / "tokenizer", folder / "tokenizer")
    shutil.rmtree(folder / "starter")
    for number, name in enumerate(("chat.jsonl", "more.jsonl")):
        rows = [row(1000 * number + i) for i in range(num_rows // (1 + number))]
        rows[3:3] = [b"not json\n", row(5, num_words=200)]
        (folder / name).write_bytes(b"".join(rows))
    (folder / "recipe.yaml").write_text(_RECIPE)
    return Job(folder=folder)


def row(seed: int, *, num_words: int = 12) -> bytes:
    """One line: a question and an answer of random words."""
    rng = random.Random(seed)
    question, answer = (" ".join(rng.choices(_WORDS, k=num_words)) for _ in range(2))
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return json.dumps({"messages": messages}).encode() + b"\n"


def contents(cache: Path) -> dict[str, str]:
    """Every file of a cache but the lock → sha256."""
    return {
        path.relative_to(cache).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(cache.rglob("*"))
        if path.is_file() and path.relative_to(cache).as_posix() != ".packer/lock"
    }
