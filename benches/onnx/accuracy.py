"""How close models are to their originals after `quantize`, on real inputs.

    python -m benches.onnx.accuracy [-m pp-ocr-4-detect,yolo] [-p int8,int8-samples,int4,fp16]

The models are the zoo's (`benches.onnx.zoo`). `int8-samples` is int8 with `--calibrate` and 16 real
inputs. Original and result run on 8 other real inputs: the original in ONNX Runtime, the result in
ONNX Runtime and in halfbyte. A cosine is of all numbers of an output on all inputs; the table has
the worst output's. `size` is the result's to the original's.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benches.arguments import Some
from benches.figures import add_json_option, markdown, pytest_json, write_json
from benches.onnx import real_inputs, zoo_files
from benches.prepare import say

MODES: Mapping[str, Sequence[str]] = {
    "int8": ("--int8",), "int8-samples": ("--int8", "--calibrate"), "int4": ("--int4",),
    "fp16": ("--fp16",),
}  # fmt: skip
ENGINES = ("onnxruntime", "halfbyte")
CALIBRATION, JUDGED = 16, 8  # inputs
HEADER = ["model", "mode", "ONNX Runtime", "halfbyte", "size", "s", "remark"]
LIMIT = 70  # characters of a remark


@dataclass
class Row:
    """A model in a mode: worst cosines by engine (NaN: not measured), ratio of sizes, seconds."""

    model: str
    mode: str
    cosines: dict[str, float]
    size: float = float("nan")
    seconds: float = float("nan")
    remark: str = ""


def measured(name: str, mode: str, limit: float) -> Row:
    """Quantize a model, run it and the original."""
    path = zoo_files.file(name, "fp32")
    original = _session("onnxruntime", path)
    types = {i.name: i.type for i in original.get_inputs()}
    with tempfile.TemporaryDirectory() as work:
        out = Path(work, "quantized.onnx")
        command = [Path(sys.executable).with_name("quantize"), path, "-o", out, *MODES[mode]]
        if mode == "int8-samples":
            for i, feeds in enumerate(real_inputs.samples(name, types, CALIBRATION, 1)):
                np.savez(Path(work, f"{i:02}.npz"), **feeds)
            command.append(work)
        start = time.perf_counter()
        done = subprocess.run(
            [str(part) for part in command], capture_output=True, text=True, check=False,
            timeout=limit,
        )  # fmt: skip
        row = Row(name, mode, {}, seconds=time.perf_counter() - start)
        if done.returncode:
            row.remark = (done.stderr.strip().splitlines() or [str(done.returncode)])[-1]
            return row
        row.size = out.stat().st_size / path.stat().st_size
        judged = real_inputs.samples(name, types, JUDGED, 2)
        expected = [original.run(None, feeds) for feeds in judged]
        for engine in ENGINES:
            try:
                session = _session(engine, out)
                results = [session.run(None, feeds) for feeds in judged]
            except Exception as error:
                row.remark = f"{engine}: {' '.join(str(error).split())}"
            else:
                row.cosines[engine] = worst_cosine(expected, results)
    return row


def _session(engine: str, path: Path) -> Any:
    module = importlib.import_module(engine)
    options = module.SessionOptions()
    options.log_severity_level = 4
    return module.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def worst_cosine(expected: Sequence[Sequence[Any]], results: Sequence[Sequence[Any]]) -> float:
    """Of the outputs of floats; 0 where a number is NaN or infinite and was finite before."""
    cosines = []
    for before, after in zip(zip(*expected, strict=True), zip(*results, strict=True), strict=True):
        if not all(isinstance(x, np.ndarray) and x.dtype.kind == "f" for x in before):
            continue
        pairs = [(x, y) for x, y in zip(before, after, strict=True) if x.shape == y.shape]
        x, y = (np.concatenate([p[i].astype("f8").ravel() for p in pairs] or [[]]) for i in (0, 1))
        finite = np.isfinite(x)
        if not finite.any() or not np.abs(x[finite]).any():
            continue
        x, y = x[finite], y[finite]
        norms = np.linalg.norm(x) * np.linalg.norm(y)
        cosines.append(float(x @ y / norms) if np.isfinite(y).all() and norms else 0.0)
    return min(cosines, default=float("nan"))


def run(name: str, mode: str, limit: float) -> Row:
    """As `measured`, in a process of its own; a model that fails says why."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            row = pool.submit(measured, name, mode, limit).result()
        except Exception as error:
            row = Row(name, mode, {}, remark=" ".join(f"{type(error).__name__}: {error}".split()))
    say(" ".join(_cells(row)))
    return row


def _cells(row: Row) -> list[str]:
    cosines = [f"{row.cosines[e]:.5f}" if e in row.cosines else "-" for e in ENGINES]
    return [
        row.model, row.mode, *cosines, f"{row.size:.2f}", f"{row.seconds:.1f}",
        row.remark[:LIMIT].replace("|", "/"),
    ]  # fmt: skip


def table(rows: Sequence[Row]) -> str:
    """The worst first, and how many of each mode are below 0.99 and 0.995."""
    ordered = sorted(rows, key=lambda row: min(row.cosines.values(), default=-1.0))
    lines = [markdown(HEADER, [_cells(row) for row in ordered], left=2), ""]
    for mode in MODES:
        worst = [min(r.cosines.values()) for r in rows if r.mode == mode and r.cosines]
        if worst:
            below = {bound: sum(not value >= bound for value in worst) for bound in (0.99, 0.995)}
            lines.append(
                f"{mode}: {len(worst)} models, worst {min(worst):.5f}, "
                + ", ".join(f"{count} below {bound}" for bound, count in below.items())
            )
    return "\n".join(lines)


def main() -> None:
    """Measure, print, write."""
    names = list(zoo_files.entries())
    parser = argparse.ArgumentParser(
        prog="python -m benches.onnx.accuracy", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("-m", "--models", type=Some(tuple(names)), default=names, help="(default: all)")
    add("-p", "--modes", type=Some(tuple(MODES)), default=list(MODES), help="(default: all)")
    add("--limit", type=float, default=300, metavar="S", help="seconds of a model (default 300)")
    add_json_option(parser)
    options = parser.parse_args()
    rows = [run(name, mode, options.limit) for name in options.models for mode in options.modes]
    print(table(rows))
    content = pytest_json([], "benches/onnx/accuracy", rows=[asdict(row) for row in rows])
    write_json(options.json, content)


if __name__ == "__main__":
    main()
