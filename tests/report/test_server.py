"""`packer view`: it answers who has its address and asks for this machine, and nobody else."""

import http.client
import json
import threading
from contextlib import ExitStack
from http import HTTPStatus
from urllib.parse import quote, urlencode, urlsplit

import numpy as np
import pytest
from command_line import assert_refused, fields, run
from report_page import Page, read_items

from packer.report import PageServer
from packer.store.cache import Cache


@pytest.fixture
def server(starter_cache):
    with PageServer(starter_cache) as found:
        yield found


SECURITY = {"Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy", "Cache-Control"}


def test_every_block_row_and_document_is_served(server, starter_cache):
    with Cache.open(starter_cache) as cache:
        blocks, ids = cache.blocks("train"), cache.documents("train").doc_ids()
        source, path = cache.manifest.inputs[0].path, urlsplit(server.url).path
        host = f"127.0.0.1:{server.port}"
        for number in (0, len(blocks) - 1):
            status, kind, body = server.answer(host, f"{path}item?" + urlencode({"block": f"train:{number}"}))
            assert (status, kind) == (HTTPStatus.OK, "application/json")
            ((item, tokens),) = read_items(**json.loads(body))
            expected = blocks.read(np.array([number])).input_ids[0].tolist()
            assert [token for token, _ in tokens] == expected[: len(tokens)]
            assert len(tokens) + item["num_padding"] == len(expected)
        for query in (urlencode({"row": f"{source}:1"}), f"doc={ids[-1]}"):
            assert server.answer(host, f"{path}item?{query}")[0] == HTTPStatus.OK
        for query in ("", "block=train", "block=train:x", "row=nowhere:0", "doc=1", "block=train:0&doc=1", quote("💥")):
            assert server.answer(host, f"{path}item?{query}")[0] == HTTPStatus.NOT_FOUND


def test_without_its_secret_or_for_another_host_nothing_is_served(server):
    path, host = urlsplit(server.url).path, f"127.0.0.1:{server.port}"
    for wrong in ("/", "/item?block=train:0", f"/x{path[1:]}", path[:-2] + "/", f"{path}other", f"{path}../", "/é/"):
        assert server.answer(host, wrong)[0] == HTTPStatus.NOT_FOUND, wrong
    for other in (None, "", "example.com", f"example.com:{server.port}", "127.0.0.1", f"127.0.0.1:{server.port + 1}"):
        status, _, body = server.answer(other, path)
        assert status == HTTPStatus.MISDIRECTED_REQUEST and b"html" not in body
    assert server.answer(f"localhost:{server.port}", path)[0] == HTTPStatus.OK
    with PageServer(server._cache.folder) as second:
        assert urlsplit(second.url).path != path


def test_a_browser_gets_the_page_under_its_policy_and_nothing_is_written(server, starter_cache):
    before = sorted((path, path.stat().st_mtime_ns) for path in starter_cache.rglob("*"))
    thread = threading.Thread(target=server.serve)
    thread.start()
    with ExitStack() as stack:
        stack.callback(thread.join)
        stack.callback(server.stop)
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        stack.callback(connection.close)
        connection.request("GET", urlsplit(server.url).path)
        answer = connection.getresponse()
        content = answer.read()
        page, length = Page(content), len(content)
        assert answer.status == 200 and not page.items()
        policy = dict(directive.split(" ", 1) for directive in answer.headers["Content-Security-Policy"].split("; "))
        assert policy == page.policy() | {"frame-ancestors": "'none'"} and policy["connect-src"] == "'self'"
        assert [policy["script-src"], policy["style-src"]] == page.hashes()
        assert answer.headers["Cache-Control"] == "no-store" and answer.headers["Referrer-Policy"] == "no-referrer"
        connection.request("POST", urlsplit(server.url).path, b"x")
        refused = connection.getresponse()
        assert refused.status == 501 and refused.read() and refused.headers["Content-Security-Policy"]
        connection.request("HEAD", urlsplit(server.url).path)
        head = connection.getresponse()
        assert (head.status, head.read()) == (200, b"") and int(head.headers["Content-Length"]) == length
        assert all(set(each.headers) >= SECURITY for each in (answer, refused, head)), "every answer has them"
    assert sorted((path, path.stat().st_mtime_ns) for path in starter_cache.rglob("*")) == before


def test_the_command_prints_the_address_and_ends_at_ctrl_c(starter_cache, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(PageServer, "serve", interrupted)
    assert "open http://127.0.0.1:" in run("view", starter_cache).stdout
    address = urlsplit(fields("view", starter_cache)["url"])
    assert (address.hostname, len(address.path) > 20) == ("127.0.0.1", True)


def test_a_port_that_is_taken_is_named(server, starter_cache):
    assert_refused(str(server.port), "view", starter_cache, "--port", server.port, exit_code=5)


def test_a_target_that_is_no_address_is_not_found(server):
    assert server.answer(f"127.0.0.1:{server.port}", "http://[")[0] == 404


def test_a_browser_that_goes_away_leaves_no_traceback(server, capsys):
    for error in (ConnectionResetError(), BrokenPipeError()):
        try:
            raise error
        except ConnectionError:
            server._server.handle_error(None, None)
    assert capsys.readouterr().err == ""
