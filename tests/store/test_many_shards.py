"""A cache of very many shards opens in little memory and few maps, and its rows are found."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from store.samples import small_cache

from packer.store.manifest import write_manifest

NUM_SHARDS = 200_000

OPEN = """
import json, sys, time
from packer.store.cache import Cache

begin = time.perf_counter()
cache = Cache.open(sys.argv[1])
opened = time.perf_counter()
documents = cache.documents("train")
last, _ = documents.place(len(documents) - 1)
for row in range(0, len(documents), len(documents) // 1000):
    of_row, of_first = documents.locate([row, row % documents.shards[0].num_rows]).values("length")
    assert of_row == of_first
seconds = {"open": opened - begin, "documents and 1,000 rows": time.perf_counter() - opened}
# ru_maxrss would begin with what the process that started this one has.
peak = 1024 * int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
print(json.dumps({
    "rows": len(documents), "last": last, "maps": sum(1 for _ in open("/proc/self/maps")),
    "bytes": peak, "seconds": seconds,
}))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="counts maps in /proc")
def test_200_000_shards_open_in_two_gigabytes_and_some_thousand_maps(tmp_path: Path) -> None:
    manifest = small_cache(tmp_path)
    shard = next(shard for shard in manifest.shards if (shard.kind, shard.split) == ("documents", "train"))
    # A file has up to 65,000 names.
    contents = [tmp_path / f"content-{i}" for i in range(NUM_SHARDS // 50_000)]
    for content in contents:
        shutil.copyfile(tmp_path / shard.path, content)
    shards = []
    for number in range(NUM_SHARDS):
        path = f"documents/train-{number:06d}.arrow"
        (tmp_path / path).hardlink_to(contents[number % len(contents)])
        shards.append(msgspec.structs.replace(shard, path=path))
    write_manifest(tmp_path, msgspec.structs.replace(manifest, shards=tuple(shards)))
    ended = subprocess.run([sys.executable, "-c", OPEN, str(tmp_path)], capture_output=True, text=True, check=True)
    found = json.loads(ended.stdout)
    print(found["seconds"])
    assert found["rows"] == NUM_SHARDS * shard.num_rows
    assert found["last"] == f"documents/train-{NUM_SHARDS - 1}.arrow"
    assert found["maps"] < 9_000
    assert found["bytes"] < 2e9
