"""JupyterLite and PyScript from their registries, pinned, as files of a site.

JupyterLite's kernel gets packages from an index within its site; the wheels that it needs besides
its own come from PyPI.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from halfbyte.outputs import write_file

JUPYTERLITE = ("jupyterlite-core==0.8.6", "jupyterlite-pyodide-kernel==0.8.6", "jupyter-server")
KERNEL = (
    "asttokens==3.0.2", "comm==0.2.3", "decorator==5.3.1", "executing==2.3.0", "ipython==9.12.0",
    "ipython-pygments-lexers==1.1.1", "jedi==0.20.1", "matplotlib-inline==0.2.2", "parso==0.8.7",
    "pexpect==4.9.0", "prompt-toolkit==3.0.53", "ptyprocess==0.7.0", "pure-eval==0.2.4",
    "pygments==2.21.0", "stack-data==0.6.3", "traitlets==5.16.1", "typing-extensions==4.16.0",
    "wcwidth==0.2.13",
)  # fmt: skip
PYSCRIPT = "@pyscript/core@0.7.31"
SETTINGS = {
    "jupyter-lite-schema-version": 0,
    "jupyter-config-data": {
        "litePluginSettings": {
            "@jupyterlite/pyodide-kernel-extension:kernel": {
                "pyodideUrl": "/pyodide/pyodide.mjs",
                "disablePyPIFallback": True,
            }
        }
    },
}


def folder() -> Path:
    """Where packages are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    output = Path(home) / "halfbyte" / "notebooks"
    output.mkdir(parents=True, exist_ok=True)
    return output


def run(*command: str | Path, cwd: Path | None = None) -> None:
    """Run a command; its output is that of the error if it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def below(path: Path, prefix: str) -> dict[str, Path | bytes]:
    """All files in a folder, by their names on the site."""
    files = (file for file in path.rglob("*") if file.is_file())
    return {f"{prefix}{file.relative_to(path).as_posix()}": file for file in files}


def jupyterlite(wheel: Path, cells: Sequence[str], work: Path) -> dict[str, Path | bytes]:
    """A site of JupyterLite with a wheel in its index, and a notebook `test.ipynb`."""
    home, wheels = folder() / "jupyterlite-0.8.6", folder() / "kernel-0.8.6"
    if not (home / "done").exists():
        run(sys.executable, "-m", "venv", home)
        run(home / "bin/python", "-m", "pip", "install", "--quiet", *JUPYTERLITE)
        target = ("--python-version", "3.14", "--only-binary", ":all:", "--no-deps")
        run(home / "bin/python", "-m", "pip", "download", *target, "--dest", wheels, *KERNEL)
        (home / "done").touch()
    contents = work / "contents"
    contents.mkdir()
    notebook = {
        "cells": [
            {
                "cell_type": "code", "execution_count": None, "id": str(number), "metadata": {},
                "outputs": [], "source": cell,
            }
            for number, cell in enumerate(cells)
        ],
        "metadata": {"kernelspec": {"display_name": "Python", "name": "python"}},
        "nbformat": 4, "nbformat_minor": 5,
    }  # fmt: skip
    (contents / "test.ipynb").write_text(json.dumps(notebook))
    (work / "jupyter-lite.json").write_text(json.dumps(SETTINGS))
    given = [part for path in (*wheels.iterdir(), wheel) for part in ("--piplite-wheels", path)]
    options = ["--contents", contents, *given, "--output-dir", work / "site"]
    run(home / "bin/jupyter", "lite", "build", *options, cwd=work)
    return below(work / "site", "")


def pyscript() -> dict[str, Path | bytes]:
    """PyScript's files."""
    home = folder() / PYSCRIPT.replace("/", "-")
    if not home.exists():
        with tempfile.TemporaryDirectory(dir=folder()) as work:
            run("npm", "pack", "--silent", PYSCRIPT, "--pack-destination", work)
            [archive] = Path(work).glob("*.tgz")
            with tarfile.open(archive) as content:
                content.extractall(work, filter="data")
            (Path(work) / "package/dist").rename(home)
    return below(home, "pyscript/")


def pyodide(path: Path) -> dict[str, Path | bytes]:
    """The distribution's files, with a lock file of only those packages that are there."""
    files = below(path, "pyodide/")
    lock = json.loads((path / "pyodide-lock.json").read_bytes())
    packages = lock["packages"].items()
    lock["packages"] = {n: p for n, p in packages if (path / p["file_name"]).exists()}
    return files | {"pyodide/pyodide-lock.json": json.dumps(lock).encode()}


def keep(path: Path, data: bytes) -> Path:
    """Write a file, and return its path."""
    write_file(path, lambda file: file.write(data))
    return path
