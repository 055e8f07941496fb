"""One run of one model: all engines are loaded, then take turns, test by test."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

from benches.browser.measure import Bench, Tab
from benches.figures import Series
from benches.peers.native import PeerError, Worker, reason
from benches.prepare import installed, say

ENGINES = ("halfbyte", "llama.cpp")
OPTIONAL = "ik_llama.cpp"  # takes part if it is installed
LOADS = 3  # at most; a process each


@dataclass(frozen=True)
class Plan:
    """The tests of a run, and how often each is repeated."""

    rounds: int
    threads: list[int]
    prompts: list[int]
    decodes: list[int]
    tabs: list[tuple[str, int]]  # engines in the browser; number of threads, 0 for the default

    @property
    def tests(self) -> list[str]:
        """The tests of native engines."""
        return [f"pp{p}" for p in self.prompts] + [f"tg{n}" for n in self.decodes]

    @property
    def context(self) -> int:
        """Tokens of the longest test."""
        return max(*self.prompts, *(n + 1 for n in self.decodes), 32)


@dataclass
class Results:
    """The figures of one model."""

    native: list[Series] = field(default_factory=list)
    tabs: list[Series] = field(default_factory=list)
    loads: list[Series] = field(default_factory=list)
    about: dict[str, str] = field(default_factory=dict)  # which code ran, by engine and model

    @property
    def all(self) -> list[Series]:
        """All series, for the file."""
        return self.native + self.tabs + self.loads


def measure(name: str, path: Path, plan: Plan, bench: Bench | None, address: str) -> Results:
    """Run all rounds, with the engines of a browser if there is a bench."""
    results = Results()
    with ExitStack() as stack:
        workers = _start(name, path, plan, results, stack)
        tabs: list[Tab] = []
        if bench:
            say(f"{name}: opening {len(plan.tabs)} tabs ...")
            sizes = plan.prompts[0], plan.decodes[0]
            tabs = stack.enter_context(bench.tabs(name, address, plan.tabs, *sizes))
        native = {(t, w): Series(name, w.engine, t, w.threads) for t in plan.tests for w in workers}
        pairs = [_series_of(name, tab, plan) for tab in tabs]
        for turn in range(plan.rounds + 1):
            say(f"{name}: round {turn} of {plan.rounds}" + (" (to warm up)" if not turn else ""))
            for (test, worker), series in native.items():
                _native_turn(test, worker, series, first=not turn)
            for tab, pair in zip(tabs, pairs, strict=True):
                _take_turn(tab, pair, first=not turn)
        loads = {(load.engine, load.threads): load for load in results.loads}
        for worker in workers:
            if not worker.reason:
                loads[worker.engine, worker.threads].more["memory_bytes"] = worker.peak_bytes()
        results.native = [*native.values(), *_not_started(name, plan, results.loads, workers)]
        results.tabs = [series for pair in pairs for series in pair]
    return results


def _start(
    name: str, path: Path, plan: Plan, results: Results, stack: ExitStack
) -> Sequence[Worker]:
    """Start a process for each engine and number of threads, in turns, and time the loading."""
    if not plan.threads:
        return []
    path.read_bytes()  # into the system's cache
    engines = [*ENGINES, *([OPTIONAL] if installed(OPTIONAL) else [])]
    kinds = [(engine, threads) for threads in plan.threads for engine in engines]
    results.loads = [Series(name, engine, "load", threads) for engine, threads in kinds]
    loads = min(LOADS, plan.rounds)
    workers = []
    for turn in range(loads):
        say(f"{name}: loading, {turn + 1} of {loads}")
        for series in results.loads:
            if "reason" in series.more:
                continue
            try:
                worker = Worker(series.engine, path, series.threads, plan.context)
            except PeerError as error:
                _failed(series, error)
                continue
            series.seconds.append(worker.load_seconds)
            results.about[f"{series.engine}, {name}"] = worker.about
            if turn + 1 < loads:
                worker.close()
            else:
                workers.append(stack.enter_context(closing(worker)))
    return workers


def _native_turn(test: str, worker: Worker, series: Series, *, first: bool) -> None:
    """One turn; a peer that fails has no more of them, and its figures say why."""
    if not worker.reason:
        try:
            taken = worker.run(test) / int(test[2:])
        except PeerError as error:
            worker.reason = _failed(series, error)
        else:
            if not first:
                series.seconds.append(taken)
    if worker.reason:
        series.seconds.clear()
        series.more["reason"] = worker.reason


def _failed(series: Series, error: PeerError) -> str:
    """The reason, which stands for the peer's figures; halfbyte may not fail."""
    if series.engine == "halfbyte":
        raise error
    say(str(error))
    series.seconds.clear()
    series.more["reason"] = reason(error)
    return reason(error)


def _not_started(
    name: str, plan: Plan, loads: Sequence[Series], workers: Sequence[Worker]
) -> list[Series]:
    """Empty series of peers that did not even load."""
    started = {(worker.engine, worker.threads) for worker in workers}
    return [
        Series(name, load.engine, test, load.threads, more={"reason": load.more["reason"]})
        for test in plan.tests
        for load in loads
        if (load.engine, load.threads) not in started
    ]


def _series_of(name: str, tab: Tab, plan: Plan) -> tuple[Series, Series]:
    tests = f"pp{plan.prompts[0]}", f"tg{plan.decodes[0]}"
    first, second = (Series(name, tab.engine, test, tab.threads) for test in tests)
    return first, second


def _take_turn(tab: Tab, pair: tuple[Series, Series], *, first: bool) -> None:
    """One turn; the first run is mostly code of the browser's first compiler."""
    if tab.reason:
        for series in pair:
            series.more["reason"] = tab.reason
        return
    *speeds, read = tab.run()
    for series, speed in zip(pair, speeds, strict=True):
        if first:
            series.more["first_seconds"] = 1 / speed
        else:
            series.seconds.append(1 / speed)
    if read and not first:
        pair[1].more.setdefault("reads", []).append(read)
