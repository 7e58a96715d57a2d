"""Values that somebody else wrote, with digests that are right: one error that says so, and nothing else.

Every column of every file and every field of the manifest is set to what it must not be. Not everything set this way is
wrong, or is looked at by every command; but none ends in an internal error, for want of memory, or never.
"""

import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from faults.amount import FULL, amount
from faults.forging import KINDS, forgeries, write_jobs
from processes import in_a_process

from packer.audit.stats import stats
from packer.errors import CheckError

FORGED = """
import json, sys
from pathlib import Path
from faults.forged_use import try_forgeries

print(json.dumps(try_forgeries(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))))
"""


@pytest.fixture(scope="session")
def jobs(memory: Path) -> Path:
    """A folder with a job of each kind, and its cache in it. Shared."""
    folder = memory / "forged"
    made = write_jobs(folder)
    for job in made.values():
        job.build(job.folder / "cache")
    return folder


@pytest.mark.parametrize("part", range(amount(small=1, full=8)))
@pytest.mark.parametrize("kind", KINDS if FULL else ("chats", "selected"))
def test_a_forged_value_is_an_error_of_the_cache_and_never_an_internal_one(
    kind: str, part: int, jobs: Path, tmp_path: Path, tally
) -> None:
    num_parts, num_commands = amount(small=500, full=8), amount(small=3, full=8)
    ((used, wrong),) = in_a_process(FORGED, jobs / kind, tmp_path, part, num_parts, num_commands)
    assert not wrong, f"{len(wrong)} uses of {used} caches, the first: {wrong[0]}"
    tally("forged values", tried=used, held=used, note=kind)


def test_a_rule_that_the_recipe_does_not_have_is_an_error_of_the_selection(jobs: Path, tmp_path: Path) -> None:
    whole = jobs / "selected" / "cache"
    forged = [each for each in forgeries(whole) if each[0].startswith("rows/selection: detail")]
    found = []
    for number, (_, forge) in enumerate(forged):
        cache = Path(shutil.copytree(whole, tmp_path / str(number)))
        forge(cache)
        with suppress(CheckError):
            found.append(stats(cache))
    assert len(forged) > len(found) > 0


def test_every_column_and_every_field_is_forged(jobs: Path) -> None:
    names = [name for kind in KINDS for name, _ in forgeries(jobs / kind / "cache")]
    for wanted in (
        "documents: input_ids offsets",
        "documents: spans.start",
        "documents: sample_id bytes",
        "documents: side",
        "blocks: seq_lengths",
        "rows/selection: kept",
        "rows/traits: content",
        "manifest: shards.0.places.0.columns.row",
        "manifest: selection.table.num_rows",
        "manifest: inputs.0.part",
        "manifest: recipe.pack.block_len",
        "rejected: 0 ('tokens',)",
        *["documents: media.start", "media/", "manifest: media.0.num_rows"] * ("images" in KINDS),
    ):
        assert any(name.startswith(wanted) for name in names), wanted
    assert len(names) > 10_000
