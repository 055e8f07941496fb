"""Importing a module changes no other: every order leaves the same values."""

from __future__ import annotations

import json
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from tests.support.imports import imports

FILLED = "halfbyte.onnx.reference.registry._DEFINITIONS"  # when operators are looked up
MEASURED = {"halfbyte.text.footprint._at_import"}  # the memory of the process at import


def values(repository: Path, *arguments: str) -> dict[str, str]:
    """Digests of global values, from a new process; see `tests.support.imports`."""
    command = [sys.executable, "-m", "tests.support.imports", *arguments]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    digests: dict[str, str] = json.loads(done.stdout)
    assert digests.keys() >= MEASURED
    return {name: digest for name, digest in digests.items() if name not in MEASURED}


def changed(one: dict[str, str], other: dict[str, str]) -> set[str]:
    """Names whose values differ."""
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


@pytest.fixture(scope="module")
def together(repository: Path) -> dict[str, str]:
    """Digests after importing all modules."""
    return values(repository, "shuffled", "0")


@pytest.mark.parametrize("seed", ["1", *(pytest.param(s, marks=pytest.mark.long) for s in "234")])
def test_orders_of_imports_change_nothing(
    repository: Path, together: dict[str, str], seed: str
) -> None:
    """Registries and constants of all modules: FORMATS, OPERATORS, rules, definitions, ..."""
    digests = values(repository, "shuffled", seed)
    assert "halfbyte.core.ops.operator.OPERATORS" in digests
    assert changed(together, digests) == set()


@pytest.mark.long
def test_each_module_can_come_first_and_is_left_as_it_was(
    repository: Path, together: dict[str, str]
) -> None:
    """No module changes another."""
    digests = values(repository, "first")
    assert changed(together, digests) == {FILLED}


def test_no_module_imports_what_imports_it() -> None:
    """Neither in functions nor for type checking."""
    graph = imports()
    assert len(graph) > 300
    TopologicalSorter(graph).prepare()  # or a CycleError, which names them
