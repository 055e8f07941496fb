"""Load, run and close models for an hour, and check that memory stays flat (on Linux).

    make soak MINUTES=60          or          python tools/soak.py --minutes 60

Three tasks alternate in one process: a language model (the shape of SmolLM 135M, Q4_0) is loaded,
generates, searches and is closed; so is a session of an ONNX model with a transformer's products;
and a session that stays open gets inputs of 2,000 shapes, over and over. Memory is printed over
time. The exit code is 1 if the median of the last quarter exceeds that of the quarter after the
warm-up by more than the limit, or if threads or open files grow.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import halfbyte

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

SHAPES = 2000  # of inputs of one session
LENGTHS = 125  # sentence lengths; SHAPES / LENGTHS are batch sizes
STEP = 1237  # coprime to SHAPES, so that large and small shapes are mixed
AT_ONCE = 25  # shapes per round
GROWTH_MB, GROWTH = 4.0, 0.02  # allowed growth, absolute and relative
ROWS, MIN_SAMPLES = 20, 8  # rows of the table; least number of samples


@dataclass(frozen=True)
class Sample:
    """Counts at one point in time."""

    minutes: float
    models: int
    sessions: int
    shapes: int
    megabytes: float  # resident
    threads: int
    files: int

    def __str__(self) -> str:
        return (
            f"{self.minutes:8.2f} {self.models:8d} {self.sessions:9d} {self.shapes:8d} "
            f"{self.megabytes:8.1f} {self.threads:8d} {self.files:6d}"
        )


HEADER = " minutes   models  sessions   shapes       MB  threads  files"


class Soak:
    """The work of a round, and counts of it."""

    def __init__(self, model: Path, graph: Path) -> None:
        self._model, self._graph = model, graph
        self._open = halfbyte.InferenceSession(graph)
        self.models = self.sessions = self.shapes = 0

    def round(self) -> None:
        """Run a model, a session and some shapes."""
        with halfbyte.load(self._model, threads=2, context=256) as model:
            model.generate("Once upon a time", max_tokens=4, seed=self.models)
            if self.models % 8 == 0:
                model.beam_search("Once", num_beams=2, max_tokens=2)
        self.models += 1
        with halfbyte.InferenceSession(self._graph) as session:
            self._run(session, 1 + self.sessions % 7, 16)
        self.sessions += 1
        for _ in range(AT_ONCE):
            number = self.shapes * STEP % SHAPES
            self._run(self._open, 1 + number // LENGTHS, 1 + number % LENGTHS)
            self.shapes += 1

    def _run(self, session: halfbyte.InferenceSession, batch: int, length: int) -> None:
        ids = np.ones((batch, length), np.int64)
        session.run(None, {argument.name: ids for argument in session.get_inputs()})

    def sample(self, minutes: float) -> Sample:
        """Count memory, threads and files now."""
        status = Path("/proc/self/status").read_text(encoding="ascii")
        megabytes = int(status.split("VmRSS:")[1].split()[0]) / 1e3
        files = sum(1 for _ in Path("/proc/self/fd").iterdir())
        return Sample(
            minutes, self.models, self.sessions, self.shapes, megabytes,
            threading.active_count(), files,
        )  # fmt: skip


def problems(samples: list[Sample]) -> list[str]:
    """A line for each figure that grew from the quarter after the warm-up to the last one."""
    quarter = max(len(samples) // 4, 1)
    early, late = samples[quarter : 2 * quarter] or samples, samples[-quarter:]
    lines = []
    values: dict[str, Callable[[Sample], float]] = {
        "MB": lambda s: s.megabytes, "threads": lambda s: s.threads, "files": lambda s: s.files,
    }  # fmt: skip
    for name, value in values.items():
        before, after = (statistics.median(map(value, part)) for part in (early, late))
        limit = before + max(GROWTH_MB, GROWTH * before) if name == "MB" else before
        if after > limit:
            lines.append(f"{name}: {before:.1f} after the warm-up, {after:.1f} at the end")
    return lines


def soak(minutes: float, model: Path, graph: Path) -> list[Sample]:
    """Work for this time; prints some of the samples."""
    work, samples, start = Soak(model, graph), list[Sample](), time.monotonic()
    printed = passed = 0.0
    print(HEADER)
    while passed < minutes or len(samples) < MIN_SAMPLES:
        work.round()
        passed = (time.monotonic() - start) / 60
        samples.append(work.sample(passed))
        if passed >= printed:
            print(samples[-1], flush=True)
            printed = passed + minutes / ROWS
    print(samples[-1])
    return samples


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="whether memory stays flat")
    parser.add_argument("--minutes", type=float, default=60.0)
    minutes: float = parser.parse_args().minutes
    import make_model
    from tools.onnx_models import make, save

    with tempfile.TemporaryDirectory() as folder:
        model, graph = Path(folder) / "model.gguf", Path(folder) / "model.onnx"
        make_model.make_model(model, "smollm2-135m", "Q4_0")
        save(make("bert-small"), graph)
        lines = problems(soak(minutes, model, graph))
    print("\n".join(lines) or "memory is flat")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
