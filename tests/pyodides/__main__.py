"""Runs halfbyte in Pyodide 0.26 to 314, under Node.

    python -m tests.pyodides                 every version
    python -m tests.pyodides 0.26 314        those that begin so
    python -m tests.pyodides --table         all, and writes the table in docs/browser.md

Each version writes texts with three types of weights, which have to equal the native library's,
and runs an encoder in ONNX: once in Node as it is, and once on two threads, for which Node's own
threads are given the interface of web workers. A version that cannot be had or fails is told with
the reason, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from tests.browser.visitor import PROMPT
from tests.pyodides.sources import SOURCES, Source, core, numpy
from tests.support.tables import dated, write_table
from tests.text.chat.models import STORYTELLER
from tools.onnx_models import make

import halfbyte
from halfbyte.quantize import quantize_file
from halfbyte.web.wheel import file_name, make_wheel

HERE = Path(__file__).parent
TYPES = ("int4", "int8", "fp16")
TOKENS = 100
SECONDS = 240
TOLERANCE = 1e-4  # of the encoder's float products


class Task:
    """What each version does, and what the native library makes of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wheel = folder / file_name()
        self.wheel.write_bytes(make_wheel())
        self.texts = {}
        for name in TYPES:
            quantize_file(STORYTELLER, name, folder / f"{name}.gguf")
            with halfbyte.load(folder / f"{name}.gguf") as model:
                self.texts[name] = model.generate(PROMPT, max_tokens=TOKENS, temperature=0)
        content = make("bert-small", pooled=True).SerializeToString()
        (folder / "model.onnx").write_bytes(content)
        session = halfbyte.InferenceSession(content)
        ids = np.arange(1, 13, dtype=np.int64)[None]
        inputs = {x.name: ids if "ids" in x.name else ids * 0 + 1 for x in session.get_inputs()}
        inputs |= {name: ids * 0 for name in inputs if "type" in name}
        np.savez(folder / "inputs.npz", **inputs)  # type: ignore[arg-type]
        self.outputs = session.run(None, inputs)

    def run(self, source: Source, lent: bool) -> dict[str, Any]:
        """One version's outcome; raises `OSError` or `RuntimeError` with the reason."""
        told = {"models": TYPES, "threads": 2, "prompt": PROMPT, "tokens": TOKENS}
        (self.folder / "task.json").write_text(json.dumps(told))
        command = ["node", HERE / "run.mjs", core(source)]
        files = [self.folder / name for name in ("task.json", "inputs.npz", "model.onnx")]
        files += [self.folder / f"{name}.gguf" for name in TYPES]
        workers = "yes" if lent else "no"
        packages = [numpy(source), self.wheel]
        done = subprocess.run(
            [*command, workers, HERE / "inside.py", *packages, "--", *files],
            capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        outcome: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return outcome

    def check(self, outcome: dict[str, Any], lent: bool) -> None:
        """Raises `RuntimeError` where a result differs from what is expected."""
        told = any("only a browser's page" in note for note in outcome["notes"])
        if (outcome["threads"], told) != ((2, False) if lent else (1, True)):
            raise RuntimeError(f"{outcome['threads']} threads: {outcome['notes']}")
        for name, text in self.texts.items():
            if outcome["texts"][name] != text:
                raise RuntimeError(f"{name}: another text: {outcome['texts'][name]!r}")
        for found, expected in zip(outcome["outputs"], self.outputs, strict=True):
            error = np.abs(np.array(found) - expected).max()
            if not error <= TOLERANCE * np.abs(expected).max():
                raise RuntimeError(f"ONNX: an error of {error}")

    def row(self, source: Source) -> dict[str, str]:
        """A version's row of the table; raises as `run` and `check` do."""
        plain, lent = self.run(source, lent=False), self.run(source, lent=True)
        self.check(plain, lent=False)
        self.check(lent, lent=True)
        return {
            **{"Pyodide": source.version, "Python": plain["python"]},
            **{"Emscripten": plain["emscripten"], "NumPy": plain["numpy"]},
            "in Node": chosen(plain), "with workers": chosen(lent),
            "golden texts": ", ".join(self.texts), "ONNX": "equal",
            "time": f"{plain['seconds']:.1f} s, {lent['seconds']:.1f} s",
        }  # fmt: skip


def chosen(outcome: dict[str, Any]) -> str:
    """The chosen kernels and how many threads ran them."""
    threads = outcome["threads"]
    kernels = outcome["backend"].removeprefix("native-")
    return f"{kernels}, {threads} thread{'s' if threads > 1 else ''}"


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m tests.pyodides",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("versions", nargs="*", metavar="VERSION", help="its beginning")
    parser.add_argument("--table", action="store_true", help="write the table")
    arguments = parser.parse_args()
    wanted = tuple(arguments.versions) or ("",)
    rows, failed = [], 0
    with tempfile.TemporaryDirectory() as folder:
        task = Task(Path(folder))
        for source in SOURCES:
            if not source.version.startswith(wanted):
                continue
            try:
                row = task.row(source)
            except (OSError, RuntimeError, subprocess.SubprocessError) as error:
                row, failed = (
                    {"Pyodide": source.version, "golden texts": f"no: {error}"},
                    failed + 1,
                )
            print("  ".join(row.values()), flush=True)
            rows.append(row)
    if arguments.table:
        done = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
        note = dated("python -m tests.pyodides --table")
        write_table("docs/browser.md", "pyodides", rows, f"Node {done.stdout.strip()}. {note}")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
