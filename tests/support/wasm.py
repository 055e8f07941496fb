"""The WebAssembly kernels in this process, under wasmtime: the same bindings, other memory."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import wasmtime
from tests.support.tools import one_at_a_time

from halfbyte.core.backends.library import Library
from halfbyte.core.backends.memory import ALIGNMENT, Memory
from halfbyte.core.backends.native import NativeExecutable
from halfbyte.core.program import Program

FILES = {"simd128": "kernels.wasm", "relaxed": "kernels-relaxed.wasm"}
PAGE = 1 << 16
STACK, DATA = 8 * PAGE, 16 * PAGE  # end of the stack, which grows down; start of the module's data
HEAP = 32 * PAGE
REUSED = 1 << 26

U8 = npt.NDArray[np.uint8]


@cache
def folder() -> Path:
    """A folder with both files, built once per test run."""
    repository = Path(__file__).resolve().parents[2]
    target = Path(tempfile.mkdtemp(prefix="halfbyte-wasm-"))
    command = [sys.executable, repository / "tools/build_wasm.py", "-o", target]
    with one_at_a_time():
        subprocess.run(command, check=True, capture_output=True)
    return target


@cache
def _module(isa: str) -> tuple[wasmtime.Engine, wasmtime.Module]:
    config = wasmtime.Config()
    config.wasm_relaxed_simd = True
    engine = wasmtime.Engine(config)
    return engine, wasmtime.Module.from_file(engine, str(folder() / FILES[isa]))


class WasmMemory(Memory):
    """One WebAssembly memory; arrays are views of it, allocated from the bottom up."""

    def __init__(self, store: wasmtime.Store, nbytes: int) -> None:
        pages = -(-(HEAP + nbytes) // PAGE)
        self.memory = wasmtime.Memory(store, wasmtime.MemoryType(wasmtime.Limits(pages, pages)))
        self._base = ctypes.addressof(self.memory.data_ptr(store).contents)
        size = pages * PAGE
        buffer = (ctypes.c_uint8 * size).from_address(self._base)
        buffer.keep = (store, self.memory)  # type: ignore[attr-defined] # while any array lives
        self.bytes: U8 = np.ctypeslib.as_array(buffer)
        self._next = self._kept = HEAP

    @property
    def free(self) -> int:
        """Bytes that are not allocated."""
        return len(self.bytes) - self._next

    def keep(self) -> None:
        """Keep the present allocations when the memory is cleared."""
        self._kept = self._next

    def clear(self) -> None:
        """Zero and free the allocations since `keep`."""
        self.bytes[self._kept : self._next] = 0
        self._next = self._kept

    def aligned(self, nbytes: int) -> U8:
        start, self._next = self._next, -(-(self._next + nbytes) // ALIGNMENT) * ALIGNMENT
        if self._next > len(self.bytes):
            raise MemoryError(f"{nbytes} bytes")
        return self.bytes[start : start + nbytes]

    def reach(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        copy = self.aligned(array.nbytes).view(array.dtype).reshape(array.shape)
        copy[...] = array
        return copy

    def address(self, array: npt.NDArray[Any]) -> int:
        return int(array.ctypes.data) - self._base


class Functions:
    """The functions of run.h, called in a WebAssembly instance."""

    def __init__(self, isa: str, nbytes: int) -> None:
        engine, module = _module(isa)
        self._store = store = wasmtime.Store(engine)
        self.memory = WasmMemory(store, nbytes)
        table = wasmtime.Table(
            store,
            wasmtime.TableType(wasmtime.ValType.funcref(), wasmtime.Limits(1024, None)),
            None,
        )
        values = {
            "memory": self.memory.memory,
            "__indirect_function_table": table,
            "__memory_base": _constant(store, DATA),
            "__table_base": _constant(store, 1),
            "__stack_pointer": _variable(store, STACK),
        }
        imports = [values[str(item.name)] for item in module.imports]
        self._exports = wasmtime.Instance(store, module, imports).exports(store)
        for name in ("__wasm_apply_data_relocs", "__wasm_call_ctors"):
            if name in self._exports:
                self._call(name)

    def _call(self, name: str, *arguments: int) -> Any:
        return self._exports[name](self._store, *arguments)  # type: ignore[operator]

    def _text(self, address: int) -> bytes | None:
        if not address:
            return None
        end = address + int(np.argmin(self.memory.bytes[address:] != 0))
        return self.memory.bytes[address:end].tobytes()

    def hb_kernel_list(self) -> bytes | None:
        return self._text(self._call("hb_kernel_list"))

    def hb_capability_list(self) -> bytes | None:
        return self._text(self._call("hb_capability_list"))

    def hb_isa_name(self, index: int) -> bytes | None:
        return self._text(self._call("hb_isa_name", index))

    def hb_open(self, name: bytes) -> int:
        text = self.memory.reach(np.frombuffer(name + b"\0", np.uint8))
        return int(self._call("hb_open", self.memory.address(text)))

    def hb_ticks(self) -> int:
        return int(self._call("hb_ticks"))

    def hb_run(self, *arguments: int) -> None:
        self._call("hb_run", *map(int, arguments))

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self._call(name, *arguments)


def _constant(store: wasmtime.Store, value: int) -> wasmtime.Global:
    kind = wasmtime.GlobalType(wasmtime.ValType.i32(), mutable=False)
    return wasmtime.Global(store, kind, wasmtime.Val.i32(value))


def _variable(store: wasmtime.Store, value: int) -> wasmtime.Global:
    kind = wasmtime.GlobalType(wasmtime.ValType.i32(), mutable=True)
    return wasmtime.Global(store, kind, wasmtime.Val.i32(value))


def library(isa: str, nbytes: int) -> Library:
    """The kernels of one file, with their own memory."""
    functions = Functions(isa, nbytes)
    return Library(functions, functions.memory)


def open_program(program: Program, isa: str, threads: int) -> NativeExecutable:
    """A program in a new WebAssembly memory that is just large enough, with one thread."""
    del threads
    return NativeExecutable(program, isa, 1, library(isa, _needed(program)), "wasm")


def _needed(program: Program) -> int:
    buffers = 2 * sum(buffer.nbytes + 1024 for buffer in program.buffers)
    return buffers + 256 * len(program.instructions) + (1 << 20)


@cache
def _reused(isa: str) -> Library:
    reused = library(isa, REUSED)
    reused.table(isa)  # which puts its name into the memory
    reused.memory.keep()  # type: ignore[attr-defined]
    return reused


def opener(isa: str) -> Callable[[Program], NativeExecutable]:
    """A function that opens programs one after the other in one memory, if they fit.

    Programs opened earlier must not run any more. This is faster for many small models.
    """
    reused = _reused(isa)
    memory = reused.memory
    assert isinstance(memory, WasmMemory)
    memory.clear()

    def open_one(program: Program) -> NativeExecutable:
        if _needed(program) > memory.free:
            return open_program(program, isa, 1)
        return NativeExecutable(program, isa, 1, reused, "wasm")

    return open_one
