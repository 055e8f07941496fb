"""Pyodide's own tools applied to our files, if Python 3.12 or newer is found for them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from halfbyte.web.pyodide import LOCK, cache_folder, get_pyodide
from halfbyte.web.site import lock_entry

pytestmark = pytest.mark.browser

VERSION = "0.39"
FILES = ("kernels.wasm", "kernels-relaxed.wasm", "kernels-64.wasm")


def candidates() -> Iterator[str]:
    """Interpreters on the PATH, of pyenv and of uv."""
    for minor in (14, 13, 12):
        yield from filter(None, [shutil.which(f"python3.{minor}")])
        root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
        yield from (str(path / "bin/python") for path in sorted(root.glob(f"3.{minor}.*")))
    if uv := shutil.which("uv"):
        result = subprocess.run([uv, "python", "find", ">=3.12"], capture_output=True, text=True)
        yield from result.stdout.split()


def works(python: str) -> bool:
    done = subprocess.run([python, "-c", "import venv, ensurepip"], capture_output=True)
    return done.returncode == 0


PYTHON = next(filter(works, candidates()), None)


@pytest.fixture(scope="session")
def pyodide() -> Path:
    """The command, in a separate environment that is kept."""
    folder = cache_folder().parent / f"pyodide-build-{VERSION}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([PYTHON, "-m", "venv", folder], check=True)  # type: ignore[list-item]
        pip = [folder / "bin/pip", "install", "--quiet", f"pyodide-build>={VERSION}", "pkginfo"]
        subprocess.run(pip, check=True)
        (folder / "complete").touch()
    return folder / "bin/pyodide"


if PYTHON:

    @pytest.mark.parametrize("name", FILES)
    def test_imports(pyodide: Path, wheel: Path, repository: Path, name: str) -> None:
        """Our reader of the import section and Pyodide's see the same five names."""
        command = [pyodide, "auditwheel", "imports", repository / "runtime/halfbyte" / name]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        names = {line.split()[-1] for line in lines.splitlines()[1:] if line.strip()}
        assert names == {
            "memory", "__indirect_function_table", "__stack_pointer", "__memory_base",
            "__table_base",
        }  # fmt: skip

    def test_lock_entry(pyodide: Path, wheel: Path, tmp_path: Path) -> None:
        """`pyodide lockfile add-wheels` writes the same entry as we do."""
        target = tmp_path / "lock.json"
        paths = ["--input", get_pyodide() / LOCK, "--output", target, "--base-path", wheel.parent]
        subprocess.run([pyodide, "lockfile", "add-wheels", *paths, wheel], check=True)
        expected = json.loads(target.read_bytes())["packages"]["halfbyte"]
        assert expected.pop("tool", {}) == {}
        assert lock_entry(wheel.read_bytes()) == expected
