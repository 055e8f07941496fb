"""Fixtures of all tests, and the backends that must not be skipped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.aarch64 import emulated
from tests.support import wasm
from xdist.scheduler import LoadScopeScheduling

from halfbyte.core.backends import available, register_family

REPOSITORY = Path(__file__).resolve().parents[1]
DATA = os.environ.get("HALFBYTE_TEST_DATA")
REQUIRED = frozenset(filter(None, os.environ.get("REQUIRE_BACKENDS", "").split(",")))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="only the tests of `make test-long`")
    parser.addoption("--browser", action="store_true", help="also those of `make test-browser`")


def pytest_configure() -> None:
    if DATA and not Path(DATA).is_dir():
        raise pytest.UsageError(f"HALFBYTE_TEST_DATA: expected a folder, found {DATA!r}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the long tests or the others, leave out ``data`` if there is none, sort."""
    long, browser = config.getoption("--long"), config.getoption("--browser")
    without = {item for item in items if (item.get_closest_marker("long") is not None) != long}
    if not browser:
        without |= {item for item in items if item.get_closest_marker("browser")}
    if not DATA:
        without |= {item for item in items if item.get_closest_marker("data")}
    config.hook.pytest_deselected(items=list(without))
    items[:] = [item for item in items if item not in without]
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


# Files whose tests share what takes long to make
TOGETHER = {
    "tests/onnx/files/test_reader.py": "ONNX's cases",
    "tests/onnx/test_narrow_indices.py": "ONNX's cases",
    "tests/onnx/test_node_cases.py": "ONNX's cases",
    "tests/onnx/test_shapes.py": "ONNX's cases",
}
# Tests that take minutes, so that no worker begins them at the end
LONGEST = (
    *(
        "tests/browser/",
        "tests/core/ops/",
        "tests/core/test_sanitizers.py",
        "tests/packaging/test_wheels.py",
    ),
    "tests/packaging/test_package.py",
)


class ByFile(LoadScopeScheduling):
    """Each file's tests run on one worker, with its fixtures, and so do those of the browser."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::")[0]
        return "tests/browser" if file.startswith("tests/browser/") else TOGETHER.get(file, file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """With -n: the assignment of tests to workers."""
    config.option.loadscopereorder = False  # keep the order above
    return ByFile(config, log)


def lacking(need: str, reason: str) -> NoReturn:
    """Skip because ``need`` is missing, or fail if REQUIRE_BACKENDS names it."""
    if need in REQUIRED:
        pytest.fail(f"REQUIRE_BACKENDS names {need}: {reason}")
    pytest.skip(f"{need}: {reason}")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The repository's root."""
    return REPOSITORY


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real files; a test that uses it is marked ``data``."""
    if not DATA:
        pytest.fail("a test that uses the fixture `data` must be marked with pytest.mark.data")
    return Path(DATA)


# Tables that this CPU lacks are left out, unless they are required or emulated.
EMULATED = tuple(f"native-{isa}" for isa in emulated.TABLES)
BACKENDS = (
    *dict.fromkeys([*available(), *sorted(REQUIRED), *EMULATED]),
    *(f"wasm-{isa}" for isa in wasm.FILES),
)
register_family("wasm", wasm.open_program)
register_family("native", emulated.open_program)
collect_ignore = [] if EMULATED else ["aarch64"]  # AArch64 machines need no emulator


def runs_here(name: str) -> str:
    """The backend's name; a required one that does not run here fails, others are skipped."""
    if name in EMULATED:
        if reason := emulated.missing():
            lacking(name, reason)
    elif not name.startswith("wasm-") and name not in available():
        lacking(name, "not compiled in, or not offered by this CPU")
    return name


# Of tables that are emulated here, the models of most tests run on one.
ONCE = [
    pytest.param(name, marks=pytest.mark.long)
    if name in EMULATED and name in ("native-neon", "native-dotprod")
    else name
    for name in BACKENDS
]


@pytest.fixture(params=ONCE)
def backend(request: pytest.FixtureRequest) -> str:
    """Each backend in turn."""
    return runs_here(request.param)


@pytest.fixture(scope="session")
def native_backends() -> list[str]:
    """Every native backend that runs here, the best first."""
    names = [name for name in available() if name != "numpy"]
    if not names:
        lacking("native-scalar", "no kernels")
    return names


@pytest.fixture(scope="session")
def compiled_backends(native_backends: list[str]) -> list[str]:
    """Every table of kernels: native ones, AArch64's in QEMU, WebAssembly's under wasmtime."""
    if os.environ.get("HALFBYTE_KERNELS"):  # only those are tested
        return native_backends
    for name in REQUIRED - {*native_backends, *EMULATED}:
        lacking(name, "not compiled in, or not offered by this CPU")
    others = [name for name in BACKENDS if name.startswith("wasm-")]
    if not emulated.missing():
        others += EMULATED
    return [*native_backends, *others]


@pytest.fixture(scope="session")
def storyteller(repository: Path) -> Path:
    """The shipped model; its tokenizer is beside it."""
    return repository / "runtime/halfbyte/data/storyteller.bin"
