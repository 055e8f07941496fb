"""Runs packages of PyPI on the stand-ins: `make packages`.

`packages.toml` lists packages and what they are asked. Each is installed without its dependencies
into build/packages, and asked three times: with PyPI's onnxruntime and tokenizers, with halfbyte
in their places, and with halfbyte in Pyodide, which Node runs. Answers are compared; numbers may
differ by 1e-4.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
CACHE = REPOSITORY / "build/packages"
LIST = Path(__file__).with_name("packages.toml")
SCRIPT = Path(__file__).with_name("packages.mjs")
TOLERANCE = 1e-4
START = """
import json, sys, warnings
warnings.simplefilter("ignore")
"""
STAND_IN = """
import halfbyte
halfbyte.install_as_onnxruntime(force=True)
halfbyte.install_as_tokenizers(force=True)
"""
END = """
import onnxruntime, tokenizers
here = [hasattr(module, "__halfbyte__") for module in (onnxruntime, tokenizers)]
print("\\n" + json.dumps([here, result], default=str))
"""


@dataclass(frozen=True)
class Package:
    """A package, what it needs, and what it is asked."""

    name: str
    version: str
    code: str
    beside: list[str] = field(default_factory=list)
    pyodide: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """Where it is installed."""
        return CACHE / f"{self.name}-{self.version}"


def install(package: Package) -> None:
    """Install a package and those beside it, without their dependencies."""
    if package.folder.is_dir():
        return
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
    wanted = [f"{package.name}=={package.version}", *package.beside]
    part = package.folder.with_suffix(".part")
    subprocess.run([*command, "--upgrade", "--target", part, *wanted], check=True)
    part.rename(package.folder)


def native(package: Package, stand_in: bool) -> Any:
    """The answer of a new process, or the last line of its error."""
    code = START + (STAND_IN if stand_in else "") + package.code + END
    paths = os.pathsep.join([str(package.folder), str(REPOSITORY / "runtime")])
    environment = os.environ | {"PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"}
    return answer([sys.executable, "-c", code], package.folder, environment)


def in_pyodide(package: Package, distribution: Path) -> Any:
    """The answer of Python in WebAssembly."""
    program = package.folder / "question.py"
    program.write_text(START + STAND_IN + package.code + END, encoding="utf-8")
    wanted = {"folder": str(package.folder), "runtime": str(REPOSITORY / "runtime")}
    wanted |= {"program": str(program), "packages": package.pyodide}  # type: ignore[dict-item]
    command = ["node", str(SCRIPT), str(distribution), json.dumps(wanted)]
    return answer(command, package.folder, dict(os.environ))


def answer(command: list[str], folder: Path, environment: dict[str, str]) -> Any:
    """The last line that a process prints, or an error."""
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return f"failed: {(done.stderr or done.stdout).strip().splitlines()[-1][:200]}"
    return json.loads(lines[-1])


def equal(first: Any, second: Any) -> bool:
    """Whether answers are the same, up to rounding of numbers."""
    if isinstance(first, float) and isinstance(second, float):
        return math.isclose(first, second, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(equal, first, second))
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(equal(first[k], second[k]) for k in first)
    return bool(first == second)


def verdict(expected: Any, actual: Any) -> str:
    """A cell of the table."""
    if isinstance(expected, str):
        return f"the original {expected}"
    if isinstance(actual, str):
        return actual
    (here, theirs), (there, ours) = expected, actual
    if any(here) or not all(there):
        return "did not run on the modules that were meant"
    return "same" if equal(theirs, ours) else f"other: {str(theirs)[:60]}, {str(ours)[:60]}"


def rows(only: str, distribution: Path | None) -> Iterator[tuple[str, list[str]]]:
    """The name of each package, and the verdicts."""
    with LIST.open("rb") as file:
        packages = [Package(**entry) for entry in tomllib.load(file)["package"]]
    for package in packages:
        if only not in package.name:
            continue
        install(package)
        expected = native(package, stand_in=False)
        verdicts = [verdict(expected, native(package, stand_in=True))]
        if distribution is not None:
            verdicts.append(verdict(expected, in_pyodide(package, distribution)))
        yield f"{package.name} {package.version}", verdicts


def main() -> int:
    """Print the table; 1 if an answer differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="packages whose name contains this")
    parser.add_argument("--pyodide", type=Path, help="a folder with a Pyodide distribution")
    options = parser.parse_args()
    good = True
    for name, verdicts in rows(options.only, options.pyodide):
        print(f"| {name} | {' | '.join(verdicts)} |", flush=True)
        good = good and set(verdicts) == {"same"}
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
