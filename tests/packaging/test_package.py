"""What users get: the source archive, the wheel made from it, and what the wheel brings."""

from __future__ import annotations

import ast
import platform
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from halfbyte.core.backends.libraries import kernels_path as library_path

LIBRARY = "halfbyte/_kernels" + (".dylib" if sys.platform == "darwin" else ".so")
JUNK = {"__pycache__", ".DS_Store"}


def build(kind: str, source: Path, out: Path, settings: str = "None") -> Path:
    """Build ``kind`` (sdist or wheel) of the project at ``source`` into ``out``, as pip would."""
    code = (
        "import scikit_build_core.build as backend, sys;"
        f"sys.stderr.write('\\n' + backend.build_{kind}(sys.argv[1], {settings}))"
    )
    command = [sys.executable, "-c", code, str(out)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out / done.stderr.splitlines()[-1]


@pytest.fixture(scope="module")
def version(repository: Path) -> str:
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    return str(project["version"])


@pytest.fixture(scope="module")
def sdist(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive, unpacked."""
    out = tmp_path_factory.mktemp("sdist")
    archive = build("sdist", repository, out)
    with tarfile.open(archive) as tar:
        tar.extractall(out, filter="data")
    return out / archive.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source archive: so that holds everything it needs.

    A debug build, which compilers have soon done.
    """
    settings = "{'cmake.build-type': 'Debug'}"
    return build("wheel", sdist, tmp_path_factory.mktemp("wheel"), settings)


@pytest.fixture(scope="module")
def site(wheel: Path) -> Path:
    """The wheel, unpacked."""
    out = wheel.parent / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(out)  # noqa: S202
    return out


def python(site: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` where halfbyte is ``site``'s and NumPy the environment's.

    ``-S`` keeps out the .pth files, and with them an editable install.
    """
    paths = [str(site), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    command = [
        sys.executable,
        "-S",
        "-c",
        f"import sys; sys.path[:0] = {paths}\n{code}",
        *arguments,
    ]
    return subprocess.run(command, cwd=site, capture_output=True, text=True, check=False)


def files(folder: Path) -> Iterator[str]:
    """Every file below ``folder`` that belongs to the sources, relative to it."""
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        if path.is_file() and not JUNK.intersection(name.parts):
            yield name.as_posix()


@pytest.mark.long
def test_wheel_serves_every_python_of_its_platform(wheel: Path, version: str) -> None:
    assert re.fullmatch(rf"halfbyte-{re.escape(version)}-py3-none-(?!any)\w+\.whl", wheel.name)


@pytest.mark.long
def test_wheel_holds_the_package_and_nothing_else(site: Path, repository: Path) -> None:
    expected = {f"halfbyte/{name}" for name in files(repository / "runtime/halfbyte")}
    for package in ("quantize", "web"):
        expected |= {f"halfbyte/{package}/{name}" for name in files(repository / package)}
    names = {name for name in files(site) if ".dist-info/" not in name}
    assert names == expected | {LIBRARY}
    assert "halfbyte/py.typed" in names


@pytest.mark.long
def test_wheel_imports_and_finds_its_kernels(site: Path, version: str) -> None:
    done = python(
        site,
        "import halfbyte, halfbyte.quantize\n"
        "from halfbyte.core.backends.libraries import library\n"
        "print(halfbyte.__version__, halfbyte.__file__, len(library().kernels))",
    )
    assert done.returncode == 0, done.stderr
    installed, place, kernels = done.stdout.split()
    assert (installed, Path(place)) == (version, site / "halfbyte/__init__.py")
    assert int(kernels) > 0


@pytest.mark.long
@pytest.mark.parametrize("command", ["halfbyte", "quantize"])
def test_command_explains_itself(site: Path, command: str) -> None:
    code = (
        "from importlib.metadata import distribution\n"
        "scripts = distribution('halfbyte').entry_points.select(group='console_scripts')\n"
        "sys.argv[0] = sys.argv[1]\n"
        "sys.exit(scripts[sys.argv.pop(1)].load()())"
    )
    done = python(site, code, command, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.lower().startswith(f"usage: {command}")


def test_wheel_without_kernels_is_for_any_platform(repository: Path, tmp_path: Path) -> None:
    wheel = build("wheel", repository, tmp_path, "{'wheel.cmake': 'false'}")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert LIBRARY not in zipfile.ZipFile(wheel).namelist()


def test_sdist_holds_the_kernels_and_the_house(sdist: Path, repository: Path) -> None:
    kernels = {f"runtime/kernels/{name}" for name in files(repository / "runtime/kernels")}
    assert "runtime/kernels/kernels.h" in kernels
    house = {"LICENSE", "Makefile", "README.md", "pyproject.toml", "tests/conftest.py"}
    assert kernels | house <= set(files(sdist))


def test_no_file_names_a_private_place(sdist: Path) -> None:
    private = re.compile(rb"(?<![\w./~}$-])/(home|root|work|Users|mnt|opt)/\w")
    matches = {
        name: match.group().decode()
        for name in files(sdist)
        if (match := private.search((sdist / name).read_bytes())) and not name.endswith(".bin")
    }
    assert matches == {}


def test_runtime_imports_only_numpy_and_the_standard_library(repository: Path) -> None:
    allowed = {*sys.stdlib_module_names, "numpy", "halfbyte"}
    foreign = set()
    for path in (repository / "runtime/halfbyte").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Import(names=names):
                    modules = [alias.name for alias in names]
                case ast.ImportFrom(module=str(module), level=0):
                    modules = [module]
                case _:
                    continue
            foreign |= {(path.name, m) for m in modules if m.split(".")[0] not in allowed}
    optional = {
        ("plot.py", "matplotlib"),  # where a picture is asked for
        ("sandbox.py", "jinja2"),  # where a chat template is opened, as are the next two
        ("filters.py", "jinja2"),
        ("meter.py", "jinja2"),
        ("backend.py", "onnx"),  # that package's own interface
        ("backend.py", "ml_dtypes"),
        ("arrays.py", "ml_dtypes"),  # where it is there: types that NumPy lacks
    }
    assert {(file, m) for file, m in foreign if (file, m.split(".")[0]) not in optional} == set()


def test_the_compiler_keeps_prefetches() -> None:
    """GCC once dropped every prefetch as without effect: the same results at half the speed.

    In the library that is installed, a release build: the wheel above is not one.
    """
    if platform.machine() in ("x86_64", "AMD64"):
        prefetcht0 = b"\x0f\x18"
        assert library_path().read_bytes().count(prefetcht0) > 20
