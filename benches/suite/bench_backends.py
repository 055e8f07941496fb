"""The same work on every backend: NumPy, each instruction set, WebAssembly under wasmtime, threads.

WebAssembly's figures are those of wasmtime's compiler, not of a browser's.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from benches import programs
from benches.case import Bench
from benches.prepare import ROOT
from tests.support import wasm

from halfbyte.core.backends import available, register_family

SHAPES = {"Q4_0": (576, 576), "Q8_0": (576, 576), "F32": (576, 576)}
LARGE = (4096, 4096)
BACKENDS = (*available(), "wasm-simd128", "wasm-relaxed")


@pytest.fixture(scope="session", autouse=True)
def _wasm() -> Iterator[None]:
    """The package's own files, which `make bench` has built."""
    register_family("wasm", wasm.open_program)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wasm, "folder", lambda: ROOT / "runtime/halfbyte")
        yield


@pytest.mark.short
@pytest.mark.parametrize("n", [1, 32])
@pytest.mark.parametrize("kind", SHAPES)
def bench_backend(bench: Bench, kind: str, n: int) -> None:
    m, k = SHAPES[kind]
    program = programs.build("product", programs.product(kind, n, m, k))
    rows = f"{n} row{'s' * (n > 1)}"
    contenders = [programs.contender(program, f"{kind} {m}x{k}", rows, name) for name in BACKENDS]
    bench.measure(contenders, "clock")


@pytest.mark.short
@pytest.mark.parametrize("n", [1, 128])
@pytest.mark.parametrize("kind", ["Q4_0", "F16"])
def bench_threads(bench: Bench, kind: str, n: int) -> None:
    """Scaling from one thread to as many as there are cores."""
    program = programs.build("product", programs.product(kind, n, *LARGE))
    subject = f"{kind} {LARGE[0]}x{LARGE[1]}"
    counts = range(1, (os.cpu_count() or 1) + 1)
    test = f"{n} row{'s' * (n > 1)}, threads"
    contenders = [programs.contender(program, subject, test, threads=count) for count in counts]
    for contender in contenders:
        contender.clock = None  # the same for all
    bench.measure(contenders, "memory" if n == 1 else "clock")
