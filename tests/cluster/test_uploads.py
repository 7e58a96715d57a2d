"""Large files on their way into a bucket: in parts, of which a few are in memory."""

import hashlib
import random
import subprocess
import sys
from pathlib import Path

import pytest
from store_proxy import proxied

from packer.store import bucket as buckets
from packer.store.bucket import Bucket

pytestmark = pytest.mark.slow
LARGE = 384 * 2**20


@pytest.fixture(params=["s3", "az"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def written(path: Path, num_bytes: int) -> str:
    """Fill a file with chance, and return its digest."""
    chance, digest = random.Random(num_bytes), hashlib.sha256()
    with path.open("wb") as file:
        for _ in range(num_bytes // 2**20):
            chunk = chance.randbytes(2**20)
            digest.update(chunk)
            file.write(chunk)
    return digest.hexdigest()


def stored(bucket: Bucket, name: str) -> str:
    digest = hashlib.sha256()
    for chunk in bucket.stream(name):
        digest.update(chunk)
    return digest.hexdigest()


def test_a_large_file_is_not_held_in_memory(bucket: Bucket, tmp_path: Path) -> None:
    path = tmp_path / "large"
    digest = written(path, LARGE)
    code = (
        "import resource, sys; from pathlib import Path; from packer.store.bucket import Bucket\n"
        "bucket = Bucket(sys.argv[1]); bucket.size('none')\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "bucket.upload('large', Path(sys.argv[2]))\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code, bucket.url, path], capture_output=True, text=True, check=True)
    assert int(done.stdout) < LARGE / 2
    assert stored(bucket, "large") == digest


@pytest.mark.parametrize("scheme", ["s3"])
def test_an_object_that_exists_is_not_sent_again(
    bucket: Bucket, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "_PART_BYTES", 5 * 2**20)
    path, sent = tmp_path / "large", []
    written(path, 24 * 2**20)
    with proxied(endpoint, lambda command, _: sent.append(command) or "") as (address, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        again = Bucket(f"{bucket.url}/behind")
        again.upload("large", path)
        num_sent = sum(command in {"PUT", "POST"} for command in sent)
        assert num_sent >= 24 / 5
        again.upload("large", path)
        assert sum(command in {"PUT", "POST"} for command in sent) == num_sent


@pytest.mark.parametrize("scheme", ["s3"])
@pytest.mark.parametrize("kind", ["busy", "lost request", "reset", "lost answer", "reset answer"])
def test_an_upload_through_trouble_is_whole(
    bucket: Bucket, endpoint: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buckets, "_PART_BYTES", 5 * 2**20)
    path, chance = tmp_path / "large", random.Random(kind)
    digest = written(path, 24 * 2**20)
    met = []

    def meet(command: str, _: str) -> str:
        met.append(kind if command in {"PUT", "POST"} and chance.random() < 0.2 else "")
        return met[-1]

    with proxied(endpoint, meet) as (address, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        for number in range(4):
            Bucket(f"{bucket.url}/{number}").upload("large", path)
    assert kind in met
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    buckets._opened.cache_clear()
    for number in range(4):
        assert stored(Bucket(f"{bucket.url}/{number}"), "large") == digest
