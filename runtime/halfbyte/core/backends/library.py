"""The compiled kernels: their C interface, and what a library contains."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from halfbyte.core.backends.memory import Memory
from halfbyte.errors import UnsupportedError

SLOTS = 30
INSTRUCTION = np.dtype([
    ("kernel", "<i2"), ("together", "<i2"), ("chunk", "<i4"), ("ticks", "<u8"),
    ("slot", "<u8", (SLOTS,)),
])  # fmt: skip
PATCH = np.dtype([("instruction", "<i4"), ("slot", "<i4"), ("register", "<i4")])


class Field(NamedTuple):
    """An argument of a kernel: out, in, int or float; the dtype of arrays as in kernels.h."""

    kind: str
    dtype: str
    name: str


@dataclass(frozen=True)
class Kernel:
    """An entry of kernels.h."""

    index: int
    name: str
    fields: tuple[Field, ...]


def packaged(name: str) -> Path | None:
    """Path of a file in the package; an editable install has two folders, sources and build."""
    folders = sys.modules["halfbyte"].__path__
    return next((path for f in folders if (path := Path(f) / name).exists()), None)


POINTER, _I32 = ctypes.c_void_p, ctypes.c_int32
FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "hb_kernel_list": (ctypes.c_char_p, ()),
    "hb_capability_list": (ctypes.c_char_p, ()),
    "hb_isa_name": (ctypes.c_char_p, (_I32,)),
    "hb_open": (POINTER, (ctypes.c_char_p,)),
    "hb_describe": (None, (POINTER, POINTER)),
    "hb_ticks": (ctypes.c_uint64, ()),
    "hb_pool_size": (_I32, ()),
    "hb_pool_announce": (_I32, (POINTER,)),
    "hb_pool_stop": (None, (POINTER,)),
    "hb_pool_limit": (None, (POINTER, _I32)),
    "hb_pool_wait": (_I32, (POINTER,)),
    "hb_pool_wake": (None, (POINTER,)),
    "hb_help": (_I32, (POINTER, _I32)),
    "hb_run": (
        _I32,
        (POINTER, POINTER, _I32, _I32, POINTER, _I32, POINTER, POINTER, _I32),
    ),
}


class Library:
    """An open library of kernels: the functions of run.h, and the lists that they return.

    Parameters
    ----------
    functions : object
        Has the functions of run.h as attributes: a `ctypes.CDLL`, or a substitute.
    memory : Memory
        The memory that these functions access.
    new_pool : callable, optional
        Makes the pool of this library and a number of threads: by default of Python's threads.

    Attributes
    ----------
    kernels : dict of str to Kernel
        Every kernel by name, as the library itself lists them.
    instruction_sets : list of str
        Names of the compiled tables that this machine can run, best first.
    """

    def __init__(
        self, functions: Any, memory: Memory, new_pool: Callable[..., Any] | None = None
    ) -> None:
        self.memory, self.new_pool = memory, new_pool
        self.path: Path | None = None  # of its file, if there is another way to open it
        self.run, self.ticks = functions.hb_run, functions.hb_ticks
        self.pool_size, self.pool_announce = functions.hb_pool_size, functions.hb_pool_announce
        self.pool_stop, self.help = functions.hb_pool_stop, functions.hb_help
        self.pool_wait, self.pool_wake = functions.hb_pool_wait, functions.hb_pool_wake
        self.pool_limit = functions.hb_pool_limit
        self._open, self._describe = functions.hb_open, functions.hb_describe
        self._capabilities = functions.hb_capability_list().decode().split()
        self.kernels = dict(_parse(functions.hb_kernel_list().decode()))
        names: list[bytes] = []
        while name := functions.hb_isa_name(len(names)):
            names.append(name)
        self.instruction_sets = [name.decode() for name in names if self._open(name)]

    def table(self, isa: str) -> int:
        """Address of an instruction set's table."""
        table = self._open(isa.encode())
        if not table:
            raise UnsupportedError(
                f"instruction set '{isa}': expected one of {self.instruction_sets} on this machine"
            )
        return int(table)

    def converted(self, function: str, first: int, values: tuple[int, ...]) -> tuple[Any, ...]:
        """Arguments from number `first` on of a function, for many calls, in the types of C."""
        types = getattr(getattr(self, function), "argtypes", None)
        if types is None:  # of a module, not of a library
            return values
        return tuple(kind(v) for kind, v in zip(types[first:], values, strict=False))

    def capabilities(self, isa: str) -> dict[str, int]:
        """Capabilities of an instruction set: those of isa/caps.h that Python reads, by name."""
        values = self.memory.reach(np.zeros(len(self._capabilities), np.int32))
        self._describe(self.table(isa), self.memory.address(values))
        return dict(zip(self._capabilities, np.asarray(values).tolist(), strict=True))


@cache
def _parse(text: str) -> tuple[tuple[str, Kernel], ...]:
    """Kernels by name; once for all libraries of the same kernels."""
    kernels = []
    for index, line in enumerate(text.splitlines()):
        name, *fields = line.split()
        parsed = []
        for item in fields:
            *kinds, field = item.split(":")
            kinds = kinds or ["int"]
            parsed.append(Field(kinds[0], kinds[-1], field))
        kernels.append((name, Kernel(index, name, tuple(parsed))))
    return tuple(kernels)


def declare(functions: ctypes.CDLL) -> ctypes.CDLL:
    """Set the types of the library's functions, and return it."""
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(functions, name)
        function.restype, function.argtypes = result, arguments
    return functions
