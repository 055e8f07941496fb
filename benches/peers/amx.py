"""Whether AMX, which a processor lists, may be used: some virtual machines list it and deny it.

llama.cpp that is built with -march=native uses AMX where the processor lists it, and ends with a
segmentation fault in the first decode where the system denies it. Then the instruction sets that
such processors have are named one by one, without AMX. Where AMX may be used, GCC must not drop
what llama.cpp writes into the tiles' configuration, of which GCC 12 believes that only eight bytes
are read: else the first decode ends with an illegal instruction.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
# arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) of x86-64 Linux; 0 if the tiles may be used
ASK = "import ctypes, sys; sys.exit(bool(ctypes.CDLL(None).syscall(158, 0x1023, 18)))"
WITHOUT = (
    "AVX", "AVX2", "FMA", "F16C", "BMI2", "AVX512", "AVX512_VBMI", "AVX512_VNNI", "AVX512_BF16"
)  # fmt: skip


KEEP_STORES = ("-fno-tree-dse", "-fno-dse")


def allowed() -> bool:
    """Whether the system lets a process use the tiles."""
    return subprocess.run([sys.executable, "-c", ASK], check=False).returncode == 0


def listed() -> bool:
    """Whether the processor lists AMX."""
    text = CPUINFO.read_text(encoding="utf-8") if CPUINFO.exists() else ""
    return bool(re.search(r"^flags\b.*\bamx_tile\b", text, re.MULTILINE))


def cmake_options(
    is_listed: Callable[[], bool] = listed, is_allowed: Callable[[], bool] = allowed
) -> str:
    """llama.cpp's options for this processor."""
    if not is_listed() or is_allowed():
        return "-DGGML_NATIVE=ON"
    return " ".join(["-DGGML_NATIVE=OFF", *(f"-DGGML_{name}=ON" for name in WITHOUT)])


def compiler_flags(is_listed: Callable[[], bool] = listed) -> str:
    """What the C++ compiler needs for llama.cpp's AMX, if it knows it (GCC does)."""
    compiler = shutil.which("c++")
    if not is_listed() or compiler is None:
        return ""
    known = [compiler, *KEEP_STORES, "-E", "-x", "c++", "/dev/null"]
    done = subprocess.run(known, capture_output=True, check=False)
    return "" if done.returncode else " ".join(KEEP_STORES)
