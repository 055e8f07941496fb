"""The kernels in a browser's shared memory, as Python calls them there.

Addresses in a memory of 64 bits are JavaScript's BigInts, in one of 32 bits its numbers; the
kernels' file says which (see `side_module`), and everything here follows it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.core.backends import side_module
from halfbyte.core.backends.library import FUNCTIONS, POINTER
from halfbyte.core.backends.shared import U8, SharedArray, SharedMemory
from halfbyte.errors import UnsupportedError

PAGE = 1 << 16
MAX_PAGES = {  # what WebAssembly addresses, or the most that the browser reserves
    "i32": (65536, 32768, 16384, 8192),
    "i64": (262144, 196608, 131072, 98304),
}
STACK = 8 * PAGE  # bytes, of each thread
MAX_PARTS = 256  # JavaScript arrays that are kept, since making one takes microseconds


_refusal = ""  # of a worker by this page, once it is known


def refuse_workers(reason: str) -> None:
    """Remember that this page must not have workers."""
    global _refusal
    _refusal = reason


def why_not() -> str:
    """Why this page cannot have threads; empty if it can, as far as is known."""
    js: Any = import_module("js")
    if _refusal:
        return _refusal
    if not hasattr(js, "crossOriginIsolated"):
        return "only a browser's page has web workers that share memory, and this is not one"
    if not js.crossOriginIsolated:
        return (
            "the page is not cross-origin isolated, which its server has to ask for with the "
            "headers Cross-Origin-Opener-Policy: same-origin and Cross-Origin-Embedder-Policy: "
            "require-corp"
        )
    if not hasattr(js, "SharedArrayBuffer"):
        return "the browser has no shared memory"
    if not hasattr(js, "Worker"):
        return "the browser has no workers inside of workers"
    return ""


class JsBytes:
    """The bytes of a shared `WebAssembly.Memory`; `number` makes a number of its addresses."""

    def __init__(self, memory: Any, number: Callable[[int], Any], limit: int) -> None:
        self.memory, self.limit, self._js = memory, limit, import_module("js")
        self._number = number
        self._view = self._js.Uint8Array.new(memory.buffer)
        self._parts: dict[tuple[int, int], Any] = {}  # those used last

    @property
    def size(self) -> int:
        return int(self._view.length)

    def part(self, address: int, nbytes: int) -> Any:
        """A JavaScript array of these bytes."""
        part = self._parts.get((address, nbytes))
        if part is None:
            if len(self._parts) >= MAX_PARTS:
                self._parts.clear()
            part = self._view.subarray(address, address + nbytes)
            self._parts[address, nbytes] = part
        return part

    def read(self, address: int, out: npt.NDArray[Any]) -> None:
        if out.nbytes:
            self.part(address, out.nbytes).assign_to(bytes_of(out))

    def write(self, address: int, data: npt.NDArray[Any]) -> None:
        if data.nbytes:
            self.part(address, data.nbytes).assign(bytes_of(data))

    def take(self, address: int, data: Any) -> None:
        self._view.set(data, address)

    def clear(self, address: int, nbytes: int) -> None:
        self.part(address, nbytes).fill(0)

    def grow(self, nbytes: int) -> None:
        try:
            self.memory.grow(self._number(-(-nbytes // PAGE)))
        except Exception as error:  # JavaScript's RangeError
            raise MemoryError(f"{nbytes} bytes: {error}") from None
        self._parts.clear()
        self._view = self._js.Uint8Array.new(self.memory.buffer)


def bytes_of(array: npt.NDArray[Any]) -> U8:
    """The bytes of a C-contiguous array: a view."""
    return array.reshape(-1).view(np.uint8)


class SharedFunctions:
    """The functions of run.h in shared memory.

    Parameters
    ----------
    path : Path
        A file of kernels.

    Raises
    ------
    UnsupportedError
        The page may not share memory, or the browser grants none.
    """

    def __init__(self, path: Path) -> None:
        if reason := why_not():
            raise UnsupportedError(f"no threads: {reason}")
        self._js: Any = import_module("js")
        data = path.read_bytes()
        self.needs = side_module.needs(data)
        self._number = _numbers(self.needs.address)
        self.js_memory, pages = self._new_memory()
        shared = to_js(side_module.with_shared_memory(data, pages))
        if not self._js.WebAssembly.validate(shared):
            raise UnsupportedError(f"{path.name} needs instructions that this browser lacks")
        self.module = self._js.WebAssembly.Module.new(shared)
        source = JsBytes(self.js_memory, self._number, pages * PAGE)
        self.memory = SharedMemory(source, PAGE)
        self._own = self.room()  # of this thread, kept with it
        self._exports = self._instance(*self._own)

    def _new_memory(self) -> tuple[Any, int]:
        number, address, reason = self._number, self.needs.address, ""
        for pages in MAX_PAGES[address]:
            limits = to_object(
                initial=number(16), maximum=number(pages), shared=True, address=address
            )
            try:
                return self._js.WebAssembly.Memory.new(limits), pages
            except Exception as error:  # JavaScript's RangeError, or TypeError
                reason = str(error)
        what = "shared memory" if address == "i32" else "shared memory of 64 bits"
        raise UnsupportedError(f"no threads: the browser grants no {what} ({reason})")

    def room(self) -> tuple[SharedArray, SharedArray]:
        """Memory for the data and the stack of one more thread."""
        return self.memory.aligned(self.needs.memory), self.memory.unset(STACK)

    def _instance(self, data: SharedArray, stack: SharedArray) -> Any:
        wasm, number, address = self._js.WebAssembly, self._number, self.needs.address

        def place(value: int, mutable: bool) -> Any:
            return wasm.Global.new(to_object(value=address, mutable=mutable), number(value))

        entries = number(1 + self.needs.table)
        table = wasm.Table.new(to_object(element="anyfunc", initial=entries, address=address))
        env = to_object(
            memory=self.js_memory, __indirect_function_table=table,
            __memory_base=place(data.address, mutable=False),
            __table_base=place(1, mutable=False),
            __stack_pointer=place(stack.address + STACK, mutable=True),
        )  # fmt: skip
        exports = wasm.Instance.new(self.module, to_object(env=env)).exports
        if relocate := getattr(exports, "__wasm_apply_data_relocs", None):
            relocate()
        return exports

    def message(self, data: SharedArray, stack: SharedArray, **more: Any) -> Any:
        """What worker.js needs to make an instance with this data and stack."""
        return to_object(
            module=self.module, memory=self.js_memory, address=self.needs.address,
            base=data.address, stack=stack.address + STACK, entries=1 + self.needs.table, **more,
        )  # fmt: skip

    def _text(self, address: int) -> bytes | None:
        address = int(address)  # which may be a BigInt
        if not address:
            return None
        text, size = b"", 256
        while b"\0" not in text:
            out = np.empty(min(size, self.memory.bytes.size - address), np.uint8)
            self.memory.bytes.read(address, out)
            text, size = out.tobytes(), 4 * size
        return text.partition(b"\0")[0]

    def hb_kernel_list(self) -> bytes | None:
        return self._text(self._exports.hb_kernel_list())

    def hb_capability_list(self) -> bytes | None:
        return self._text(self._exports.hb_capability_list())

    def hb_isa_name(self, index: int) -> bytes | None:
        return self._text(self._exports.hb_isa_name(index))

    def hb_open(self, name: bytes) -> int:
        text = self.memory.reach(np.frombuffer(name + b"\0", np.uint8))
        return int(self._exports.hb_open(self._number(text.address)))

    def __getattr__(self, name: str) -> Any:
        function, number = getattr(self._exports, name), self._number
        places = [i for i, kind in enumerate(FUNCTIONS[name][1]) if kind is POINTER]
        if self.needs.address == "i32" or not places:
            return function

        def call(*arguments: int) -> Any:
            given: list[Any] = list(arguments)
            for place in places:
                given[place] = number(given[place])
            return function(*given)

        return call


def _numbers(address: str) -> Callable[[int], Any]:
    """Makes numbers that JavaScript takes as addresses of this type."""
    if address == "i32":
        return int
    big: Callable[[int], Any] | None = getattr(import_module("pyodide.ffi"), "JsBigInt", None)
    if big is None:
        raise UnsupportedError("no 64-bit memory: this version of Pyodide passes no BigInt")
    return big


def to_js(value: Any) -> Any:
    """A JavaScript copy of a value."""
    convert: Callable[..., Any] = import_module("pyodide.ffi").to_js
    return convert(value)


def to_object(**values: Any) -> Any:
    """A JavaScript object with these members."""
    js: Any = import_module("js")
    convert: Callable[..., Any] = import_module("pyodide.ffi").to_js
    return convert(values, dict_converter=js.Object.fromEntries)
