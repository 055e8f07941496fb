"""The page's own files: all modules with which a page starts are requested at once."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from halfbyte.web.graphs import hearing, search
from halfbyte.web.site import PAGE

IMPORT = re.compile(r'^import [^;]*?from "([\w./-]+)";$', re.MULTILINE)
PRELOADED = re.compile(r'<link rel="modulepreload" href="([\w./-]+)">')


def imported(module: Path, before: frozenset[Path] = frozenset()) -> frozenset[Path]:
    """A module and those that it needs before it starts."""
    if module in before:
        return before
    modules = before | {module}
    for other in IMPORT.findall(module.read_text()):
        modules = imported((module.parent / other).resolve(), modules)
    return modules


@pytest.mark.parametrize(
    ("page", "connect"),
    [
        ("index.html", ["'self'", "http:", "https:", "blob:", "data:"]),  # a model may be anywhere
        ("race/index.html", ["'self'", "blob:", "data:"]),
    ],
)
def test_policies(page: str, connect: list[str]) -> None:
    """What a page may run and where it may connect."""
    [policy] = re.findall(r'"Content-Security-Policy" content="([^"]+)"', (PAGE / page).read_text())
    allowed = {name: values for name, *values in map(str.split, policy.split(";"))}
    assert allowed["default-src"] == ["'none'"]
    assert allowed["script-src"] == ["'self'", "'wasm-unsafe-eval'"]
    assert allowed["worker-src"] == ["'self'", "blob:"]
    assert allowed["connect-src"] == connect


@pytest.mark.parametrize("start", ["app.mjs", "race/race.mjs"])
def test_modules_are_preloaded(start: str) -> None:
    """Otherwise a browser learns of each only from the one that imports it."""
    folder = (PAGE / start).resolve().parent
    listed = PRELOADED.findall((folder / "index.html").read_text())
    assert sorted((folder / name).resolve() for name in listed) == sorted(
        imported((PAGE / start).resolve())
    )


def test_it_installs_as_an_app() -> None:
    """With what browsers ask for: a name, a start, a window of its own, icons."""
    manifest = json.loads((PAGE / "manifest.webmanifest").read_text())
    assert 'rel="manifest" href="manifest.webmanifest"' in (PAGE / "index.html").read_text()
    assert manifest["name"]
    assert [manifest[name] for name in ("start_url", "scope", "display")] == [
        ".",
        ".",
        "standalone",
    ]
    assert [icon["purpose"] for icon in manifest["icons"]] == ["any", "maskable"]
    for icon in manifest["icons"]:
        assert ET.parse(PAGE / icon["src"]).getroot().tag.endswith("}svg")  # noqa: S314


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        ("sound.mjs", "LONGEST", hearing.MAX_SECONDS),
        ("search.mjs", "LARGEST", 4 * search.MAX_CHARACTERS),  # bytes of a character
    ],
)
def test_limits_that_python_has_too(module: str, name: str, value: int) -> None:
    [found] = re.findall(rf"const {name} = ([\d_]+);", (PAGE / module).read_text())
    assert int(found) == value
