"""The wheels of a release: what is in them, and that this machine's runs as the sources do."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.packaging.test_package import files, python
from tests.support.binaries import Binary, read
from tests.support.tools import load_tool
from tests.support.wasm import FILES as WASM

import halfbyte
from halfbyte.core.backends.library import FUNCTIONS

MAX_BYTES = 6_285_000  # 3.7 MB are the storyteller, 0.23 MB three files of kernels for browsers

LIBRARIES = {
    "linux-x86_64": ("manylinux_2_17_x86_64", "_kernels.so", "ELF", "x86_64"),
    "linux-aarch64": ("manylinux_2_17_aarch64", "_kernels.so", "ELF", "aarch64"),
    "macos-arm64": ("macosx_11_0_arm64", "_kernels.dylib", "Mach-O", "aarch64"),
    "macos-x86_64": ("macosx_10_15_x86_64", "_kernels.dylib", "Mach-O", "x86_64"),
    "windows-x86_64": ("win_amd64", "_kernels.dll", "PE", "x86_64"),
    "windows-arm64": ("win_arm64", "_kernels.dll", "PE", "aarch64"),
}

SYSTEM = {"Linux": "linux", "Darwin": "macos", "Windows": "windows"}.get(platform.system(), "")
HERE = f"{SYSTEM}-{platform.machine().replace('AMD64', 'x86_64')}"

# The others are for `make test-long`
OFTEN = {HERE, "any"}


def quick_and_long(names: Iterable[str]) -> list[Any]:
    """Names of wheels, those that are not tested each time marked."""
    return [n if n in OFTEN else pytest.param(n, marks=pytest.mark.long) for n in names]


NAMES = quick_and_long([*LIBRARIES, "any"])

# Only this machine's, which runs, is optimized as a release is: the others are there in a seventh
# of the time, and differ in nothing that these tests read.
UNOPTIMIZED = (
    *("-O0", "-fno-stack-protector", "-fno-sanitize=all", "-Wno-unused-command-line-argument"),
)
QUICK = {name: UNOPTIMIZED for name in LIBRARIES if name != HERE}

NEEDED = {"ELF": {"libc.so.6"}, "Mach-O": {"/usr/lib/libSystem.B.dylib"}, "PE": set[str]()}
TABLES = {"x86_64": ("avx512vnni", "avxvnni", "avx2"), "aarch64": ("i8mm", "dotprod", "neon")}


@pytest.fixture(scope="session")
def tool(repository: Path) -> ModuleType:
    load_tool(repository, "build_wasm")  # which the other imports
    return load_tool(repository, "build_wheels")


@pytest.fixture(scope="session")
def get_wheel(
    tool: ModuleType, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Callable[[str], Path]:
    """All wheels that are tested are built at the first call, each target's kernels once."""
    built: dict[str, Path] = {}
    long = pytestconfig.getoption("--long")
    names = [name for name in (*LIBRARIES, "any") if long or name in OFTEN]

    def get(name: str) -> Path:
        if not built:
            paths = tool.build_wheels(names, tmp_path_factory.mktemp("wheels"), QUICK)
            built.update(zip(names, paths, strict=True))
        return built[name]

    return get


@pytest.fixture(params=NAMES)
def wheel(request: pytest.FixtureRequest, get_wheel: Callable[[str], Path]) -> Path:
    """Each wheel in turn."""
    return get_wheel(request.param)


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def library(wheel: Path) -> bytes:
    [name] = [name for name in contents(wheel) if "_kernels." in name]
    return contents(wheel)[name]


# ---- what is in them -----------------------------------------------------------------------------


def test_tag_is_the_same_everywhere(wheel: Path) -> None:
    info = contents(wheel)[f"halfbyte-{halfbyte.__version__}.dist-info/WHEEL"].decode()
    *_, tag = re.findall(r"^Tag: (.*)$", info, re.MULTILINE)
    assert wheel.name == f"halfbyte-{halfbyte.__version__}-{tag}.whl"
    assert tag in {"py3-none-any", *(f"py3-none-{of[0]}" for of in LIBRARIES.values())}
    assert f"Root-Is-Purelib: {'true' if tag.endswith('any') else 'false'}\n" in info


@pytest.mark.parametrize("name", NAMES)
def test_wheel_holds_the_package_and_its_kernels(
    get_wheel: Callable[[str], Path], name: str, repository: Path
) -> None:
    expected = {f"halfbyte/{file}" for file in files(repository / "runtime/halfbyte")}
    for package in ("quantize", "web"):
        expected |= {f"halfbyte/{package}/{file}" for file in files(repository / package)}
    expected = {file for file in expected if not file.endswith(".wasm")}
    kernels = {*WASM.values(), *([] if name == "any" else [LIBRARIES[name][1]])}
    expected |= {f"halfbyte/{file}" for file in kernels}
    info = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
    expected |= {f"halfbyte-{halfbyte.__version__}.dist-info/{file}" for file in info}
    content = contents(get_wheel(name))
    assert set(content) == expected
    model = repository / "runtime/halfbyte/data/storyteller.bin"
    assert content["halfbyte/data/storyteller.bin"] == model.read_bytes()


def test_record_is_right(wheel: Path) -> None:
    content = contents(wheel)
    record = f"halfbyte-{halfbyte.__version__}.dist-info/RECORD"
    expected = {f"{record},,"}
    for name in content.keys() - {record}:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content[name]).digest()).decode()
        expected.add(f"{name},sha256={digest.rstrip('=')},{len(content[name])}")
    lines = content[record].decode().splitlines()
    assert len(lines) == len(expected)
    assert set(lines) == expected


def test_wheel_is_small_and_tells_no_time(wheel: Path) -> None:
    assert wheel.stat().st_size < MAX_BYTES
    with zipfile.ZipFile(wheel) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {entry.external_attr >> 16 for entry in archive.infolist()} == {0o100644}


# ---- their libraries -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", quick_and_long(LIBRARIES))
def test_library_is_the_platforms(get_wheel: Callable[[str], Path], name: str) -> None:
    """Its format and machine, the functions of run.h and no others, nothing needed but libc."""
    _, _, format_, machine = LIBRARIES[name]
    header = read(library(get_wheel(name)))
    assert (header.format, header.machine) == (format_, machine)
    assert header.exports == set(FUNCTIONS)
    assert header.needed == NEEDED[format_]
    assert_runs_where_the_tag_says(header)


def assert_runs_where_the_tag_says(found: Binary) -> None:
    if found.format == "ELF":
        assert found.versions
        assert max(found.versions) <= (2, 17)
    elif found.format == "Mach-O":
        assert found.versions == {(11, 0) if found.machine == "aarch64" else (10, 15)}
        assert found.signed or found.machine == "x86_64"  # the other refuses what is not


@pytest.mark.parametrize("name", quick_and_long(LIBRARIES))
def test_library_has_every_table(get_wheel: Callable[[str], Path], name: str) -> None:
    data = library(get_wheel(name))
    for table in (*TABLES[LIBRARIES[name][3]], "scalar"):
        assert f"{table}\0".encode() in data


@pytest.mark.parametrize("name", quick_and_long(LIBRARIES))
def test_library_names_no_place(get_wheel: Callable[[str], Path], name: str) -> None:
    data = library(get_wheel(name))
    assert not re.search(rb"/(tmp|home|root|var)/|runtime/kernels", data)


@pytest.mark.long
def test_built_again_it_is_the_same_bytes(
    tool: ModuleType, get_wheel: Callable[[str], Path], tmp_path: Path
) -> None:
    """PE headers have a time."""
    for name in ("linux-x86_64", "macos-arm64", "windows-x86_64"):
        again = tool.build_library(tool.PLATFORMS[name], tmp_path, QUICK.get(name, ()))
        assert again.read_bytes() == library(get_wheel(name)), name


# ---- the list of sources -------------------------------------------------------------------------


@pytest.mark.parametrize("processor", ["x86_64", "aarch64"])
def test_cmake_reads_the_same_sources(tool: ModuleType, processor: str, tmp_path: Path) -> None:
    """Both read sources.txt: every source with its options and the tables for isa.c."""
    listed = tool.sources(processor)
    tables = [source.define for source in listed if source.define]
    command = ["cmake", "-G", "Ninja", "-S", tool.KERNELS, "-B", tmp_path]
    command += ["-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", "-DCMAKE_SYSTEM_NAME=Linux"]
    command += [f"-DCMAKE_SYSTEM_PROCESSOR={processor}", "-DCMAKE_BUILD_TYPE=None"]
    command += [f"-D{table}_COMPILES=1" for table in tables]  # not asked of this compiler
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        command, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    warnings = ("-Wall", "-Wextra")
    options_by_file = {}
    for entry in json.loads((tmp_path / "compile_commands.json").read_text()):
        words = entry["command"].split()
        options = [w for w in words if re.match(r"-[mfOW]", w) and w not in warnings]
        name = Path(entry["file"]).relative_to(tool.KERNELS).as_posix()
        options_by_file[name] = [w for w in options if w not in ("-fPIC", "-fvisibility=hidden")]
        assert {w for w in words if w.startswith("-DHB_")} == {f"-D{table}" for table in tables}
    assert options_by_file == {source.name: list(source.options) for source in listed}


def test_every_source_is_listed(tool: ModuleType, repository: Path) -> None:
    listed = {source.name for name in TABLES for source in tool.sources(name)}
    folder = repository / "runtime/kernels"
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*.c")}
    assert there - listed == {"isa/wasm/table.c", "isa/wasm_relaxed/table.c"}
    assert listed <= there


def test_an_invalid_processor_is_refused(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sources.txt"
    path.write_text("any run.c\n\nx86-64 isa/avx2/table.c -mavx2\n")
    monkeypatch.setattr(tool, "SOURCES", path)
    with pytest.raises(SystemExit, match=r"line 3: expected any, x86_64, aarch64, found 'x86-64'"):
        tool.sources("x86_64")


def test_what_zig_says_is_said(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sources.txt"
    path.write_text("any not_there.c\n")
    monkeypatch.setattr(tool, "SOURCES", path)
    with pytest.raises(SystemExit, match=r"(?s)-target x86_64-linux.*failed:.*not_there\.c"):
        tool.build_library(tool.PLATFORMS["linux-x86_64"], tmp_path)


# ---- installed -----------------------------------------------------------------------------------


@pytest.mark.long
def test_the_installed_package_computes_the_same(
    get_wheel: Callable[[str], Path], repository: Path, tmp_path: Path
) -> None:
    """Another compiler's kernels: the same tables, and of each the same logits to the bit."""
    if HERE not in LIBRARIES:
        pytest.skip(f"no wheel is for {HERE}")
    site = tmp_path / "site"
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--no-compile",
    ]
    command += ["--disable-pip-version-check", "--target", str(site), str(get_wheel(HERE))]
    subprocess.run(command, check=True)
    program = repository / "tools/try_installed.py"
    code = "sys.argv.pop(0)\nimport runpy\nrunpy.run_path(sys.argv[0], run_name='__main__')"
    installed = python(site, code, str(program), "--native")
    assert installed.returncode == 0, installed.stderr
    command = [sys.executable, str(program), "--native"]
    here = subprocess.run(command, capture_output=True, text=True, check=True)
    assert installed.stdout == here.stdout
    assert "int4 native-scalar 48 tokens" in here.stdout
    where = python(
        site,
        "from halfbyte.core.backends.libraries import kernels_path\nprint(kernels_path())",
    )
    assert Path(where.stdout.strip()).parent == site / "halfbyte"
