"""The emulated library itself; its kernels are tested as the backends native-*."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from tests.aarch64 import emulated
from tests.conftest import lacking
from tests.support.encoders import assert_encodes, assert_encodes_in_steps
from tests.support.tools import load_tool

from halfbyte.core.backends import open_program
from halfbyte.core.backends.libraries import library
from halfbyte.core.program import capture
from halfbyte.errors import UnsupportedError


@pytest.fixture(params=emulated.TABLES)
def isa(request: pytest.FixtureRequest) -> str:
    """Each table in turn."""
    name: str = request.param
    if reason := emulated.missing():
        lacking(f"native-{name}", reason)
    return name


@pytest.fixture
def tool(repository: Path) -> ModuleType:
    return load_tool(repository, "get_qemu")


def test_both_libraries_have_the_same_kernels(isa: str) -> None:
    assert emulated.library(isa).kernels == library().kernels


def test_processors_report_their_features(isa: str) -> None:
    """The best table first, and none that the processor lacks."""
    best_first = ["i8mm", "dotprod", "neon", "scalar"]
    assert emulated.library(isa).instruction_sets == best_first[best_first.index(isa) :]


@pytest.mark.parametrize("name", ["F16", "BF16", "Q8_0", "Q4_0"])
def test_encoders_write_the_same_bytes(isa: str, name: str) -> None:
    assert_encodes(emulated.library(isa), isa, name)


@pytest.mark.parametrize("name", ["Q4_1", "Q5_0", "Q2_K", "Q6_K", "MXFP4"])
def test_encoding_step_by_step(isa: str, name: str) -> None:
    assert_encodes_in_steps(emulated.library(isa), isa, name)


def test_other_names_are_refused() -> None:
    with capture("nothing") as program:
        pass
    with pytest.raises(UnsupportedError, match="'neon2': expected one of"):
        open_program(program, "native-neon2")


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ((99,), "ended with code 1: no such function"),
        ((emulated.RUN, 1, 1, 0, 1), "ended with code -11"),  # no table at address 1
    ],
)
def test_a_runner_that_ends_says_why(isa: str, request_: tuple[int, ...], message: str) -> None:
    runner = emulated.Runner(emulated.PROCESSORS[isa])
    with pytest.raises(RuntimeError, match=message):
        runner.request(*request_, data=bytes(64))


def test_what_is_missing_is_said(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is not an emulator is ignored."""
    for name in ("on_path", "from_debian", "from_cache"):
        monkeypatch.setattr(tool, name, lambda: None)
    monkeypatch.setenv("HALFBYTE_QEMU", "/bin/true")
    monkeypatch.setattr(tool.sys, "platform", "linux")
    with pytest.raises(SystemExit, match="/bin/true"):
        tool.get_qemu()
    monkeypatch.setattr(tool.sys, "platform", "darwin")
    with pytest.raises(SystemExit, match="on Linux, not darwin"):
        tool.get_qemu()
