"""A server that behaves like the Hugging Face hub, as far as the hub's own library needs it."""

from __future__ import annotations

import hashlib
import http.server
import json
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.support.http_server import in_thread

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_of_the_tests"  # noqa: S105 - not of a real account


@dataclass
class Repository:
    """A repository's files, and whether they need a token."""

    files: dict[str, bytes]
    private: bool = False
    gated: bool = False


@dataclass(frozen=True)
class Request:
    """A request to the server."""

    method: str
    path: str
    range: str | None


class Hub(http.server.ThreadingHTTPServer):
    """Serves repositories by name, and records requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, Repository] = {}
        self.requests: list[Request] = []
        self.breaks: Counter[str] = Counter()  # by file: transfers that will break off half-way
        self.damages: Counter[str] = Counter()  # by file: transfers whose last byte will be wrong

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def fetched(self) -> list[str]:
        """Files whose bytes were requested, sorted."""
        gets = [r.path for r in self.requests if r.method == "GET" and "/resolve/" in r.path]
        return sorted({path.split(f"/resolve/{COMMIT}/")[1] for path in gets})


@dataclass
class _Answer:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


class Handler(http.server.BaseHTTPRequestHandler):
    """One request."""

    server: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._respond()

    def do_HEAD(self) -> None:
        self._respond()

    def log_message(self, *arguments: object) -> None:
        """Print nothing."""

    def _respond(self) -> None:
        path = urlsplit(self.path).path
        self.server.requests.append(Request(self.command, path, self.headers.get("Range")))
        answer = self._answer(path)
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        name = path.rsplit("/", 1)[-1]
        if self.server.breaks[name] > 0:
            self.server.breaks[name] -= 1
            self.wfile.write(answer.body[: len(answer.body) // 2])
            self.wfile.flush()
            self.close_connection = True
            return
        if self.server.damages[name] > 0:
            self.server.damages[name] -= 1
            answer.body = answer.body[:-1] + bytes([answer.body[-1] ^ 1])
        self.wfile.write(answer.body)

    def _answer(self, path: str) -> _Answer:
        api = path.startswith("/api/models/")
        parts = path.removeprefix("/api/models/").strip("/").split("/")
        repository = self.server.repositories.get("/".join(parts[:2]))
        authorized = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if repository is None or (repository.private and not authorized):
            return self._error(401, "RepoNotFound", "Repository not found")
        rest = parts[2:]
        if len(rest) > 1 and rest[1] not in ("main", COMMIT):
            return self._error(404, "RevisionNotFound", "Invalid rev id")
        if not api:
            if repository.gated and not authorized:
                return self._error(403, "GatedRepo", "Access is restricted")
            return self._file(repository, "/".join(rest[2:]))
        listing = self._tree(repository) if rest[:1] == ["tree"] else self._info(parts, repository)
        return _Answer(200, json.dumps(listing).encode(), {"Content-Type": "application/json"})

    def _error(self, status: int, code: str, text: str) -> _Answer:
        return _Answer(status, b"", {"X-Error-Code": code, "X-Error-Message": text})

    def _info(self, parts: list[str], repository: Repository) -> object:
        siblings = [
            {"rfilename": name, "size": len(content)} | _stored_apart(name, content)
            for name, content in repository.files.items()
        ]
        return {"id": "/".join(parts[:2]), "sha": COMMIT, "siblings": siblings, "tags": []}

    def _tree(self, repository: Repository) -> object:
        return [
            {"type": "file", "path": name, "size": len(content), "oid": _etag(content)}
            for name, content in repository.files.items()
        ]

    def _file(self, repository: Repository, name: str) -> _Answer:
        content = repository.files.get(name)
        if content is None:
            return self._error(404, "EntryNotFound", "Entry not found")
        headers = {
            "ETag": f'"{_etag(content)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes",
            "X-Linked-Size": str(len(content)), "X-Linked-Etag": f'"{_etag(content)}"',
        }  # fmt: skip
        bytes_ = self.headers.get("Range")
        if bytes_ is None:
            return _Answer(200, content, headers)
        start = int(bytes_.removeprefix("bytes=").split("-")[0])
        headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        return _Answer(206, content[start:], headers)


def _stored_apart(name: str, content: bytes) -> dict[str, object]:
    """What the hub says of weights."""
    if not name.endswith((".gguf", ".safetensors", ".bin")):
        return {}
    sha256 = hashlib.sha256(content).hexdigest()
    return {"lfs": {"sha256": sha256, "size": len(content), "pointerSize": 134}}


def _etag(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()  # noqa: S324 - as Git does


def serving() -> AbstractContextManager[Hub]:
    """The running hub."""
    return in_thread(Hub())
