"""A store behind a network that does what a test says."""

import http.client
import socket
import struct
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True)
class Request:
    command: str
    path: str
    status: int
    """Of the answer."""

    num_bytes: int
    """Of the answer, and of what was sent."""

    def puts(self, part):
        """Whether it put an object whose name has this in it there."""
        return self.command == "PUT" and part in self.path and self.status == 200


@contextmanager
def proxied(target, meet):
    """Hand requests on to a server.

    Args:
        target: address of the server.
        meet: is given command and path of each request before it is handed on, and says what becomes of it: `busy`,
            `lost request`, `reset` (its connection, before it was handed on), `lost answer`, `reset answer` (its
            connection, before it was answered), `cut` (its answer), or nothing.

    Yields:
        the address in place of the server's, and the requests that were answered, in the order of their answers
    """
    answered, errors = [], []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def hand_on(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            kind = meet(self.command, unquote(self.path))
            if kind == "busy":
                self.send_response(503)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if kind == "lost request":
                self.close_connection = True
                return
            if kind == "reset":
                self.reset()
                return
            try:
                answer, content = self.asked(body)
            except (OSError, http.client.HTTPException):  # the server is not there
                self.close_connection = True
                return
            answered.append(Request(self.command, unquote(self.path), answer.status, len(content) + len(body)))
            if kind == "lost answer":
                self.close_connection = True
                return
            if kind == "reset answer":
                self.reset()
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

        def asked(self, body):
            connection = http.client.HTTPConnection(urlsplit(target).netloc, timeout=60)
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            return answer, content

        def reset(self):
            """End the connection as a load balancer does, not as a server that has been told all."""
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.rfile.close()
            self.connection.close()
            self.close_connection = True

        def log_message(self, *_):
            pass

    for method in ("GET", "PUT", "HEAD", "POST", "DELETE"):
        setattr(Handler, f"do_{method}", Handler.hand_on)

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_):
            error = sys.exception()
            if not isinstance(error, OSError):  # else who asked is gone, as is meant
                errors.append(error)

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", answered
        finally:
            server.shutdown()
            thread.join()
    assert not errors, errors
