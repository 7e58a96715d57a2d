"""A store behind a network that delays, resets, refuses and cuts answers off: the same bytes, or a clear end."""

import http.client
import random
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import urlsplit

import pytest
from bucket_objects import files, objects
from command_line import run

from packer.store.bucket import Bucket

pytestmark = pytest.mark.slow
TRIES = 20


class Trouble(BaseHTTPRequestHandler):
    """Hands requests on, and now and then spoils one, or the answer to it."""

    protocol_version = "HTTP/1.1"
    target = ""
    chance: ClassVar[random.Random] = random.Random(0)
    met: ClassVar[Counter[str]] = Counter()

    def hand_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kind = self.chance.choices(
            ["none", "slow", "busy", "lost request", "lost answer", "cut"], [60, 10, 10, 7, 7, 6]
        )[0]
        self.met[kind] += 1
        if kind == "slow":
            threading.Event().wait(self.chance.random() / 2)
        if kind == "busy":
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if kind == "lost request":
            self.close_connection = True
            return
        connection = http.client.HTTPConnection(urlsplit(self.target).netloc, timeout=60)
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        if kind == "lost answer":
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in {"content-length", "transfer-encoding", "connection"}:
                self.send_header(name, value)
        length = answer.headers.get("Content-Length") if self.command == "HEAD" else len(content)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if kind == "cut" and content:
            self.wfile.write(content[: len(content) // 2])
            self.close_connection = True
        else:
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


for method in ("GET", "PUT", "HEAD", "POST", "DELETE"):
    setattr(Trouble, f"do_{method}", Trouble.hand_on)


@pytest.fixture
def troubled(endpoint, monkeypatch):
    """The server's address behind trouble, in the environment; what was met."""
    Trouble.target, Trouble.met = endpoint, Counter()
    with ThreadingHTTPServer(("127.0.0.1", 0), Trouble) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_address[1]}")
        yield Trouble.met
        server.shutdown()
        thread.join()


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
