"""Both engines on the same inputs, in one process, taking turns."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import tokenizers
from benches.figures import Series
from benches.onnx.apart import Apart
from benches.onnx.files import IMAGES, Contest
from benches.onnx.sentences import SENTENCES
from benches.prepare import say
from benches.turns import attempt, settled
from benches.yardstick import Yardstick
from tools.get_minilm import get_minilm
from tools.onnx_models import minilm

ENGINES = ("halfbyte", "onnxruntime")  # modules with an InferenceSession
TURN = 0.2  # seconds of a turn; a longer run is a turn by itself
MAX_RUNS = 100  # in a turn
REST = 0.3  # seconds between turns: threads of the other engine may still be spinning
Array = npt.NDArray[Any]
Feeds = dict[str, Array]


@dataclass(frozen=True)
class Plan:
    """What is measured, with which peers beside ONNX Runtime, and beside which yardstick."""

    rounds: int
    threads: Sequence[int]
    batches: Sequence[int]
    lengths: Sequence[int]
    peers: Sequence[str] = ()
    yardstick: Yardstick | None = None

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
    tests = [f"{contest.name} {test_name(*shape)}" for shape in plan.shapes(contest.model)]
    for threads in plan.threads:
        with ExitStack() as stack:
            sessions, cosines = [], []
            for engine in (*ENGINES, *plan.peers):
                load = Series(contest.model, engine, f"load {contest.name}", threads)
                start = partial(_start, engine, contest, threads, load, stack)
                if session := attempt([load], start):
                    sessions.append(session)
                    cosines.append(load.more.pop("cosine"))
                else:
                    results.runs += missing(load, tests)
                if load.seconds:
                    results.loads.append(load)
            for shape in plan.shapes(contest.model):
                group = _measure_shape(contest, shape, threads, sessions, plan)
                for series, cosine in zip(group, cosines, strict=True):
                    series.more["cosine"] = cosine
                results.runs += group
    return results


def _start(
    engine: str, contest: Contest, threads: int, load: Series, stack: ExitStack
) -> Session | Apart:
    """A session, which ends with the stack, and its first figures; only own ones are of loading."""
    if engine in ENGINES:
        session = Session(engine, contest, threads)
        load.seconds.append(session.load_seconds)
        load.more["file_bytes"] = session.path.stat().st_size
    else:
        session = Apart(engine, contest, threads)
    stack.enter_context(closing(session))
    load.more["cosine"] = least_cosine(contest.model, session)
    return session


def _measure_shape(
    contest: Contest, shape: tuple[int, int], threads: int,
    sessions: Sequence[Session | Apart], plan: Plan,
) -> list[Series]:  # fmt: skip
    feeds = inputs(contest.model, *shape)
    test = f"{contest.name} {test_name(*shape)}"
    say(f"{contest.model}: {test}, {threads} threads")
    results = [Series(contest.model, session.engine, test, threads) for session in sessions]
    turns: list[Turn] = []
    for session, series in zip(sessions, results, strict=True):
        runs = attempt([series], partial(runs_of_a_turn, session, feeds))
        turns.append((series, partial(turn, session, feeds, runs or 1)))
        series.yardstick = plan.yardstick.name if plan.yardstick else ""
    in_turns(turns, plan.rounds, plan.yardstick)
    return results


Turn = tuple[Series, Callable[[], float]]


def in_turns(turns: Sequence[Turn], rounds: int, yardstick: Yardstick | None = None) -> None:
    """The seconds of each turn of several rounds, beside a yardstick if one is given."""

    def all_rounds() -> None:
        for _ in range(rounds):
            beside = yardstick.seconds() if yardstick else 0.0
            for series, take in turns:
                if seconds := attempt([series], take):
                    series.seconds.append(seconds)
                    series.beside += [beside] if beside else []

    settled([series for series, _ in turns], all_rounds)


def missing(series: Series, tests: Sequence[str]) -> list[Series]:
    """Empty series for all tests of a peer that failed before them."""
    return [
        Series(series.model, series.engine, test, series.threads, more=dict(series.more))
        for test in tests
    ]


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
