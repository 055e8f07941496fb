"""Both engines on the same inputs, in one process, taking turns."""

from __future__ import annotations

import importlib
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import tokenizers
from benches.figures import Series
from benches.onnx.files import IMAGES, Contest
from benches.onnx.sentences import SENTENCES
from benches.peers.native import PeerError, Process, reason
from benches.prepare import installed, python_of, say
from tools.get_minilm import get_minilm
from tools.onnx_models import minilm

ENGINES = ("halfbyte", "onnxruntime")  # modules with an InferenceSession
OPTIONAL = "openvino"  # takes part if it is installed
WORKER = Path(__file__).with_name("worker.py")
TURN = 0.2  # seconds of a turn; a longer run is a turn by itself
MAX_RUNS = 100  # in a turn
REST = 0.3  # seconds between turns: threads of the other engine may still be spinning
Array = npt.NDArray[Any]
Feeds = dict[str, Array]


@dataclass(frozen=True)
class Plan:
    """What is measured."""

    rounds: int
    threads: Sequence[int]
    batches: Sequence[int]
    lengths: Sequence[int]

    def shapes(self, model: str) -> list[tuple[int, int]]:
        """Batch and length in tokens; an image has none."""
        if model in IMAGES:
            return [(1, 0)]
        return [(batch, length) for batch in self.batches for length in self.lengths]


@dataclass
class Results:
    """A series for each engine and test, of runs and of loading."""

    runs: list[Series] = field(default_factory=list)
    loads: list[Series] = field(default_factory=list)


class Engine(Protocol):
    """A loaded model, natively or in a tab."""

    def output(self, feeds: Feeds) -> Array:
        """The first output."""

    def seconds(self, feeds: Feeds, runs: int) -> list[float]:
        """The seconds of each of several runs in a row."""


class Session:
    """One engine with one file, in this process."""

    def __init__(self, engine: str, contest: Contest, threads: int) -> None:
        module = importlib.import_module(engine)
        options = module.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        if engine == "halfbyte":
            options.int8_attention = contest.int8_attention
        self.engine, self.path = engine, contest.file(engine)
        self._first = inputs(contest.model, 1, 16)
        start = time.perf_counter()
        self._session = module.InferenceSession(
            str(self.path), options, providers=["CPUExecutionProvider"]
        )
        self.output(self._first)
        self.load_seconds = time.perf_counter() - start

    def output(self, feeds: Feeds) -> Array:
        """The first output."""
        return cast("Array", self._session.run(None, feeds)[0])

    def close(self) -> None:
        """The memory is given back with the object."""

    def seconds(self, feeds: Feeds, runs: int) -> list[float]:
        """The seconds of each of several runs in a row."""
        taken = []
        for _ in range(runs):
            start = time.perf_counter()
            self._session.run(None, feeds)
            taken.append(time.perf_counter() - start)
        return taken


class Apart:
    """A peer in an environment and a process of its own, on the file that ONNX Runtime gets."""

    def __init__(self, engine: str, contest: Contest, threads: int) -> None:
        self.engine, self.path = engine, contest.file("onnxruntime")
        command = [str(python_of(engine)), str(WORKER), str(self.path), str(threads), engine]
        self._process = Process(engine, command)
        self._folder = tempfile.TemporaryDirectory()
        self._files: dict[int, Path] = {}
        self.load_seconds = self._process.load_seconds

    def output(self, feeds: Feeds) -> Array:
        path = self._file(feeds)
        self._process.ask(f"={path}")
        return cast("Array", np.load(f"{path}.npy"))

    def seconds(self, feeds: Feeds, runs: int) -> list[float]:
        path = self._file(feeds)
        return [float(self._process.ask(str(path))) for _ in range(runs)]

    def close(self) -> None:
        """End the process."""
        self._process.close()
        self._folder.cleanup()

    def _file(self, feeds: Feeds) -> Path:
        key = id(feeds)
        if key not in self._files:
            self._files[key] = Path(self._folder.name) / f"{key}.npz"
            np.savez(self._files[key], **feeds)
        return self._files[key]


def turn(engine: Engine, feeds: Feeds, runs: int) -> float:
    """Median seconds of several runs in a row."""
    time.sleep(REST)
    return statistics.median(engine.seconds(feeds, runs))


def runs_of_a_turn(engine: Engine, feeds: Feeds) -> int:
    """How many take `TURN`. The first run plans and packs, so it does not count."""
    return max(1, min(MAX_RUNS, int(TURN / engine.seconds(feeds, 2)[1])))


def measure(contest: Contest, plan: Plan) -> Results:
    """Measure all numbers of threads and all shapes."""
    results = Results()
    for threads in plan.threads:
        sessions: list[Session | Apart] = [Session(e, contest, threads) for e in ENGINES]
        cosines = [least_cosine(contest.model, session) for session in sessions]
        if installed(OPTIONAL):
            try:
                sessions.append(Apart(OPTIONAL, contest, threads))
                cosines.append(least_cosine(contest.model, sessions[-1]))
            except PeerError as error:
                del sessions[len(cosines) :]
                results.runs += _failed(contest, plan, threads, error)
        for session in sessions:
            more = {"file_bytes": session.path.stat().st_size}
            results.loads.append(
                Series(
                    contest.model, session.engine, f"load {contest.name}", threads,
                    [session.load_seconds], more,
                )
            )  # fmt: skip
        for shape in plan.shapes(contest.model):
            pair = _measure_shape(contest, shape, threads, sessions, plan.rounds)
            for series, cosine in zip(pair, cosines, strict=True):
                series.more["cosine"] = cosine
            results.runs += pair
        for session in sessions:
            session.close()
    return results


def _measure_shape(
    contest: Contest, shape: tuple[int, int], threads: int,
    sessions: Sequence[Session | Apart], rounds: int,
) -> list[Series]:  # fmt: skip
    feeds = inputs(contest.model, *shape)
    test = f"{contest.name} {test_name(*shape)}"
    say(f"{contest.model}: {test}, {threads} threads")
    results = [Series(contest.model, session.engine, test, threads) for session in sessions]
    runs: dict[str, int] = {}
    for number in range(rounds + 1):
        for session, series in zip(sessions, results, strict=True):
            try:
                if number:
                    series.seconds.append(turn(session, feeds, runs[session.engine]))
                else:
                    runs[session.engine] = runs_of_a_turn(session, feeds)
            except PeerError as error:
                series.seconds.clear()
                series.more["reason"], runs[session.engine] = reason(error), 1
    return results


def _failed(contest: Contest, plan: Plan, threads: int, error: PeerError) -> list[Series]:
    """Empty series of a peer that does not run the file."""
    return [
        Series(
            contest.model, OPTIONAL, f"{contest.name} {test_name(*shape)}", threads,
            more={"reason": reason(error)},
        )
        for shape in plan.shapes(contest.model)
    ]  # fmt: skip


def test_name(batch: int, length: int) -> str:
    """ "32 x 128", or "1 image"."""
    return f"{batch} x {length}" if length else f"{batch} image"


@cache
def _tokenizer() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(get_minilm() / "tokenizer.json"))


def inputs(model: str, batch: int, length: int) -> Feeds:
    """Random images, or rows of `length` tokens from different places of the sentences."""
    if model in IMAGES:
        images = np.random.default_rng(2).standard_normal((batch, 3, 224, 224), np.float32)
        return {"input": images}
    encodings = _tokenizer().encode_batch(list(SENTENCES), add_special_tokens=False)
    ids = np.concatenate([np.array(encoding.ids, np.int64) for encoding in encodings])
    rows = np.stack([np.resize(np.roll(ids, -5 * row), length) for row in range(batch)])
    return {
        "input_ids": rows, "attention_mask": np.ones_like(rows),
        "token_type_ids": np.zeros_like(rows),
    }  # fmt: skip


def sentences() -> Feeds:
    """All sentences in one batch, padded to the longest."""
    return minilm.tokens(SENTENCES)


def _outputs(model: str, session: Engine) -> Array:
    """Embeddings of the sentences, or logits of four images."""
    if model in IMAGES:
        return session.output(inputs(model, 4, 0))
    return session.output(sentences())


@cache
def _reference(model: str) -> Array:
    """In float32, by ONNX Runtime."""
    return _outputs(model, Session("onnxruntime", Contest(model, "fp32", ""), 1))


def least_cosine(model: str, session: Engine) -> float:
    """The cosine of the worst sentence or image, between outputs and those in float32."""
    actual, expected = (x.astype(np.float64) for x in (_outputs(model, session), _reference(model)))
    lengths = np.linalg.norm(actual, axis=1) * np.linalg.norm(expected, axis=1)
    return float(((actual * expected).sum(1) / lengths).min())
