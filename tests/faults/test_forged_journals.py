"""The journal of an unfinished build, in a folder that somebody sent: what it says of a shard is true, or as good as none.

The names of files that a journal may give are tried in `test_hostile_names.py`.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from faults.conftest import Tally
from faults.jobs import Job, contents

from packer.pipeline.documents import committed
from packer.pipeline.partition import PartitionResult, RejectedRow, write_journal
from packer.store.manifest import MANIFEST_NAME, Shard, read_manifest

Change = Callable[[PartitionResult], PartitionResult]


def lie(value: Any, **fields: object) -> Any:
    """A copy with fields that its type would refuse."""
    changed = msgspec.structs.replace(value)
    for name, field in fields.items():
        msgspec.structs.force_setattr(changed, name, field)
    return changed


def of_shard(**fields: Callable[[Shard], object]) -> Change:
    """A lie about the shard alone; each field as a function of what is true."""
    return lambda result: lie(
        result, shard=lie(result.shard, **{name: made(result.shard) for name, made in fields.items()})
    )


def with_rejected(*rejected: RejectedRow) -> Change:
    def changed(result: PartitionResult) -> PartitionResult:
        num_kept = result.shard.num_input_rows - len(rejected)
        shard = msgspec.structs.replace(result.shard, num_rejected=len(rejected), num_kept=num_kept)
        return lie(result, shard=shard, rejected=rejected)

    return changed


CHANGES: dict[str, Change] = {
    "a row that it does not have": with_rejected(RejectedRow(2**60, "not_json", "", 1)),
    "a row before its first": with_rejected(RejectedRow(-1, "not_json", "")),
    "no known reason": with_rejected(RejectedRow(0, "x", "", 1)),
    "a line that no file has": with_rejected(RejectedRow(0, "not_json", "", 2**70)),
    "one more token": of_shard(num_tokens=lambda shard: shard.num_tokens + 1),
    "no tokens": of_shard(num_tokens=lambda _: 0),
    "no trained tokens": of_shard(num_trained=lambda _: 0),
    "no last tokens": of_shard(num_last_tokens=lambda _: 0),
    "too many last tokens": of_shard(num_last_tokens=lambda shard: shard.num_tokens + 1),
    "another digest": of_shard(xxh3=lambda shard: "0" * len(shard.xxh3)),
    "another digest of rows": of_shard(rows_xxh3=lambda shard: "0" * len(shard.rows_xxh3)),
    "another digest of values": of_shard(rows_sha256=lambda shard: "0" * len(shard.rows_sha256)),
    "another key": of_shard(key=lambda shard: "0" * len(str(shard.key))),
    "other places": of_shard(
        places=lambda shard: [
            msgspec.structs.replace(place, columns={name: at - 8 for name, at in place.columns.items()})
            for place in shard.places
        ]
    ),
    "a row less": of_shard(
        num_input_rows=lambda shard: shard.num_input_rows - 1, num_kept=lambda shard: shard.num_kept - 1
    ),
    "reasons of 17 MB": lambda result: lie(
        result, rejected=tuple(msgspec.structs.replace(each, reason="r" * (17 * 2**20)) for each in result.rejected)
    ),
    "names of 1 MB": lambda result: lie(result, unread=("n" * 2**20,)),
}


@pytest.fixture(scope="module")
def whole(tiny_job: Job, memory: Path) -> Path:
    return tiny_job.build(memory / "journals" / "cache")


@pytest.mark.parametrize("change", [None, *CHANGES])
def test_what_a_journal_says_of_a_shard_is_true_or_the_shard_is_made_again(
    change: str | None, tiny_job: Job, whole: Path, tmp_path: Path, tally: Tally
) -> None:
    cache = Path(shutil.copytree(whole, tmp_path / "cache"))
    (cache / MANIFEST_NAME).unlink()
    lies = 0
    for result in committed(whole, read_manifest(whole)):
        said = result if change is None else CHANGES[change](result)
        lies += said != result
        write_journal(cache, str(result.shard.key), said)
    assert bool(lies) == (change is not None)
    tiny_job.build(cache)
    assert contents(cache) == contents(whole)
    tally("forged journals", tried=1, held=1)
