"""A store behind a network that delays, resets, refuses and cuts answers off: the same bytes, or a clear end."""

import random
import threading
from collections import Counter

import pytest
from bucket_objects import files, objects
from command_line import run
from store_proxy import proxied

from packer.store.bucket import Bucket

pytestmark = pytest.mark.slow
TRIES = 20


@pytest.fixture
def troubled(endpoint, monkeypatch):
    """The server's address behind trouble, in the environment; what was met."""
    chance, met = random.Random(0), Counter()

    def meet(*_):
        kind = chance.choices(["", "slow", "busy", "lost request", "lost answer", "cut"], [60, 10, 10, 7, 7, 6])[0]
        met[kind] += 1
        if kind == "slow":
            threading.Event().wait(chance.random() / 2)
        return kind

    with proxied(endpoint, meet) as (address, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        yield met


def until_done(*command):
    """Run a command until it ends well; before that it says in a line that the store was in the way."""
    from click.testing import CliRunner

    from packer_cli.main import cli

    for _ in range(TRIES):
        told = CliRunner().invoke(cli, [*map(str, command)])
        if told.exit_code == 0:
            return
        assert told.exit_code == 5 and "error: cannot " in told.stderr and "hint: " in told.stderr, told.output
    raise AssertionError("it never ended well")


def test_a_build_through_trouble_has_the_bytes_of_a_local_one(bucket, troubled, endpoint, recipe, local, monkeypatch):
    until_done("build", "-c", recipe, "-o", bucket.url, "-j", 1)
    until_done("verify", bucket.url)
    assert min(troubled[kind] for kind in ("slow", "busy", "lost request", "lost answer", "cut")) > 0
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    from packer.store import bucket as buckets

    buckets._opened.cache_clear()
    assert objects(Bucket(bucket.url)) == files(local)
    run("verify", bucket.url)
