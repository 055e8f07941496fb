"""Small programs for cases: a few operators with random operands, opened on a backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from benches.figures import Series
from benches.turns import Contender
from benches.yardstick import clock_of

from halfbyte.core import ops
from halfbyte.core.backends import Executable, open_program
from halfbyte.core.buffer import Buffer
from halfbyte.core.dtypes import DTYPES
from halfbyte.core.passes import plan_memory
from halfbyte.core.program import Program, capture
from halfbyte.weights import FORMATS, Tensor

Record = Callable[[Program], Buffer]
TILE = 64  # rows of a matrix that are encoded; the others repeat them


def weight(program: Program, kind: str, m: int, k: int) -> Buffer:
    """A random matrix [m, k] in a format, packed where the format has a packed layout."""
    format_ = FORMATS[kind]
    packed = format_.packed if m >= TILE else None
    tile = min(m, TILE)
    values = np.random.default_rng(m).standard_normal((tile, k), np.float32) / np.float32(k**0.5)
    rows = format_.encode(values)
    data = np.resize(packed.pack(rows) if packed else rows.reshape(-1), rows.nbytes // tile * m)
    return program.weight(Tensor(f"w{m}x{k}", packed or format_, (m, k), data))


def quantized(program: Program, n: int, k: int) -> tuple[Buffer, Buffer, Buffer]:
    """Inputs as `ops.dynamic_quantize` gives them."""
    shapes = {"xq": ("i8", k), "xd": ("f32", k // 32), "xs": ("i16", k // 16)}
    xq, xd, xs = (program.input(name, d, (n, width)) for name, (d, width) in shapes.items())
    return xq, xd, xs


def product(kind: str, n: int, m: int, k: int) -> Record:
    """x[n, k] w[m, k]; in block formats with int8 activations."""

    def record(program: Program) -> Buffer:
        if FORMATS[kind].block > 1:
            return ops.matmul_int8(*quantized(program, n, k), weight(program, kind, m, k))  # type: ignore[no-any-return]
        return ops.matmul(program.input("x", "f32", (n, k)), weight(program, kind, m, k))  # type: ignore[no-any-return]

    return record


def build(name: str, record: Record) -> Program:
    """The program that `record` records, with its result as output."""
    with capture(name) as program:
        program.output("y", record(program))
    return plan_memory(program)


def contender(
    program: Program, subject: str, test: str, backend: str = "native", threads: int = 1
) -> Contender:
    """The program on a backend; its figures tell the bytes and operations of a run."""
    executable = open_program(program, backend, threads)
    _fill(program, executable)
    more: dict[str, Any] = {
        "bytes": sum(i.bytes_moved({}) for i in program.instructions),
        "operations": sum(i.operations({}) for i in program.instructions),
        "kernels": [i.operator.kernel(i) for i in program.instructions if not i.operator.host],
    }
    name = executable.backend if backend == "native" else backend
    series = Series(subject, name, test, threads, more=more)
    clock = clock_of(threads) if backend != "numpy" else None  # whose BLAS has threads
    return Contender(series, lambda: executable.run({}), clock=clock)


def _fill(program: Program, executable: Executable) -> None:
    """Inputs and states with numbers between -1 and 1, or -127 and 127."""
    random = np.random.default_rng(0)
    for buffer in program.buffers:
        if buffer.kind.name not in ("INPUT", "STATE"):
            continue
        array = executable.array(buffer)
        if buffer.dtype not in DTYPES:
            continue
        if array.dtype.kind == "f":
            array[...] = random.uniform(-1, 1, array.shape)
        elif array.dtype.kind == "i":
            array[...] = random.integers(-127, 128, array.shape)
