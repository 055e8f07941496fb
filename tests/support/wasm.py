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

from halfbyte.core.backends import side_module
from halfbyte.core.backends.library import Library
from halfbyte.core.backends.native import NativeExecutable
from halfbyte.core.backends.shared import SharedMemory
from halfbyte.core.program import Program

FILES = {
    "simd128": "kernels.wasm",
    "relaxed": "kernels-relaxed.wasm",
    "relaxed64": "kernels-64.wasm",
}
PAGE = 1 << 16
STACK, DATA = 8 * PAGE, 16 * PAGE  # end of the stack, which grows down; start of the module's data
HEAP = 32 * PAGE
REUSED = 1 << 26
TEXT = PAGE  # bytes, more than any text that the kernels return

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
def _engine() -> wasmtime.Engine:
    config = wasmtime.Config()
    config.wasm_relaxed_simd = config.wasm_memory64 = True
    return wasmtime.Engine(config)


@cache
def _module(isa: str) -> tuple[wasmtime.Module, str]:
    """A file, and the type of its addresses."""
    path = folder() / FILES[isa]
    address = side_module.address_type(path.read_bytes())
    return wasmtime.Module.from_file(_engine(), str(path)), address


class Bytes:
    """The bytes of a WebAssembly memory, as `SharedMemory` accesses them."""

    limit = 1 << 32

    def __init__(self, store: wasmtime.Store, nbytes: int, *, wide: bool) -> None:
        self._store, self._pages = store, -(-(HEAP + nbytes) // PAGE)
        limits = wasmtime.Limits(self._pages, None)
        self.memory = wasmtime.Memory(store, wasmtime.MemoryType(limits, is_64=wide))

    @property
    def size(self) -> int:
        return self._pages * PAGE

    def view(self, address: int, nbytes: int) -> U8:
        """A view, until the memory grows."""
        base = ctypes.addressof(self.memory.data_ptr(self._store).contents)
        return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(base + address))

    def read(self, address: int, out: npt.NDArray[Any]) -> None:
        out.reshape(-1).view(np.uint8)[...] = self.view(address, out.nbytes)

    def write(self, address: int, data: npt.NDArray[Any]) -> None:
        self.view(address, data.nbytes)[...] = data.reshape(-1).view(np.uint8)

    def take(self, address: int, data: Any) -> None:
        self.write(address, np.frombuffer(data, np.uint8))

    def clear(self, address: int, nbytes: int) -> None:
        self.view(address, nbytes)[...] = 0

    def grow(self, nbytes: int) -> None:
        pages = -(-nbytes // PAGE)
        self.memory.grow(self._store, pages)
        self._pages += pages


class Functions:
    """The functions of run.h, called in a WebAssembly instance."""

    def __init__(self, isa: str, nbytes: int) -> None:
        module, address = _module(isa)
        self._store = store = wasmtime.Store(_engine())
        self._bytes = Bytes(store, nbytes, wide=address == "i64")
        self.memory = SharedMemory(self._bytes, HEAP)
        table = wasmtime.Instance(store, _table(address), []).exports(store)["table"]
        values = {
            "memory": self._bytes.memory,
            "__indirect_function_table": table,
            "__memory_base": _place(store, address, DATA),
            "__table_base": _place(store, address, 1),
            "__stack_pointer": _place(store, address, STACK, mutable=True),
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
        text = self._bytes.view(address, min(TEXT, self._bytes.size - address))
        return text[: int(np.argmin(text != 0))].tobytes()

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

    def hb_run(self, *arguments: int) -> int:
        return int(self._call("hb_run", *map(int, arguments)))

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self._call(name, *arguments)


@cache
def _table(address: str) -> wasmtime.Module:
    """A table with places of this type: wasmtime makes one of 64 bits only in a module."""
    text = f'(module (table (export "table") {address} 1024 funcref))'
    return wasmtime.Module(_engine(), wasmtime.wat2wasm(text))


def _place(store: wasmtime.Store, address: str, value: int, *, mutable: bool = False) -> Any:
    kind = getattr(wasmtime.ValType, address)()
    of = wasmtime.GlobalType(kind, mutable=mutable)
    return wasmtime.Global(store, of, getattr(wasmtime.Val, address)(value))


def library(isa: str, nbytes: int) -> Library:
    """The kernels of one file, with their own memory."""
    functions = Functions(isa, nbytes)
    return Library(functions, functions.memory)


def open_program(program: Program, isa: str, threads: int) -> NativeExecutable:
    """A program in a new WebAssembly memory, with one thread."""
    del threads
    return NativeExecutable(program, isa, 1, library(isa, PAGE), "wasm")


@cache
def kernels(isa: str) -> frozenset[str]:
    """The names of the kernels in a file."""
    return frozenset(library(isa, PAGE).kernels)


@cache
def reused(isa: str) -> Library:
    """One library for all programs of `opener`."""
    return library(isa, REUSED)


def opener(isa: str) -> Callable[[Program], NativeExecutable]:
    """A function that opens programs in one memory, which is faster for many small models."""
    kernels = reused(isa)
    return lambda program: NativeExecutable(program, isa, 1, kernels, "wasm")
