"""A Hub of a few files on this machine, which speaks what the Hub's real client asks; started for a test."""

import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TOKEN = "hf_of_the_tests"


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_):
        """A client that has left is none of ours."""


class SmallHub:
    """Repositories by kind and name, each with commits; what the client asked is kept."""

    def __init__(self):
        self.repositories = {}
        self.asked = []
        self.closed = False
        """Whether it breaks off every connection."""

    def commit(self, kind, name, files, *, branch="main", access="open"):
        """Put files in a repository, in place of what is there; returns the commit. Access: open, gated or private."""
        listed = sorted((path, hashlib.sha1(content).hexdigest()) for path, content in files.items())
        commit = hashlib.sha1(json.dumps([name, listed]).encode()).hexdigest()
        repository = self.repositories.setdefault((kind, name), {"commits": {}, "branches": {}})
        repository["commits"][commit] = dict(files)
        repository["branches"][branch] = commit
        repository["access"] = access
        return commit

    def answer(self, method, target, token):
        """Status, headers and body."""
        path = unquote(urlsplit(target).path)
        self.asked.append(f"{method} {path}")
        api = path.startswith("/api/")
        parts = path.removeprefix("/api").strip("/").split("/")
        kind = "dataset" if parts[0] == "datasets" else "model"
        if parts[0] == "datasets" or (api and parts[0] == "models"):
            parts = parts[1:]
        name, rest = "/".join(parts[:2]), parts[2:]
        repository = self.repositories.get((kind, name))
        if repository is None or (repository["access"] == "private" and token != TOKEN):
            return 401, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}, b""
        if api:
            return self._api(name, repository, rest)
        return self._file(repository, rest, token)

    def _api(self, name, repository, rest):
        what = rest[0] if rest else "revision"
        revision = "/".join(rest[1:]) if rest else "main"
        commit = self._commit(repository, revision)
        if commit is None:
            return 404, {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"}, b""
        files = repository["commits"][commit]
        if what == "tree":
            listed = [
                {"type": "file", "path": path, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for path, content in sorted(files.items())
            ]
            return _json(listed)
        siblings = [{"rfilename": path} for path in sorted(files)]
        private = repository["access"] == "private"
        return _json({"id": name, "modelId": name, "sha": commit, "siblings": siblings, "private": private, "tags": []})

    def _file(self, repository, rest, token):
        assert rest[0] == "resolve", rest
        commit = self._commit(repository, rest[1])
        content = None if commit is None else repository["commits"][commit].get("/".join(rest[2:]))
        if content is None:
            return 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit or ""}, b""
        if repository["access"] == "gated" and token != TOKEN:
            return 403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to it is restricted"}, b""
        headers = {"X-Repo-Commit": commit, "ETag": f'"{hashlib.sha1(content).hexdigest()}"'}
        return 200, {**headers, "Content-Type": "application/octet-stream"}, content

    @staticmethod
    def _commit(repository, revision):
        commit = repository["branches"].get(revision, revision)
        return commit if commit in repository["commits"] else None

    @contextmanager
    def serving(self):
        """The address it answers at."""
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                if hub.closed:
                    self.close_connection = True
                    self.connection.close()
                    return
                token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
                status, headers, body = hub.answer(self.command, self.path, token)
                self.send_response(status)
                for key, value in headers.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_HEAD = answer  # noqa: N815 - names that http.server looks for

            def log_message(self, *_):
                pass

        with _Server(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
            thread.start()
            self.address = f"http://127.0.0.1:{server.server_port}"
            yield self.address
            server.shutdown()
            thread.join()


def _json(value):
    return 200, {"Content-Type": "application/json"}, json.dumps(value).encode()


def files_of(folder):
    """Path → bytes of all files of a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
