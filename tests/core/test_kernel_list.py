"""The list of kernels, kernels.h, names the file of each body; instruction sets."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from halfbyte.core.backends.libraries import instruction_sets, library

HEADING = re.compile(r"/\* ---- (\S+\.inc) ---- \*/")
ENTRY = re.compile(r"\bKERNEL\((\w+),")
MARKER = re.compile(r'# \d+ "([^"]+)"')
CAPABILITY = re.compile(r"^CAPABILITY\((\w+)\)", re.MULTILINE)
BODY = re.compile(r"static void (\w+)\(const void\* arguments, int64_t begin, int64_t end\) {")


@pytest.fixture(scope="module")
def folder(repository: Path) -> Path:
    return repository / "runtime/kernels"


def preprocessed(folder: Path, file: str, *options: str) -> str:
    command = [sys.executable, "-m", "ziglang", "cc", "-E", *options, f"-I{folder}", folder / file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def headings(folder: Path) -> dict[str, str]:
    """The heading above every entry; the list's own macros are expanded, KERNEL is not."""
    result: dict[str, str] = {}
    heading = ""
    for line in preprocessed(folder, "kernels.h", "-xc", "-P", "-C").splitlines():
        if match := HEADING.match(line):
            heading = match[1]
        for name in ENTRY.findall(line) if heading else ():
            assert name not in result
            result[name] = heading
    return result


def bodies(folder: Path) -> dict[str, str]:
    """The file in which the compiler finds the body of every kernel."""
    result: dict[str, str] = {}
    file = ""
    for line in preprocessed(folder, "isa/scalar/table.c").splitlines():
        if match := MARKER.match(line):
            file = match[1]
        for name in BODY.findall(line):
            result[name] = Path(file).resolve().relative_to(folder.resolve()).as_posix()
    return result


def test_headings_are_the_files_of_bodies(folder: Path) -> None:
    assert len(headings(folder)) > 150
    assert headings(folder) == bodies(folder)


def test_bodies_ask_for_no_instruction_set(folder: Path) -> None:
    """Conditions belong in isa/: a body with one is two that are never compiled together."""
    files = [path for path in folder.rglob("*.inc") if path.name != "table.inc"]  # a list of them
    assert len(files) > 30
    for path in files:
        conditions = re.findall(r"^\s*#\s*(?:if|ifdef|ifndef|elif)\b.*", path.read_text(), re.M)
        assert not conditions, path


# REGISTER_LANES, BYTE_PRODUCTS, UNPACKED_FASTER
EXPECTED = {
    "avx512vnni": (16, 1, 0),
    "avxvnni": (8, 1, 0),
    "avx2": (8, 0, 1),
    "i8mm": (4, 1, 0),
    "dotprod": (4, 1, 0),
    "neon": (4, 0, 0),
    "scalar": (1, 0, 0),
}


@pytest.mark.parametrize("isa", instruction_sets())
def test_instruction_sets_describe_themselves(folder: Path, isa: str) -> None:
    capabilities = library().capabilities(isa)
    assert list(capabilities) == CAPABILITY.findall((folder / "isa/caps.h").read_text())
    names = "REGISTER_LANES", "BYTE_PRODUCTS", "UNPACKED_FASTER"
    assert tuple(capabilities[name] for name in names) == EXPECTED[isa]
