"""Values that somebody else wrote, with digests that are right: one error that says so, and nothing else.

Every column of every file and every field of the manifest is set to what it must not be. Not everything set this way is
wrong, or is looked at by every command; but none ends in an internal error, for want of memory, or never.
"""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from faults.amount import amount
from faults.forging import KINDS, encoded, fields_of, forgeries, put_at, write_jobs
from processes import in_a_process

from packer.errors import InputError, PackerError
from packer.load import PackedLoader
from packer.load.state import read_state
from packer_cli.main import cli

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
@pytest.mark.parametrize("kind", KINDS)
def test_a_forged_value_is_an_error_of_the_cache_and_never_an_internal_one(
    kind: str, part: int, jobs: Path, tmp_path: Path, tally
) -> None:
    num_parts, num_commands = amount(small=200, full=8), amount(small=5, full=8)
    ((used, wrong),) = in_a_process(FORGED, jobs / kind, tmp_path, part, num_parts, num_commands)
    assert not wrong, f"{len(wrong)} uses of {used} caches, the first: {wrong[0]}"
    tally("forged values", tried=used, held=used, note=kind)


STATES = {
    "packed": ("blocks", {"order": "random"}),
    "padding_free": ("documents", {"order": "length_bucketed"}),
    "token_budget": ("documents", {"micro_batch_size": 600}),
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # options that differ
@pytest.mark.parametrize("batching", STATES)
def test_a_state_that_was_edited_or_cut_off_goes_on_or_is_one_error(batching: str, jobs: Path, tmp_path: Path) -> None:
    """By the loader, and by `inspect --state`, which also opens the loader that the state describes."""
    cache, file = jobs / "chats" / "cache", tmp_path / "state.json"
    unit, arguments = STATES[batching]
    arguments = {"split": "train", "batching": batching, "rank": 0, "world_size": 1, "prefetch": 0} | arguments
    with PackedLoader(cache, **arguments) as loader:
        saved = loader.state_dict()
        whole = json.dumps(saved)
        edited = [(path, value) for path, values in fields_of(saved, ()) for value in values if path]
        edited = edited[:: amount(small=3, full=1)]
        refused = 0
        for path, value in edited:
            state = json.loads(whole)
            put_at(state, path, value)
            file.write_bytes(encoded(state))
            try:
                loader.load_state_dict(read_state(file))
                next(iter(loader), None)
            except PackerError as error:
                refused += 1
                assert error.hint or "beyond" in error.message, (path, value)
            result = CliRunner().invoke(cli, ["inspect", str(cache), "--state", str(file)])
            assert result.exit_code in (0, 1, 2, 3), (path, value, result.output)
    assert refused > len(edited) // 2, unit
    for length in range(0, len(whole), amount(small=97, full=1)):
        file.write_text(whole[:length])
        with pytest.raises(InputError, match=r"state\.json"):
            read_state(file)


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
