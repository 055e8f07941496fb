"""The kernel tests again, with kernels built with AddressSanitizer and UBSan."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g1 -O0"


def run(*command: str | Path, **environment: str) -> str:
    """Run a command, with this environment's tools first in the path; return its output."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        command,
        env=os.environ | {"PATH": path} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def address_sanitizer() -> str:
    """Path of gcc's run-time library, which must be loaded before Python allocates memory."""
    if sys.platform != "linux" or not shutil.which("gcc"):
        pytest.skip("needs Linux and gcc: the library is preloaded")
    path = run("gcc", "-print-file-name=libasan.so").strip()
    if not Path(path).is_absolute():
        pytest.skip("gcc came without libasan")
    return path


@pytest.fixture(scope="module")
def kernels(
    address_sanitizer: str, repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The library of kernels, built with both sanitizers."""
    build = tmp_path_factory.mktemp("sanitized")
    source = repository / "runtime/kernels"
    options = ("-DCMAKE_BUILD_TYPE=Debug", f"-DCMAKE_C_FLAGS_DEBUG={FLAGS}")
    run("cmake", "-G", "Ninja", "-S", source, "-B", build, *options, CC="gcc")
    run("cmake", "--build", build, "--parallel", "2")
    library = build / "_kernels.so"
    assert b"__asan_init" in library.read_bytes()
    assert b"__ubsan_handle" in library.read_bytes()
    return library


def passed(kernels: Path, address_sanitizer: str, *arguments: str | Path) -> int:
    """The number of tests that pass with these kernels; none may fail."""
    out = run(
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments),
        HALFBYTE_KERNELS=str(kernels),
        REQUIRE_BACKENDS=os.environ.get("REQUIRE_BACKENDS") or "native-scalar",
        LD_PRELOAD=address_sanitizer,
        ASAN_OPTIONS="detect_leaks=0",  # the interpreter's own
        UBSAN_OPTIONS="print_stacktrace=1",
    )
    match = re.search(r"(\d+) passed", out)
    assert match, out
    return int(match[1])


def test_kernels_are_clean(kernels: Path, address_sanitizer: str, repository: Path) -> None:
    tests = repository / "tests/core/ops", repository / "tests/quantize/test_kernels.py"
    others = "not numpy and not wasm and not neon and not dotprod and not i8mm"
    assert passed(kernels, address_sanitizer, *tests, "-k", others) > 0


def test_graphs_are_clean(kernels: Path, address_sanitizer: str, repository: Path) -> None:
    """Change operands and attributes of every operator with a lowering, one at a time."""
    tests = repository / "tests/onnx/test_differential.py"
    chosen = "test_sizes_and_attributes and native"
    assert passed(kernels, address_sanitizer, tests, "-k", chosen) == 1
