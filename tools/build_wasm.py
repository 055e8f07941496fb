"""Build the kernels for WebAssembly: with SIMD128, with relaxed SIMD, and for 64-bit memory.

    python tools/build_wasm.py [-o FOLDER]        by default into the package, runtime/halfbyte

PyPI's ziglang compiles and links; nothing else is needed. The files are side modules: they import
memory, table and their base addresses in both from the program that loads them (ctypes in Pyodide,
a page's worker, wasmtime in the tests), and nothing from Emscripten, so they work in every version
of Pyodide. kernels-64.wasm is for models beyond 4 GB; it has relaxed SIMD, as browsers with 64-bit
memory do.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from halfbyte.core.backends import side_module

ROOT = Path(__file__).resolve().parents[1]
KERNELS = ROOT / "runtime/kernels"
PACKAGE = ROOT / "runtime/halfbyte"

ALLOWED_IMPORTS = frozenset(
    ("memory", "__indirect_function_table", "__memory_base", "__table_base", "__stack_pointer")
)
MAX_BYTES = 260_000  # compressed for download, a third of it

# No libc: calls of memcpy become an instruction. Unwind tables and names are left out. Structs of
# vectors are passed and returned in registers: otherwise each of them is copied in memory, by an
# instruction that engines run as a call of C (tens of nanoseconds for 64 bytes).
FLAGS = (
    *("-std=c11", "-Os", "-fPIC", "-fvisibility=hidden", "-g0"),
    *("-Xclang", "-target-abi", "-Xclang", "experimental-mv"),
    *("-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra", "-Werror", f"-I{KERNELS}"),
)
FEATURES = (
    "generic+simd128+atomics+bulk_memory+multivalue+nontrapping_fptoint+sign_ext+mutable_globals"
)

# Numbers that the linker fills in take as many bytes as they need: otherwise each has five.
LINKS = (
    "-shared", "--experimental-pic", "--no-entry", "--import-memory", "--strip-all",
    "--compress-relocations",
)  # fmt: skip

# Only language models need more than 4 GB, so kernels of graphs alone are left out there.
TEXT_ONLY = ("-DHB_TEXT_ONLY", "-Wno-unused-function")

# file, source of the table, its symbol, its name, additional CPU features, bits of an address
_RELAXED = ("isa/wasm_relaxed/table.c", "hb_table_wasm_relaxed")
VARIANTS = (
    ("kernels.wasm", "isa/wasm/table.c", "hb_table_wasm", "simd128", "", 32),
    ("kernels-relaxed.wasm", *_RELAXED, "relaxed", "+relaxed_simd", 32),
    ("kernels-64.wasm", *_RELAXED, "relaxed64", "+relaxed_simd", 64),
)


def zig(*arguments: str | Path) -> None:
    """Run zig; if it fails, exit with its message."""
    command = [sys.executable, "-m", "ziglang", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"build_wasm: {' '.join(command[3:6])} ... failed:\n{done.stderr}")


def build(
    folder: Path, name: str, source: str, table: str, isa: str, features: str, bits: int
) -> Path:
    """Compile, link and check one file; it is renamed into place when it is complete."""
    with tempfile.TemporaryDirectory() as work:
        objects = []
        for file in ("run.c", "isa.c", source):
            objects.append(Path(work) / f"{len(objects)}.o")
            defines = (f"-DHB_WASM={table}", f'-DHB_WASM_NAME="{isa}"')
            machine = ("-target", f"wasm{bits}-freestanding", f"-mcpu={FEATURES}{features}")
            defines += TEXT_ONLY if bits == 64 else ()
            zig("cc", *FLAGS, *machine, *defines, "-c", KERNELS / file, "-o", objects[-1])
        linked = Path(work) / name
        zig("wasm-ld", *LINKS, f"-mwasm{bits}", *objects, "-o", linked)
        data = linked.read_bytes()
    if others := imports(data) - ALLOWED_IMPORTS:
        raise SystemExit(f"build_wasm: {name} imports {sorted(others)}")
    if len(data) > MAX_BYTES:
        raise SystemExit(f"build_wasm: {name} has {len(data)} bytes, expected at most {MAX_BYTES}")
    partial, target = folder / f"{name}.partial", folder / name
    partial.write_bytes(data)
    return partial.replace(target)


def imports(data: bytes) -> set[str]:
    """Names that a module imports."""
    return {entry.name for entry in side_module.imports(data)}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Build the kernels for WebAssembly.")
    parser.add_argument("-o", "--output", type=Path, default=PACKAGE, metavar="FOLDER")
    options = parser.parse_args()
    for variant in VARIANTS:
        path = build(options.output, *variant)
        data = path.read_bytes()
        print(f"{path}: {len(data):,} bytes; imports {', '.join(sorted(imports(data)))}")


if __name__ == "__main__":
    main()
