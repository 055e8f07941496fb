"""The engines of the race: fetched once, checked; the page is told which are missing, and why."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from halfbyte.web import peers
from halfbyte.web.peers import Peer, get_peers
from halfbyte.web.pyodide import Reader
from halfbyte.web.site import _peer_files

CONTENT = {"LICENCE": b"MIT", "esm/index.js": b"export {}"}
HASHES = {name: hashlib.sha256(data).hexdigest() for name, data in CONTENT.items()}


@pytest.fixture(autouse=True)
def two_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    packages = {name: Peer(f"@some/{name}", "1.2.3", HASHES) for name in ("first", "second")}
    monkeypatch.setattr(peers, "PEERS", packages)
    monkeypatch.setattr("halfbyte.web.site.PEERS", packages)
    monkeypatch.setenv("HALFBYTE_PEERS", str(tmp_path))


def offline(peer: Peer) -> Reader:
    asked.append(peer.package)

    def read(name: str) -> bytes:
        raise OSError("no network")

    return read


def damaged(peer: Peer) -> Reader:
    return lambda name: CONTENT[name] + b"?"


def working(peer: Peer) -> Reader:
    asked.append(peer.package)
    return CONTENT.__getitem__


asked: list[str] = []


def test_they_are_fetched_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peers, "SOURCES", (damaged, working))
    asked.clear()
    for _ in range(2):
        assert {problem for _, problem in get_peers().values()} == {""}
    assert asked == ["@some/first", "@some/second"]
    assert (tmp_path / "second-1.2.3/esm/index.js").read_bytes() == CONTENT["esm/index.js"]
    files, _ = _peer_files()
    assert set(files) == {f"race/{name}/{path}" for name in ("first", "second") for path in CONTENT}


def test_a_file_that_is_another_is_not_served(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(peers, "SOURCES", (damaged,))
    files, facts = _peer_files()
    assert not files
    assert "damaged: LICENCE: expected sha256" in facts["first"]["problem"]
    assert not list(tmp_path.rglob("LICENCE"))


def test_the_page_is_told_why_one_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a source that cannot be reached is asked once."""
    monkeypatch.setattr(peers, "SOURCES", (offline,))
    asked.clear()
    files, facts = _peer_files()
    assert not files
    told = {"version": "1.2.3", "problem": "offline: no network"}
    assert json.loads(json.dumps(facts)) == {"first": told, "second": told}
    assert asked == ["@some/first"]
