"""A template that does not end fails the command, naming template and row; it rejects no row, and nothing is lost."""

import sys
from pathlib import Path

import pytest
from command_line import fields, run
from faults.amount import FULL
from faults.jobs import Job, contents, row
from hostile_templates import ALL, LARGE, OVERRUNS
from processes import run_forked

from packer.audit.verify import verify
from packer.errors import TemplateError
from packer.pipeline.from_python import build
from packer.recipe.recipe import Recipe, load_recipe
from packer.store.cache import Cache
from packer.store.row_tables import read_rejected

PLAIN = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HARMFUL = b"harmful"
"""What a row says that a template answers with harm."""


def only_there(template: str) -> str:
    return "{% if 'harmful' in messages[0].content %}" + template + "{% endif %}" + PLAIN


def harmful_row() -> bytes:
    return row(77).replace(b'"content": "', b'"content": "' + HARMFUL + b" ", 1)


@pytest.fixture
def harmed(job: Job, tmp_path: Path) -> Job:
    """The job, whose 31st line provokes the template."""
    copied = job.copy(tmp_path / "job")
    lines = copied.inputs[0].read_bytes().splitlines(keepends=True)
    lines[30] = harmful_row()
    copied.inputs[0].write_bytes(b"".join(lines))
    return copied


ALONE, WITH_WORKERS = ([(name, jobs) for name in OVERRUNS] for jobs in ("1", "2"))
CASES = [*ALONE, *WITH_WORKERS] if FULL else [ALONE[0], pytest.param(*WITH_WORKERS[0], marks=pytest.mark.slow)]


@pytest.mark.parametrize(("name", "jobs"), CASES)
def test_a_build_is_failed_by_the_watchdog_and_goes_on_with_a_mended_template(
    name: str, jobs: str, harmed: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tally
) -> None:
    if jobs == "1":  # workers take as long as the product gives a rendering
        monkeypatch.setattr("packer.host.watchdog.MAX_CPU_S", 0.3)
    template = tmp_path / "chat.jinja"
    template.write_text(only_there(OVERRUNS[name]))
    cache = tmp_path / "cache"
    words = [*harmed.command(cache), "--set", f"template.file={template}", "-j", jobs]
    found = run(*words, exit_code=2)
    assert f"{harmed.inputs[0]} (row 30), template {template}: " in found.stderr
    assert "in one rendering" in found.stderr and "\nhint: " in found.stderr
    assert not (cache / "manifest.json").exists()
    assert not (cache / "rejected.jsonl").exists(), "a row is never rejected for it"
    template.write_text(PLAIN)
    run(*words)
    assert verify(cache, threads=1).findings == ()
    rejected = read_rejected(cache, Cache.open(cache).manifest)
    assert {line.code for line in rejected if line.document is None} == {"not_json"}
    tally("template without end", tried=1, held=1)


OWN_PROCESS = """
import sys
from packer.host.watchdog import limit_process
from packer_cli.main import cli

limit_process()
cli.main(sys.argv[1:], prog_name="packer")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no system limits the memory of a rendering")
@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_a_step_that_takes_gigabytes_fails_the_build_and_rejects_no_row(
    jobs: str, harmed: Job, tmp_path: Path, tally
) -> None:
    template = tmp_path / "chat.jinja"
    template.write_text(only_there(LARGE["padding"]))
    cache = tmp_path / "cache"
    words = harmed.command(cache, "--set", f"template.file={template}", "-j", jobs)
    done = run_forked(OWN_PROCESS, *words)
    assert done.returncode == 2, done.stderr
    assert f"{harmed.inputs[0]} (row 30), template {template}: " in done.stderr
    assert "takes more than 512 MiB of memory in one rendering" in done.stderr
    assert not (cache / "manifest.json").exists() and not (cache / "rejected.jsonl").exists()
    tally("template that takes gigabytes", tried=1, held=1)


def test_a_template_that_only_probes_provoke_is_reported_before_a_row_is_read(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tally
) -> None:
    """Templates are asked about conversations of packer's own first, by every command."""
    monkeypatch.setattr("packer.host.watchdog.MAX_CPU_S", 0.3)
    template = tmp_path / "chat.jinja"
    template.write_text(OVERRUNS["nested ranges"] + PLAIN)
    error = fields("preview", "-c", job.recipe, "--set", f"template.file={template}", exit_code=2)["error"]
    assert error["code"] == "template_overrun"
    assert error["message"].startswith(f"template {template}: ")
    tally("template without end, before a row", tried=1, held=1)


def test_a_hostile_template_costs_its_row_and_nothing_else(harmed: Job, tmp_path: Path, tally) -> None:
    """A build for every one of the table: the row is rejected or kept, or the template refused before a row is read.

    The same way with one process and with two.
    """
    tried = ALL if FULL else ALL[::79]
    before = harmed.inputs[0].read_bytes()
    template = tmp_path / "chat.jinja"
    outcomes = []
    for each in tried:
        template.write_text(only_there(each.source))
        caches = [tmp_path / f"{jobs}" for jobs in (1, 2)]
        recipe = load_recipe(harmed.recipe, [f"template.file={template}"])
        told = [built(recipe, cache, jobs) for jobs, cache in enumerate(caches, 1)]
        assert told[0] == told[1], each.name
        if told[0] is not None:
            outcomes.append((each.name, each.text is None and told[0].startswith("chat template: not a valid Jinja")))
            continue
        lines = read_rejected(caches[0], Cache.open(caches[0]).manifest)
        codes = {line.row: line.code for line in lines if line.document is None and line.code != "not_json"}
        # What renders may still be no chat that can be learned.
        right = codes == {30: each.code} if each.text is None else set(codes) <= {30}
        outcomes.append((each.name, right and contents(caches[0]) == contents(caches[1])))
    assert harmed.inputs[0].read_bytes() == before
    assert [name for name, held in outcomes if not held] == []
    tally("hostile template", tried=len(tried), held=len(outcomes))


def built(recipe: Recipe, cache: Path, jobs: int) -> str | None:
    """What is told of a template that is refused as a whole; None where the cache was built."""
    try:
        build(recipe, cache, jobs=jobs, force=True, fail_above=1)
    except TemplateError as error:
        return error.message
    return None
