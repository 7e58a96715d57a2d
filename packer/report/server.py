"""`packer view`: serves the page on 127.0.0.1; it requests each block, row and document on demand.

Nothing is written and nothing leaves the machine. A request must know the secret in the path and must address this
machine by name. Other websites, whose pages a browser allows to send requests to 127.0.0.1, do not know the secret, and
a domain name that was made to resolve to 127.0.0.1 (DNS rebinding) does not match.
"""

import json
import secrets
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from packer.audit.view import token_texts
from packer.errors import PackerError, UsageError
from packer.limits import storage_errors
from packer.report.items import parse_key, read_item, sample
from packer.report.pages import SCRIPTS, PageFacts, cache_page
from packer.report.shell import content_security_policy
from packer.report.tokens import pack_tokens
from packer.store.cache import Cache

_ADDRESS = "127.0.0.1"
_NOTE = "A sample is listed; every other block, row or document opens by its name."


class _Server(ThreadingHTTPServer):
    """Does not log connections that a browser closes early."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class PageServer:
    """Serves the page of one cache. Use it as a context manager, and call :meth:`serve` in it.

    Args:
        folder: the cache.
        port: 0 chooses a free one.

    Raises:
        InputError, CheckError, StorageError: as :meth:`packer.Cache.open`; or the port is in use.
    """

    def __init__(self, folder: Path | str, *, port: int = 0) -> None:
        self._cache = Cache.open(folder)
        facts = PageFacts.of(self._cache)
        names = sample(self._cache, facts.documents)
        items = [read_item(self._cache, name) for name in names]
        self._page = cache_page(facts, items, note=_NOTE)
        self._reading = threading.Lock()  # requests run in threads but share one cache and tokenizer
        self._secret = secrets.token_urlsafe(16)
        with storage_errors("listen on port", Path(str(port))):
            self._server = _Server((_ADDRESS, port), self._handler())
        self.port: int = self._server.server_address[1]
        self.url = f"http://{_ADDRESS}:{self.port}/{self._secret}/"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.server_close()
        self._cache.close()

    def serve(self) -> None:
        """Answer requests until :meth:`stop`, or until the process is interrupted."""
        self._server.serve_forever()

    def stop(self) -> None:
        """End :meth:`serve`, from another thread."""
        self._server.shutdown()

    def answer(self, host: str | None, target: str) -> tuple[HTTPStatus, str, bytes]:
        """Return status, type and body for a request, given its `Host` header, and its path with query."""
        if host not in (f"{_ADDRESS}:{self.port}", f"localhost:{self.port}"):
            return _text(HTTPStatus.MISDIRECTED_REQUEST, "not this host")
        try:
            parts = urlsplit(target)
        except ValueError:  # such as `http://[`
            return _text(HTTPStatus.NOT_FOUND, "not found")
        _, secret, name = (*parts.path.split("/", 2), "", "")[:3]
        if not secrets.compare_digest(secret.encode(), self._secret.encode()):
            return _text(HTTPStatus.NOT_FOUND, "not found")
        if name == "":
            return HTTPStatus.OK, "text/html", self._page
        if name != "item":
            return _text(HTTPStatus.NOT_FOUND, "not found")
        try:
            with self._reading:
                item = read_item(self._cache, parse_key(parts.query))
                packed = pack_tokens(token_texts(self._cache), self._cache.manifest.model.control_ids, [item], 0)
        except UsageError as error:
            return _text(HTTPStatus.NOT_FOUND, error.message)
        except PackerError as error:
            return _text(HTTPStatus.INTERNAL_SERVER_ERROR, error.message)
        content = {"table": packed.table, "items": packed.items}
        return HTTPStatus.OK, "application/json", json.dumps(content).encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        page_server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.wfile.write(self._head())

            def do_HEAD(self) -> None:
                self._head()

            def _head(self) -> bytes:
                """Send everything except the body, which is returned."""
                status, kind, body = page_server.answer(self.headers.get("Host"), self.path)
                self.send_response(status)
                self.send_header("Content-Type", f"{kind}; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                return body

            def end_headers(self) -> None:
                for name, value in _HEADERS.items():
                    self.send_header(name, value)
                super().end_headers()

            def log_message(self, *_: object) -> None:
                """Do nothing: the path of a request contains the secret."""

        return Handler


_HEADERS = {
    "Content-Security-Policy": f"{content_security_policy(SCRIPTS, live=True)}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def _text(status: HTTPStatus, message: str) -> tuple[HTTPStatus, str, bytes]:
    return status, "text/plain", f"{message}\n".encode("utf-8", "backslashreplace")
