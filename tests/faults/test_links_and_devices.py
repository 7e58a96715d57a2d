"""Links, pipes and devices in place of every file that a command meets: nothing outside changes, and nothing hangs."""

import random
import shutil
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

import pytest
from faults.amount import FULL
from faults.jobs import Job, row, write_job
from faults.planted import KINDS, Case, make_outside, run

from packer.export.run import export
from packer.pipeline.from_python import build
from packer.recipe.recipe import load_recipe

_RECIPE = """version: 1
sources: [{path: chat.jsonl, split: train}, {path: more.jsonl, split: eval}]
tokenizer: tokenizer
template: {file: template.jinja}
engine: reference
pack: {block_len: 128}
deduplicate: {exact: bytes}
decontaminate: {against: [{path: benchmark.jsonl}]}
"""

READ = [
    "verify {cache}",
    "verify {cache} --full -j 1",
    "verify {cache} --reencode --sources / -j 1",
    "inspect {cache}",
    "inspect {cache} --step 0",
    "inspect {cache} --row JOB/chat.jsonl:3",
    "stats {cache}",
    "check {cache} --sources / -j 1",
    "report {cache} -o {here}/page.html",
    "diff {cache} WHOLE",
    "diff WHOLE {cache}",
    "export {cache} --to datasets -o {here}/exported",
    "build -c JOB/recipe.yaml -o {cache} -j 1 --fail-above 1 --dry-run",
]
WRITTEN = [
    "build -c JOB/recipe.yaml -o {cache} -j 1 --fail-above 1",
    "build -c JOB/recipe.yaml -o {cache} -j 1 --fail-above 1 --set pack.block_len=256 --force",
    "build -c JOB/recipe.yaml -o {cache} -j 1 --fail-above 1 --repair",
    "build -c JOB/recipe.yaml -o {cache} -j 1 --fail-above 1 --set partition_bytes=1KiB --force",
]
BUILT = "build -c {here}/there/recipe.yaml -o {here}/cache -j 1 -q --fail-above 1"
OF_JOB = {
    "recipe.yaml": [BUILT, "preview -c {here}/there/recipe.yaml"],
    "chat.jsonl": [BUILT, "preview {here}/there/chat.jsonl --tokenizer JOB/tokenizer"],
    "benchmark.jsonl": [BUILT],
    "template.jinja": [BUILT, "preview --tokenizer JOB/tokenizer --template {here}/there/template.jinja"],
    "tokenizer": [BUILT, "preview --tokenizer {here}/there/tokenizer"],
    "axolotl.yaml": ["init {here}/new --from {here}/there/axolotl.yaml"],
    "page.html": ["report WHOLE -o {here}/there/page.html"],
    "new": ["init {here}/there/new", "init {here}/there/new --for qwen3"],
    "exported": [
        "export WHOLE --to datasets -o {here}/there/exported",
        "verify --foreign {here}/there/exported --tokenizer JOB/tokenizer",
    ],
    f".tmp-packer-{sha256(b'new').hexdigest()[:12]}": ["export WHOLE --to datasets -o {here}/there/new"],
}
"""Files and folders beside a cache, each with commands that meet them. The last is a name of which an export to `new` makes
that of its own folder."""


@pytest.fixture(scope="module")
def whole_job(memory: Path) -> Job:
    made = write_job(memory / "planted", num_rows=8)
    (made.folder / "benchmark.jsonl").write_bytes(b'{"question": "Is it so that nobody has asked this before?"}\n')
    shutil.copy(made.folder / "tokenizer" / "chat_template.jinja", made.folder / "template.jinja")
    made.recipe.write_text(_RECIPE)
    with made.inputs[0].open("ab") as file:
        file.write(row(1000))  # a copy of another
    return made


@pytest.fixture(scope="module")
def whole(whole_job: Job, memory: Path) -> Path:
    folder = memory / "planted-whole" / "cache"
    build(load_recipe(whole_job.recipe), folder, jobs=1, fail_above=1)
    return folder


def words_of(command: str, job: Job, whole: Path) -> list[str]:
    named = command.replace("{cache}", "{here}/there").replace("JOB", str(job.folder)).replace("WHOLE", str(whole))
    return named.split()


def some_of(kinds: Iterable[str], number: int) -> list[str]:
    """One of the kinds, another for each place; with PACKER_FAULTS=full all."""
    return list(kinds) if FULL else [list(kinds)[number % len(KINDS)]]


def below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.slow
def test_the_commands_succeed_where_nothing_is_planted(whole: Path, whole_job: Job, tmp_path: Path) -> None:
    """Otherwise they might fail below for another reason than what is planted."""
    cases = [
        Case(whole=str(whole), place="notes", kind="folder", words=words_of(command, whole_job, whole), exit_codes=[0])
        for command in (*READ, *WRITTEN)
    ]
    assert run(cases, make_outside(tmp_path / "outside"), tmp_path) == []


def test_what_is_planted_in_a_cache_is_neither_followed_nor_waited_for(
    whole: Path, whole_job: Job, tmp_path: Path, tally
) -> None:
    """Every file and folder of a cache in turn, so that what a cache gets in future is tried as well."""
    places = [*below(whole), ".mirror", ".mirror/origin", "documents/.tmp-packer-1-00000000", ".packer/new"]
    assert len(places) > 20 and {"rows", "model", ".packer/lock"} < {*places}
    cases = []
    rotated = random.Random(1)
    for number, place in enumerate(places):
        for kind in some_of(KINDS, number):
            commands = [*READ, *WRITTEN] if FULL else [rotated.choice(rotated.choice((READ, WRITTEN)))]
            words = [words_of(command, whole_job, whole) for command in commands]
            cases += [Case(whole=str(whole), place=place, kind=kind, words=each) for each in words]
    assert {case.kind for case in cases} == {*KINDS}
    wrong = run(cases, make_outside(tmp_path / "outside"), tmp_path)
    assert not wrong, "\n".join(wrong[:20])
    tally("link, pipe or device in a cache", tried=len(cases), held=len(cases) - len(wrong))


def test_what_is_planted_beside_a_cache_is_neither_written_through_nor_waited_for(
    whole: Path, whole_job: Job, tmp_path: Path, tally
) -> None:
    """Inputs, recipes, tokenizers, templates, benchmarks, states, pages, and folders to be made."""
    source = whole_job.copy(tmp_path / "job").folder
    export(whole, source / "exported", to="datasets")
    commands = {
        **OF_JOB,
        **{f"tokenizer/{name}": [BUILT] for name in below(source / "tokenizer")},
        **{f"exported/{name}": OF_JOB["exported"] for name in below(source / "exported")},
    }
    cases = [
        Case(whole=str(source), place=place, kind=kind, words=words_of(each, whole_job, whole), may_show=True)
        for number, (place, own) in enumerate(commands.items())
        for kind in some_of(KINDS, number)
        for each in own
    ]
    wrong = run(cases, make_outside(tmp_path / "outside"), tmp_path)
    assert not wrong, "\n".join(wrong[:20])
    tally("link, pipe or device beside a cache", tried=len(cases), held=len(cases) - len(wrong))
