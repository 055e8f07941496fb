"""Importing changes nothing but what is imported: every order leaves the same values behind."""

from __future__ import annotations

import json
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from tests.support.imports import imports

MEASURED = {"halfbyte.text.footprint._at_import"}  # what the process holds when it is imported


def values(repository: Path, *arguments: str) -> dict[str, str]:
    """Digests of what is at module level, from a fresh process; see `tests.support.imports`."""
    command = [sys.executable, "-m", "tests.support.imports", *arguments]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    digests: dict[str, str] = json.loads(done.stdout)
    assert digests.keys() >= MEASURED
    return {name: digest for name, digest in digests.items() if name not in MEASURED}


@pytest.fixture(scope="module")
def together(repository: Path) -> dict[str, str]:
    """Those after all modules were imported."""
    return values(repository, "shuffled", "0")


@pytest.mark.parametrize("seed", ["1", "2", "3", "4"])
def test_orders_of_imports_change_nothing(
    repository: Path, together: dict[str, str], seed: str
) -> None:
    """Registries and constants of all modules: FORMATS, OPERATORS, rules, definitions, ..."""
    other = values(repository, "shuffled", seed)
    assert "halfbyte.core.ops.operator.OPERATORS" in other
    assert {n for n in together.keys() | other.keys() if together.get(n) != other.get(n)} == set()


def test_each_module_can_come_first_and_is_left_as_it_was(
    repository: Path, together: dict[str, str]
) -> None:
    """None adds to what is another's."""
    first = values(repository, "first")
    assert {n for n in together.keys() | first.keys() if together.get(n) != first.get(n)} == set()


def test_no_module_imports_what_imports_it() -> None:
    """Neither in functions nor for type checking."""
    graph = imports()
    assert len(graph) > 300
    TopologicalSorter(graph).prepare()  # or a CycleError, which names them
