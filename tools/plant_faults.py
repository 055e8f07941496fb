"""Plants faults in a copy of the package and says which of them the tests see.

    python tools/plant_faults.py                       all of tools/faults.toml (about 20 minutes)
    python tools/plant_faults.py --only kernels        the kernels' only; or functions, or page
    python tools/plant_faults.py --tree OLD --faults OLD.toml --json OLD.json
    python tools/plant_faults.py --before OLD.json     a table beside an earlier run

A fault is a replacement of one piece of text, which occurs once in its file. The kernels' faults
are planted all at once: each kernel is compared with its NumPy meaning by itself, so a fault counts
as seen only where a case of its own operator fails. Functions in Python are changed one at a time,
and the tests named with the fault run until one fails. The exit code is 1 where one is not seen.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
FAULTS = Path(__file__).with_name("faults.toml")
MOVED = {"runtime/halfbyte": "halfbyte", "quantize": "halfbyte/quantize", "web": "halfbyte/web"}
CASES = "test_operators.py"  # the operators' cases, on every backend
NOTHING_RAN = 5  # pytest's exit code
LIMIT_SECONDS = 1200  # of one run of tests


@dataclass(frozen=True)
class Fault:
    """`find` becomes `replace` in `file`; `tests` are paths of tests, or FILE::NAME.

    Of a kernel, `operator` names the cases, unless the fault is one for the test named `test`.
    """

    name: str
    file: str
    find: str
    replace: str
    operator: str = ""
    test: str = ""
    tests: tuple[str, ...] = ()


PAGE = "web/page/"
KINDS: dict[str, Callable[[Fault], bool]] = {
    "kernels": lambda fault: bool(fault.operator),
    "functions": lambda fault: not fault.operator and not fault.file.startswith(PAGE),
    "page": lambda fault: fault.file.startswith(PAGE),
}


def read_faults(path: Path) -> list[Fault]:
    tables = tomllib.loads(path.read_text(encoding="utf-8"))["fault"]
    return [Fault(**{**table, "tests": tuple(table.get("tests", ()))}) for table in tables]


def changed(text: str, fault: Fault) -> str:
    """`text` with the fault; ValueError where the piece does not occur exactly once."""
    if (count := text.count(fault.find)) != 1:
        raise ValueError(f"{fault.file}: {fault.find!r} occurs {count} times, expected once")
    return text.replace(fault.find, fault.replace)


class Copy:
    """A copy of a checkout, and the package built from it, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.tree, self.site = folder / "tree", folder / "site"
        self.left_out: list[str] = []  # options that deselect tests

    def fill(self, tree: Path) -> None:
        """Copy the files that git tracks."""
        names = subprocess.run(
            ["git", "ls-files", "-z"], cwd=tree, check=True, capture_output=True, text=True
        ).stdout.split("\0")
        for name in filter(None, names):
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(tree / name, self.tree / name)

    def build_for_browsers(self) -> None:
        tool = self.tree / "tools/build_wasm.py"
        subprocess.run([sys.executable, tool], check=True, capture_output=True)

    def build(self) -> None:
        wheels = self.site.with_name("wheels")
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        options = ["--no-deps", "--no-build-isolation", "--wheel-dir", wheels]
        subprocess.run([*pip, "wheel", *options, self.tree], check=True)
        shutil.rmtree(self.site, ignore_errors=True)
        [wheel] = wheels.glob("*.whl")
        subprocess.run([*pip, "install", "--no-deps", "--target", self.site, wheel], check=True)
        shutil.rmtree(wheels)

    def pytest(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run pytest on the built package; `-S` keeps an editable install out of the way."""
        path = os.pathsep.join((str(self.site), sysconfig.get_path("purelib")))
        command = [sys.executable, "-S", "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider"]
        return subprocess.run(
            [*command, *arguments], cwd=self.tree, capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": path}, timeout=LIMIT_SECONDS,
        )  # fmt: skip

    def installed(self, file: str) -> Path:
        """Where the file of the checkout is in the built package."""
        for source, target in MOVED.items():
            if file.startswith(source + "/"):
                return self.site / (target + file.removeprefix(source))
        raise ValueError(f"{file}: not a file of the package")

    @contextmanager
    def planted(self, path: Path, fault: Fault) -> Iterator[None]:
        before = path.read_text(encoding="utf-8")
        path.write_text(changed(before, fault), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(before, encoding="utf-8")


def try_kernels(copy: Copy, faults: list[Fault]) -> dict[str, str]:
    """Plant all of them, and match the cases that fail with the faults' operators."""
    for fault in faults:
        path = copy.tree / fault.file
        path.write_text(changed(path.read_text(encoding="utf-8"), fault), encoding="utf-8")
    copy.build()
    [tests] = (copy.tree / "tests").rglob(CASES)
    names = " or ".join(sorted({fault.test.split("[")[0] for fault in faults if fault.test}))
    chosen = "test_operator" + (f" or {names}" if names else "")
    report = copy.pytest(str(tests), "-rpfE", "-k", chosen).stdout
    failed = re.findall(r"^FAILED \S+::(\S+)", report, re.MULTILINE)
    if not re.search(r"^PASSED \S+::test_operator\[", report, re.MULTILINE):
        raise RuntimeError(  # such as kernels that do not compile for one of the tables
            f"no operator's case passes, of whatever operator:\n{report[-2000:]}"
        )
    seen = {}
    for fault in faults:
        case = rf"test_operator\[{re.escape(fault.operator)}[-\]]"
        pattern = re.compile(re.escape(fault.test) if fault.test else case)
        seen[fault.name] = next((test for test in failed if pattern.match(test)), "")
    return seen


def try_function(copy: Copy, fault: Fault) -> str:
    """The first test that fails with the fault and not without it; "" where none does."""
    options = ["--browser"] if KINDS["page"](fault) else []
    while True:
        with copy.planted(copy.installed(fault.file), fault):
            failed = failing(copy, *fault.tests, *options)
        if not failed or not failing(copy, failed, *options):
            return failed
        copy.left_out.append(f"--deselect={failed}")  # it fails in a copy, or at random


def failing(copy: Copy, *tests: str) -> str:
    """The first of these tests that fails; "" where none does."""
    done = copy.pytest(*tests, *copy.left_out, "-x", "-rfE")
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    if not failed and done.returncode == NOTHING_RAN and copy.left_out:
        print(f"{tests}: they all fail without a fault", file=sys.stderr, flush=True)
    elif not failed and done.returncode:
        raise RuntimeError(f"{tests}: pytest failed:\n{done.stdout[-2000:]}{done.stderr}")
    return failed[1] if failed else ""


def try_all(tree: Path, faults: list[Fault], workers: int) -> dict[str, str]:
    """By each fault's name, what saw it."""
    kernels = [fault for fault in faults if fault.operator]
    functions = [fault for fault in faults if not fault.operator]
    seen: dict[str, str] = {}
    if kernels:
        with tempfile.TemporaryDirectory() as folder:
            copy = Copy(Path(folder))
            copy.fill(tree)
            seen |= try_kernels(copy, kernels)
    if functions:
        with tempfile.TemporaryDirectory() as folder:
            first = Copy(Path(folder) / "0")
            first.fill(tree)
            if any(map(KINDS["page"], functions)):
                first.build_for_browsers()
            first.build()
            seen |= spread(first, functions, workers)
    return seen


def spread(copy: Copy, faults: list[Fault], workers: int) -> dict[str, str]:
    """Share the faults among copies of the copy."""
    folder = copy.tree.parent
    copies = [copy, *(Copy(folder.with_name(str(i))) for i in range(1, workers))]
    for other in copies[1:]:
        shutil.copytree(folder, other.tree.parent)

    def run(index: int) -> dict[str, str]:
        seen = {}
        for fault in faults[index::workers]:
            seen[fault.name] = try_function(copies[index], fault)
            print(f"{fault.name}: {seen[fault.name] or 'NOT SEEN'}", file=sys.stderr, flush=True)
        return seen

    seen: dict[str, str] = {}
    with ThreadPoolExecutor(workers) as pool:
        for part in pool.map(run, range(workers)):
            seen |= part
    return seen


def table(faults: list[Fault], seen: dict[str, str], before: dict[str, str]) -> str:
    columns = ["fault", *(["before"] if before else []), "seen by"]
    rows = [columns, ["---"] * len(columns)]
    for fault in faults:
        if fault.name in seen:
            earlier = before.get(fault.name)
            told = "–" if earlier is None else "seen" if earlier else "not seen"
            cells = [fault.name, *([told] if before else []), seen[fault.name] or "**not seen**"]
            rows.append(cells)
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", default="", help="faults whose name contains this; or kernels, functions or page"
    )
    parser.add_argument("--tree", type=Path, default=REPOSITORY, help="another checkout")
    parser.add_argument("--faults", type=Path, default=FAULTS, help="another list of faults")
    parser.add_argument("--workers", type=int, default=2, help="(default 2)")
    parser.add_argument("--json", type=Path, help="write what saw each fault here")
    parser.add_argument("--before", type=Path, help="the JSON of an earlier run")
    arguments = parser.parse_args()
    faults = read_faults(arguments.faults)
    chosen = KINDS.get(arguments.only, lambda fault: arguments.only in fault.name)
    faults = [fault for fault in faults if chosen(fault)]
    seen = try_all(arguments.tree, faults, arguments.workers)
    if arguments.json:
        arguments.json.write_text(json.dumps(seen, indent=1) + "\n", encoding="utf-8")
    before = json.loads(arguments.before.read_text()) if arguments.before else {}
    print(table(faults, seen, before))
    missed = [name for name, test in seen.items() if not test]
    print(f"\n{len(seen) - len(missed)} of {len(seen)} faults seen")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
