"""AArch64's tables on another machine: a runner under QEMU, a process per table, and its bindings.

Bindings and executables are those of the package. The memory of a program is an arena in this
process; a run sends the used part of it to the runner, and receives it back.
"""

from __future__ import annotations

import os
import platform
import struct
import subprocess
import sys
import tempfile
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from tests.support.tools import load_tool, one_at_a_time

from halfbyte.core.aligned import ALIGNMENT, aligned
from halfbyte.core.backends.library import Library
from halfbyte.core.backends.memory import Memory
from halfbyte.core.backends.native import NativeExecutable
from halfbyte.core.program import Program
from halfbyte.errors import UnsupportedError

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
KERNELS = REPOSITORY / "runtime/kernels"

# Each table with a processor that supports no instruction beyond it
PROCESSORS = {"neon": "cortex-a57", "dotprod": "cortex-a76", "i8mm": "max"}
TABLES = () if platform.machine() in ("aarch64", "arm64") else tuple(PROCESSORS)

# The options of CMakeLists.txt and sources.txt, in zig's spelling
FLAGS = (
    *("-target", "aarch64-linux-musl", "-std=c11", "-ffp-contract=off", "-fno-math-errno"),
    *("-Wall", "-Wextra", "-Werror", f"-I{KERNELS}", "-ffreestanding"),
    *("-DHB_NEON", "-DHB_DOTPROD", "-DHB_I8MM"),
)
# No test runs the scalar table here, but isa.c lists it: not optimized, it compiles faster.
LISTED = ("-O0", "-fno-sanitize=all", "-fno-stack-protector")
SOURCES = {
    KERNELS / "run.c": "generic",
    KERNELS / "isa.c": "generic",
    KERNELS / "isa/scalar/table.c": "generic",
    KERNELS / "isa/neon/table.c": "generic",
    KERNELS / "isa/dotprod/table.c": "generic+dotprod",
    KERNELS / "isa/i8mm/table.c": "generic+dotprod+i8mm",
    HERE / "runner.c": "generic",
    HERE / "start.c": "generic",
}

# As in runner.c
KERNEL_LIST, CAPABILITY_LIST, ISA_NAME, OPEN, DESCRIBE, TICKS, RUN = range(7)
REQUEST, REPLY = struct.Struct("<11Q"), struct.Struct("<2Q")
ARENA = 1 << 28

U8 = npt.NDArray[np.uint8]
Bytes = bytes | bytearray | memoryview


def zig(*arguments: str | Path) -> None:
    """Run zig; fail with its message if it fails."""
    command = [sys.executable, "-m", "ziglang", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@cache
def executable() -> Path:
    """The runner, built once per test run; zig caches what it compiled."""
    folder = Path(tempfile.mkdtemp(prefix="halfbyte-aarch64-"))

    def compile_(source: Path) -> Path:
        target = folder / f"{source.parent.name}-{source.stem}.o"
        speed = LISTED if source.parent.name == "scalar" else ("-O2",)
        zig("cc", *FLAGS, *speed, f"-mcpu={SOURCES[source]}", "-c", source, "-o", target)
        return target

    with one_at_a_time(), ThreadPoolExecutor(os.cpu_count()) as threads:
        objects = list(threads.map(compile_, SOURCES))
    zig("ld.lld", "-static", *objects, "-o", folder / "runner")
    return folder / "runner"


@cache
def emulator() -> str:
    """Path of QEMU; raises `UnsupportedError` if there is none."""
    try:
        with one_at_a_time():
            path: str = load_tool(REPOSITORY, "get_qemu").get_qemu()
    except SystemExit as error:
        raise UnsupportedError(str(error)) from None
    return path


def missing() -> str | None:
    """Why nothing can be emulated here; None if it can."""
    try:
        emulator()
    except UnsupportedError as error:
        return str(error)
    return None


class Runner:
    """The process of a runner; it takes one request at a time."""

    def __init__(self, processor: str) -> None:
        self._process = subprocess.Popen(
            [emulator(), "-cpu", processor, executable()],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._lock = threading.Lock()
        self.constant = cache(self.request)  # of requests whose reply is always the same
        self.close = weakref.finalize(self, _end, self._process)  # at exit, if not before
        self.base, _ = self._reply()

    def request(
        self, function: int, *arguments: int, data: Bytes = b"", into: Bytes | None = None
    ) -> tuple[int, Bytes]:
        """Value and bytes of the reply; the bytes are written to `into` if it is given."""
        assert self._process.stdin
        numbers = [argument % 2**64 for argument in arguments] + [0] * (9 - len(arguments))
        with self._lock:
            try:
                self._process.stdin.write(REQUEST.pack(function, *numbers, len(data)))
                self._process.stdin.write(data)
                self._process.stdin.flush()
            except BrokenPipeError:
                self._failed()
            return self._reply(into)

    def _reply(self, into: Bytes | None = None) -> tuple[int, Bytes]:
        value, size = REPLY.unpack(self._read(bytearray(REPLY.size)))
        return value, self._read(bytearray(size) if into is None else into)

    def _read(self, target: Bytes) -> Bytes:
        assert self._process.stdout
        if self._process.stdout.readinto(target) != len(target):  # type: ignore[attr-defined]
            self._failed()
        return target

    def _failed(self) -> NoReturn:
        _, said = self._process.communicate()
        code = self._process.returncode
        raise RuntimeError(f"the runner ended with code {code}: {said.decode().strip()}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.communicate()


@cache
def runner(processor: str) -> Runner:
    """The process of this test run for this processor."""
    return Runner(processor)


class RemoteMemory(Memory):
    """An arena that the runner copies for each run; arrays are allocated from the bottom."""

    def __init__(self, base: int) -> None:
        self._base = base
        self._arena = aligned(ARENA)
        self._used = 0

    def aligned(self, nbytes: int) -> U8:
        start, self._used = self._used, -(-(self._used + nbytes) // ALIGNMENT) * ALIGNMENT
        if self._used > ARENA:
            raise MemoryError(f"{nbytes} bytes")
        return self._arena[start : start + nbytes]

    def reach(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        copy = self.aligned(array.nbytes).view(array.dtype).reshape(array.shape)
        copy[...] = array
        return copy

    def address(self, array: npt.NDArray[Any]) -> int:
        return int(array.ctypes.data) - int(self._arena.ctypes.data) + self._base

    def used(self) -> memoryview:
        """The part that is allocated."""
        return self._arena[: self._used].data


class Functions:
    """The functions of run.h, called in a runner; it has no threads to pool."""

    hb_pool_size = hb_pool_announce = hb_pool_stop = hb_help = None
    hb_pool_limit = hb_pool_wait = hb_pool_wake = None

    def __init__(self, processor: str) -> None:
        self._runner = runner(processor)
        self.memory = RemoteMemory(self._runner.base)

    def hb_kernel_list(self) -> bytes:
        return bytes(self._runner.constant(KERNEL_LIST)[1])

    def hb_capability_list(self) -> bytes:
        return bytes(self._runner.constant(CAPABILITY_LIST)[1])

    def hb_isa_name(self, index: int) -> bytes | None:
        there, name = self._runner.constant(ISA_NAME, index)
        return bytes(name) if there else None

    def hb_open(self, name: bytes) -> int:
        return self._runner.constant(OPEN, data=name + b"\0")[0]

    def hb_describe(self, table: int, capabilities: int) -> None:
        used = self.memory.used()
        self._runner.request(DESCRIBE, table, capabilities, data=used, into=used)

    def hb_ticks(self) -> int:
        return self._runner.request(TICKS)[0]

    def hb_run(self, *arguments: int) -> int:
        used = self.memory.used()
        self._runner.request(RUN, *map(int, arguments), data=used, into=used)
        return int(arguments[3])  # the last instruction: one thread leaves nothing


def library(isa: str) -> Library:
    """The kernels on the processor of a table, with memory of their own."""
    functions = Functions(PROCESSORS[isa])
    return Library(functions, functions.memory)


def open_program(program: Program, isa: str, threads: int) -> NativeExecutable:
    """A program on one of the tables, always with one thread."""
    del threads
    if isa not in TABLES:
        raise UnsupportedError(f"instruction set '{isa}': expected one of {TABLES}")
    return NativeExecutable(program, isa, 1, library(isa))
