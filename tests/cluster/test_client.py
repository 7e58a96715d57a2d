"""Builds from outside of a Ray cluster, by Ray's client: the bytes are a local build's."""

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from processes import free_ports, wait_until
from written_formats import as_jsonl, some_rows

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="make cluster installs Ray"),
    pytest.mark.skipif(
        find_spec("grpc") is None,
        reason="GRPCIO MISSING: Ray's client is not tested; make cluster installs it",
    ),
]
# A new cluster asks for a token where this machine has one, which a client gets from its user alone.
ENVIRONMENT = os.environ | {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@pytest.fixture(scope="module")
def folder(starter: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe of some hundred partitions."""
    folder = tmp_path_factory.mktemp("rows")
    (folder / "rows.jsonl").write_bytes(as_jsonl(some_rows(6000)))
    (folder / "recipe.yaml").write_text(
        f"version: 1\ntokenizer: {starter / 'tokenizer'}\nsources: [{{path: rows.jsonl}}]\n"
        "pack: {block_len: 512}\npartition_bytes: 16KiB\n"
    )
    return folder


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory):
    """A cluster of one node: its process, and its address for clients."""
    port, clients = free_ports(2)
    # Sockets have short paths.
    place = Path(tmp_path_factory.mktemp("r"))
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}"]
    command += [f"--ray-client-server-port={clients}", "--num-cpus=2", "--include-dashboard=false"]
    command += [f"--temp-dir={place}", f"--object-store-memory={80 * 2**20}"]
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(command, env=ENVIRONMENT, stdout=log, stderr=log)
    try:
        wait_until(lambda: b"Ray runtime started" in (place / "log").read_bytes())
        yield process, f"ray://127.0.0.1:{clients}"
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def head(cluster):
    """The address of the cluster."""
    return cluster[1]


def started(*arguments: object, **env: str) -> "subprocess.Popen[str]":
    command = [str(Path(sys.executable).with_name("packer")), *map(str, arguments)]
    return subprocess.Popen(command, env=ENVIRONMENT | env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ran(*arguments: object) -> None:
    process = started(*arguments)
    _, errors = process.communicate()
    assert process.returncode == 0, errors


def files(cache: Path) -> dict[str, bytes]:
    paths = [path for path in cache.rglob("*") if path.is_file() and path.name != "lock"]
    return {path.relative_to(cache).as_posix(): path.read_bytes() for path in paths}


def finished(cache: Path) -> int:
    return len(list((cache / ".packer" / "partitions").glob("*.json")))


def test_a_build_by_a_client_is_a_local_one_and_can_be_verified_checked_and_packed(head, folder, tmp_path):
    recipe, here, there = folder / "recipe.yaml", tmp_path / "local", tmp_path / "client"
    ran("build", "-c", recipe, "-o", here, "-j", 1)
    ran("build", "-c", recipe, "-o", there, "--on", head)
    assert files(there) == files(here)
    ran("verify", there, "--on", head)
    ran("check", there, "--sources", "/", "--on", head)
    for cache, options in ((here, ()), (there, ("--on", head))):
        ran("build", "-c", recipe, "-o", cache, "--block-len", 256, "--force", *options)
    assert files(there) == files(here)


@pytest.mark.usefixtures("interruptible")
def test_a_client_that_is_interrupted_says_so_once_and_what_is_finished_is_kept(head, folder, tmp_path):
    cache = tmp_path / "cache"
    build = started("build", "-c", folder / "recipe.yaml", "-o", cache, "--on", head)
    wait_until(lambda: finished(cache) > 0 or build.poll() is not None)
    build.send_signal(signal.SIGINT)
    _, errors = build.communicate(timeout=60)
    told = [line for line in errors.splitlines() if line and not line.startswith(("note:", "documents:", "hint:"))]
    assert told == ["error: interrupted"] and build.returncode == 130 and finished(cache), errors
    ran("build", "-c", folder / "recipe.yaml", "-o", cache, "-j", 1)
    ran("build", "-c", folder / "recipe.yaml", "-o", tmp_path / "local", "-j", 1)
    assert files(cache) == files(tmp_path / "local")


def test_a_client_that_loses_its_cluster_says_so_and_what_is_finished_is_kept(cluster, folder, tmp_path):
    process, head = cluster
    cache, command = tmp_path / "cache", ("build", "-c", folder / "recipe.yaml", "-o", tmp_path / "cache")
    for _ in range(3):  # on a busy machine a cluster may fail to start what serves a client within Ray's 30 seconds
        build = started(*command, "--on", head, RAY_CLIENT_RECONNECT_GRACE_PERIOD="3")
        wait_until(lambda: finished(cache) > 0 or build.poll() is not None)  # noqa: B023 - called before the next
        if finished(cache):
            break
        _, errors = build.communicate()
        assert "no Ray cluster can be reached" in errors, errors
    process.terminate()
    process.wait()
    _, errors = build.communicate(timeout=180)
    assert build.returncode == 5 and errors.count("error:") == 1 and "Traceback" not in errors, errors
    kept = finished(cache)
    assert kept and not (cache / "manifest.json").exists()
    again = started(*command, "-j", 1, "--json")
    told, errors = again.communicate()
    assert again.returncode == 0, errors
    assert json.loads(told)["partitions_reused"] == kept
    ran("build", "-c", folder / "recipe.yaml", "-o", tmp_path / "local", "-j", 1)
    assert files(cache) == files(tmp_path / "local")
