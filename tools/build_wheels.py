"""Build all wheels of a release on one machine, with PyPI's zig as the cross compiler.

    python tools/build_wheels.py [-o FOLDER] [--platform NAME ...]     by default all, into dist/

The pure wheel, with the kernels as WebAssembly, is built once: it is Pyodide's. A platform's wheel
is a copy that contains the kernels as a shared library as well. A wheel depends only on the sources
and on zig's version: built again, it has the same bytes.
"""

from __future__ import annotations

import argparse
import os
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import build_wasm

from halfbyte.web.wheel import pack

ROOT = Path(__file__).resolve().parents[1]
KERNELS = ROOT / "runtime/kernels"
SOURCES = KERNELS / "sources.txt"


class Platform(NamedTuple):
    """A wheel's tag, zig's name of the target, and the name of the library."""

    tag: str
    target: str
    library: str
    compile: tuple[str, ...] = ()
    link: tuple[str, ...] = ()

    @property
    def processor(self) -> str:
        """The name of the processor in sources.txt."""
        return self.target.partition("-")[0]


def linux(tag: str, target: str) -> Platform:
    """ELF, on glibc; nothing is ever unwound, so there are no tables for it."""
    options = (
        "-fPIC", "-ffunction-sections", "-fno-unwind-tables", "-fno-asynchronous-unwind-tables",
    )  # fmt: skip
    return Platform(tag, target, "_kernels.so", options)


def macos(tag: str, target: str) -> Platform:
    """Mach-O; without an install name it would contain the folder of the build."""
    link = ("-Wl,-install_name,@rpath/_kernels.dylib",)
    return Platform(tag, target, "_kernels.dylib", ("-fPIC",), link)


def windows(tag: str, target: str) -> Platform:
    """PE without a C library, of which only memcpy and memset would be needed."""
    link = ("-nostdlib", "-rtlib=compiler-rt", "-Wl,--no-entry")
    return Platform(tag, target, "_kernels.dll", (), link)


PLATFORMS = {
    "linux-x86_64": linux("manylinux_2_17_x86_64", "x86_64-linux-gnu.2.17"),
    "linux-aarch64": linux("manylinux_2_17_aarch64", "aarch64-linux-gnu.2.17"),
    "macos-arm64": macos("macosx_11_0_arm64", "aarch64-macos.11.0"),
    "macos-x86_64": macos("macosx_10_15_x86_64", "x86_64-macos.10.15"),
    "windows-x86_64": windows("win_amd64", "x86_64-windows-gnu"),
    "windows-arm64": windows("win_arm64", "aarch64-windows-gnu"),
}
ANY = "any"

FLAGS = (
    *("-std=c11", "-fvisibility=hidden", "-g0", "-DNDEBUG"),
    *("-Wall", "-Wextra", "-Werror", f"-I{KERNELS}"),
)
# The least processor of each family; zig's default for macOS is a newer one.
BASELINE = {"x86_64": "-mcpu=x86_64", "aarch64": "-mcpu=generic"}


class Source(NamedTuple):
    """A file to compile, with its options; `define` is the macro that enables it in isa.c."""

    name: str
    options: tuple[str, ...]
    define: str | None


def sources(processor: str) -> list[Source]:
    """The lines of sources.txt for a processor."""
    selected, common = [], []
    for number, line in enumerate(SOURCES.read_text(encoding="utf-8").splitlines(), 1):
        for_, name, *options = line.split() if line and line[0] != "#" else ("", "")
        if for_ not in ("", "any", *BASELINE):
            expected = ", ".join(("any", *BASELINE))
            raise SystemExit(f"{SOURCES}, line {number}: expected {expected}, found '{for_}'")
        if for_ not in ("any", processor):
            continue
        if name == "*":
            common += options
        else:
            define = None if for_ == "any" else f"HB_{Path(name).parent.name.upper()}"
            selected.append(Source(name, tuple(options), define))
    return [source._replace(options=(*common, *source.options)) for source in selected]


# What the kernels use of glibc, and the version that has it in its present form
GLIBC = {
    "x86_64": {"memcpy": "2.14", "memset": "2.2.5"},
    "aarch64": {"memcpy": "2.17", "memset": "2.17", "getauxval": "2.17"},
}


def zig(*arguments: str | Path, tool: str = "cc") -> None:
    """Run zig; on failure, exit with its output."""
    command = [sys.executable, "-m", "ziglang", tool, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"build_wheels: {' '.join(command[2:])} failed:\n{done.stderr}")


def as_zig_takes_it(option: str) -> str:
    """The option in zig's spelling, which has its own names for ARM's architectures."""
    return option.replace("-march=armv8.2-a", "-mcpu=generic+v8_2a")


def link_folded(platform: Platform, objects: Sequence[Path], library: Path) -> None:
    """Link ELF with one copy of equal functions, of which tables of related processors have many.

    `zig cc` does not pass this option to lld.
    """
    used = GLIBC[platform.processor]
    source, versions, libc = (library.with_name(f"libc.{kind}") for kind in ("c", "map", "so"))
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in used), encoding="ascii")
    lines = []
    for version in sorted(set(used.values())):
        names = "; ".join(name for name in used if used[name] == version)
        lines.append(f"GLIBC_{version} {{ {names}; }};\n")
    versions.write_text("".join(lines), encoding="ascii")
    named = ("-shared", "-nostdlib", "-fno-builtin", "-Wl,-soname,libc.so.6")
    zig("-target", platform.target, *named, f"-Wl,--version-script={versions}", source, "-o", libc)
    options = ("-shared", "-s", "-O2", "--icf=all", "-z", "defs", "-z", "now")
    zig(*options, *objects, libc, "-o", library, tool="ld.lld")


def build_library(platform: Platform, folder: Path, more: Sequence[str] = ()) -> Path:
    """Compile and link a platform's library into `folder`; `more` are additional options."""
    listed = sources(platform.processor)
    defines = [f"-D{source.define}" for source in listed if source.define]
    common = ("-target", platform.target, *platform.compile, *FLAGS, *defines)

    def compile_(source: Source) -> Path:
        options = [BASELINE[platform.processor], *map(as_zig_takes_it, source.options), *more]
        target = folder / f"{source.name.replace('/', '-')}.o"
        zig(*common, *options, "-c", KERNELS / source.name, "-o", target)
        return target

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        objects = list(threads.map(compile_, listed))
    library = folder / platform.library
    if library.suffix == ".so":
        link_folded(platform, objects, library)
    else:
        zig("-target", platform.target, *platform.link, "-shared", "-s", *objects, "-o", library)
    if library.suffix == ".dll":
        forget_time(library)
    return library


def forget_time(library: Path) -> None:
    """Clear the time in a PE header; zig has no option for it."""
    data = bytearray(library.read_bytes())
    [header] = struct.unpack_from("<I", data, 0x3C)
    struct.pack_into("<I", data, header + 8, 0)
    library.write_bytes(data)


def build_pure(folder: Path) -> dict[str, bytes]:
    """The files of the wheel without kernels and without the files that `pack` adds."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    options = ["--no-deps", "--no-build-isolation", "--config-settings", "wheel.cmake=false"]
    command += [*options, "--wheel-dir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"build_wheels: {' '.join(command[2:])} failed:\n{done.stderr}")
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: archive.read(name)
            for name in archive.namelist()
            if not name.endswith((".dist-info/WHEEL", ".dist-info/RECORD", ".wasm", "/"))
        }


def build_wheels(
    names: Iterable[str], output: Path, more: Mapping[str, Sequence[str]] | None = None
) -> list[Path]:
    """Build the wheels of these platforms into the folder `output`, which is created if missing.

    `more` are additional options of the compiler by platform.
    """
    output.mkdir(parents=True, exist_ok=True)
    built = []
    with tempfile.TemporaryDirectory() as work:
        pure = build_pure(Path(work))
        for variant in build_wasm.VARIANTS:  # in every wheel: `halfbyte web` serves them
            file = build_wasm.build(Path(work), *variant)
            pure[f"halfbyte/{file.name}"] = file.read_bytes()
        [info] = {name.partition("/")[0] for name in pure if name.endswith(".dist-info/METADATA")}
        for name in names:
            folder = Path(work) / name
            folder.mkdir()
            kernels = {}
            if name != ANY:
                library = build_library(PLATFORMS[name], folder, (more or {}).get(name, ()))
                kernels[f"halfbyte/{library.name}"] = library.read_bytes()
            tag = f"py3-none-{ANY if name == ANY else PLATFORMS[name].tag}"
            built.append(output / f"{info.removesuffix('.dist-info')}-{tag}.whl")
            built[-1].write_bytes(pack(pure | kernels, tag))
    return built


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Build the wheels of a release.")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "dist", metavar="FOLDER")
    names = (*PLATFORMS, ANY)
    parser.add_argument(
        "--platform", nargs="+", choices=names, default=names, metavar="NAME",
        help=f"of {', '.join(names)}; default: all",
    )  # fmt: skip
    options = parser.parse_args()
    for path in build_wheels(options.platform, options.output):
        print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
