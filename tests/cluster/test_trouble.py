"""A store behind a network that delays, resets, refuses and cuts answers off: the same bytes as without trouble."""

import random
import threading
from collections import Counter

import pytest
from bucket_objects import files, objects
from command_line import run
from store_proxy import proxied

from packer.store.bucket import Bucket

pytestmark = pytest.mark.slow
KINDS = {
    "": 54,
    "slow": 10,
    "busy": 10,
    "lost request": 5,
    "reset": 5,
    "lost answer": 5,
    "reset answer": 5,
    "cut": 6,
}
"""What becomes of how many of a hundred requests."""


@pytest.fixture
def troubled(endpoint, monkeypatch):
    """The server's address behind trouble, in the environment; what was met."""
    chance, met = random.Random(0), Counter()

    def meet(*_):
        kind = chance.choices([*KINDS], [*KINDS.values()])[0]
        met[kind] += 1
        if kind == "slow":
            threading.Event().wait(chance.random() / 2)
        return kind

    with proxied(endpoint, meet) as (address, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        yield met


def test_a_build_through_trouble_has_the_bytes_of_a_local_one(bucket, troubled, endpoint, recipe, local, monkeypatch):
    run("build", "-c", recipe, "-o", bucket.url, "-j", 1)
    run("verify", bucket.url)
    assert min(troubled[kind] for kind in KINDS) > 0
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    from packer.store import bucket as buckets

    buckets._opened.cache_clear()
    assert objects(Bucket(bucket.url)) == files(local)
    run("verify", bucket.url)
