"""All pages: links work in the repository too, commands exist, and lines fit a window."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.support.tools import load_tool

WIDTH = 120
MAX_OF_README = 90  # lines: one screen
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
MODULE = re.compile(r"\bpython -m\s+([\w.]+)")
SCRIPT = re.compile(r"\btools/\w+\.py\b")
TARGET = re.compile(r"(?:^|`)make ([a-z][a-z-]*)", re.MULTILINE)


def pages(repository: Path) -> list[Path]:
    """Markdown for people, wherever it is."""
    return sorted([*repository.glob("*.md"), *(repository / "docs").rglob("*.md")])


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them, and those that it sets itself."""
    text = CODE.sub(_name, page.read_text("utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'^<a id="([\w-]+)"></a>$', text, re.MULTILINE))


def _name(code: re.Match[str]) -> str:
    return "" if code[0].startswith("```") else code[0].strip("`")


def broken_links(page: Path) -> list[str]:
    """Relative links of a page without a file or a heading."""
    lines = []
    for link in LINK.findall(CODE.sub("", page.read_text("utf-8"))):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if re.match(r"\w+:", link):
            continue
        if not target.is_file() or (anchor and anchor not in anchors(target)):
            lines.append(f"{page.name}: {link}")
    return lines


def test_links_hold_in_the_repository(repository: Path) -> None:
    assert [line for page in pages(repository) for line in broken_links(page)] == []
    assert sum(len(LINK.findall(page.read_text("utf-8"))) for page in pages(repository)) > 20


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text(
        "# A `b` c\n[x](#a-b-c) [y](#b) [z](b.md) [w](https://example.org) `[v](v.md)`\n"
    )
    assert broken_links(page) == ["a.md: #b", "a.md: b.md"]


def missing_commands(repository: Path, page: Path) -> list[str]:
    """Modules, tools and targets of make that a page's commands name, and that do not exist."""
    text = page.read_text("utf-8")
    targets = re.findall(r"^([a-z-]+):", (repository / "Makefile").read_text("utf-8"), re.MULTILINE)
    return [
        *(f"{page.name}: python -m {name}" for name in MODULE.findall(text) if not runs(name)),
        *(f"{page.name}: {s}" for s in SCRIPT.findall(text) if not (repository / s).is_file()),
        *(f"{page.name}: make {name}" for name in TARGET.findall(text) if name not in targets),
    ]


def runs(module: str) -> bool:
    """Whether `python -m` runs a module: a package needs its `__main__`."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:  # its package
        return False
    if spec is not None and spec.submodule_search_locations is not None:
        spec = find_spec(f"{module}.__main__")
    return spec is not None


def test_commands_exist(repository: Path) -> None:
    assert [line for page in pages(repository) for line in missing_commands(repository, page)] == []


def test_a_missing_command_is_found(repository: Path, tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text(
        "`python -m benches -k fusion`, `python -m\nbenches.quality`, `make test`, they make tea:\n"
        "`python -m benches.gone`, `python -m gone.too`, `python -m benches.suite`,\n"
        "`python tools/gone.py`\n```sh\nmake tea\n```\n"
    )
    assert missing_commands(repository, page) == [
        "a.md: python -m benches.gone", "a.md: python -m gone.too",
        "a.md: python -m benches.suite", "a.md: tools/gone.py", "a.md: make tea",
    ]  # fmt: skip


def test_lines_fit_a_window(repository: Path) -> None:
    wide = [
        f"{page.name}:{number}"
        for page in pages(repository)
        for number, line in enumerate(page.read_text("utf-8").splitlines(), 1)
        if len(line) > WIDTH
    ]
    assert wide == []


def test_the_readme_is_a_screen(repository: Path) -> None:
    assert len((repository / "README.md").read_text("utf-8").splitlines()) <= MAX_OF_README


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('<p id="a"></p><a href="#a">a</a><a href="b/">b</a><a href="https://x.org/y">y</a>', []),
        ('<a href="b/#there">b</a><img src="b/none.png">', [
            "index.html: b/#there: no such anchor", "index.html: b/none.png: no such file",
        ]),
    ],
)  # fmt: skip
def test_links_of_a_site(repository: Path, tmp_path: Path, body: str, expected: list[str]) -> None:
    check_site = load_tool(repository, "check_site")
    (tmp_path / "b").mkdir()
    (tmp_path / "b/index.html").write_text("<p>b</p>")
    (tmp_path / "index.html").write_text(body)
    assert check_site.broken(tmp_path) == expected
