"""How an instruction set is added: a folder of its own, and two files of the product that name it.

The folder is `added/vectors`: the primitives as vectors of GCC and Clang, with sizes of tiles that
no other table has. The fixture copies the kernels, adds folder and lines as a commit would, and
builds them in the ordinary way; the scalar table comes along, the others would only take time.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.core.ops.test_operators import CASES, Guarded, assert_close, run

from halfbyte.core import backends
from halfbyte.core.backends.library import Library, declare
from halfbyte.core.backends.memory import Memory
from halfbyte.core.backends.native import NativeExecutable
from halfbyte.core.program import Program

PROCESSOR = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
BACKEND = "added-vectors"

# By file: a line that is there, and what follows it
ADDED = {
    "sources.txt": {"isa/scalar/table.c": f"{PROCESSOR} isa/vectors/table.c -Wno-psabi\n"},
    "isa.c": {
        "static int always(void)": """
#ifdef HB_VECTORS
extern const hb_table hb_table_vectors;
#endif
""",
        "static const isa isas[] = {": """\
#ifdef HB_VECTORS
    {"vectors", &hb_table_vectors, always},
#endif
""",
    },
}


def add(folder: Path, own: Path) -> None:
    """Add the instruction set to the kernels in `folder`."""
    shutil.copytree(own, folder / "isa/vectors")
    for name, additions in ADDED.items():
        lines = (folder / name).read_text(encoding="utf-8").splitlines(keepends=True)
        for present, text in additions.items():
            (at,) = (i for i, line in enumerate(lines) if present in line)
            lines.insert(at + 1, text)
        (folder / name).write_text("".join(lines), encoding="utf-8")


def leave_out_others(sources: Path) -> None:
    """Leave the tables of sources.txt out that the test does not need."""
    lines = sources.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if line.startswith("any") or "vectors" in line]
    sources.write_text("".join(kept), encoding="utf-8")


def build(source: Path, folder: Path) -> Path:
    """Build the kernels with CMake, at -O0, which compiles fast."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    options = ("-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O0", "-DHALFBYTE_WERROR=ON")
    for command in (
        ("cmake", "-G", "Ninja", "-S", source, "-B", folder, *options),
        ("cmake", "--build", folder, "--parallel", "2"),
    ):
        done = subprocess.run(
            command, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    (library,) = folder.glob("_kernels.*")
    return library


@pytest.fixture(scope="module")
def kernels(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the kernels' sources with the instruction set added."""
    folder = tmp_path_factory.mktemp("added") / "kernels"
    shutil.copytree(repository / "runtime/kernels", folder)
    add(folder, repository / "tests/core/added/vectors")
    return folder


@pytest.fixture(scope="module")
def library(kernels: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    """Those kernels, built; programs run on them as backend `added-vectors`."""
    if PROCESSOR not in ("x86_64", "aarch64") or sys.platform not in ("linux", "darwin"):
        pytest.skip(f"CMakeLists.txt adds no tables for {PROCESSOR} with {sys.platform}")
    source = tmp_path_factory.mktemp("quick") / "kernels"
    shutil.copytree(kernels, source)
    leave_out_others(source / "sources.txt")
    path = build(source, tmp_path_factory.mktemp("build"))
    added = Library(declare(ctypes.CDLL(str(path))), Memory())

    def open_added(program: Program, isa: str, threads: int) -> NativeExecutable:
        return NativeExecutable(program, isa, threads, added, "added")

    backends.register_family("added", open_added)
    yield added
    del backends._FAMILIES["added"]


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_it_touches_two_files_besides_its_own(repository: Path, kernels: Path) -> None:
    before, after = files(repository / "runtime/kernels"), files(kernels)
    changed = {name for name in after if after[name] != before.get(name)}
    own = {f"isa/vectors/{name}" for name in ("caps.h", "packed.h", "simd.h", "table.c")}
    assert before.keys() <= after.keys()
    assert changed - own == {"sources.txt", "isa.c"}
    assert own <= changed


@pytest.mark.long
def test_it_describes_itself(library: Library) -> None:
    assert library.instruction_sets == ["vectors", "scalar"]
    capabilities = library.capabilities("vectors")
    assert capabilities == {"REGISTER_LANES": 16, "BYTE_PRODUCTS": 1, "UNPACKED_FASTER": 0}


@pytest.mark.long
@pytest.mark.parametrize("name", sorted({case.operator.name for case in CASES}))
def test_operators(name: str, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ordinary cases, as the other tables have them."""
    guarded = Guarded(monkeypatch)
    cases = [case for case in CASES if case.operator.name == name]
    assert cases
    for case in cases:
        assert_close(case, run(case, BACKEND))
    guarded.check()
