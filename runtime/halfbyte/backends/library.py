"""The compiled kernels: finding the library, its C interface and the list of kernels it has."""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from halfbyte.errors import UnsupportedError

SLOTS = 14
INSTRUCTION = np.dtype(
    [("kernel", "<i4"), ("chunk", "<i4"), ("ticks", "<u8"), ("slot", "<u8", (SLOTS,))]
)
PATCH = np.dtype([("instruction", "<i4"), ("slot", "<i4"), ("register", "<i4")])


class Field(NamedTuple):
    """One argument of a kernel: out, in, int or float; the dtype of pointers as in kernels.h."""

    kind: str
    dtype: str
    name: str


@dataclass(frozen=True)
class Kernel:
    """A line of kernels.h."""

    index: int
    name: str
    fields: tuple[Field, ...]


def _path() -> Path:
    chosen = os.environ.get("HALFBYTE_KERNELS")
    if chosen:
        return Path(chosen)
    suffix = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")
    import halfbyte

    for folder in halfbyte.__path__:  # an editable install has two: the sources and the build
        candidate = Path(folder) / f"_kernels{suffix}"
        if candidate.exists():
            return candidate
    raise UnsupportedError(
        f"no _kernels{suffix} beside the package halfbyte: it was installed without its kernels; "
        "backend numpy works all the same"
    )


@cache
def library() -> ctypes.CDLL:
    """The loaded library with its functions' types set."""
    path = _path()
    try:
        lib = ctypes.CDLL(str(path))
    except OSError as error:
        raise UnsupportedError(f"{path}: cannot be loaded: {error}") from None
    pointer, i32 = ctypes.c_void_p, ctypes.c_int32
    for name, result, arguments in (
        ("hb_kernel_list", ctypes.c_char_p, ()),
        ("hb_isa_name", ctypes.c_char_p, (i32,)),
        ("hb_open", pointer, (ctypes.c_char_p,)),
        ("hb_ticks", ctypes.c_uint64, ()),
        ("hb_pool_size", i32, ()),
        ("hb_pool_announce", i32, (pointer,)),
        ("hb_pool_stop", None, (pointer,)),
        ("hb_help", i32, (pointer, i32)),
        ("hb_run", None, (pointer, pointer, i32, i32, pointer, i32, pointer, pointer, i32)),
    ):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


@cache
def kernels() -> dict[str, Kernel]:
    """Every kernel by name, as the library itself lists them."""
    text = library().hb_kernel_list().decode()
    found: dict[str, Kernel] = {}
    for index, line in enumerate(text.splitlines()):
        name, *fields = line.split()
        parsed = []
        for item in fields:
            kind, *dtype, field = item.split(":")
            parsed.append(Field(kind, dtype[0] if dtype else kind, field))
        found[name] = Kernel(index, name, tuple(parsed))
    return found


@cache
def instruction_sets() -> list[str]:
    """Names of the compiled tables that this CPU can run, best first; empty without a library."""
    try:
        lib = library()
    except UnsupportedError:
        return []
    names: list[str] = []
    while name := lib.hb_isa_name(len(names)):
        names.append(name.decode())
    return [name for name in names if lib.hb_open(name.encode())]


def open_table(isa: str | None) -> int:
    """Address of an instruction set's table; the best one for None."""
    lib = library()
    name = isa or next(iter(instruction_sets()), "scalar")
    table = lib.hb_open(name.encode())
    if not table:
        raise UnsupportedError(
            f"instruction set '{name}': expected one of {instruction_sets()} on this CPU"
        )
    return int(table)
