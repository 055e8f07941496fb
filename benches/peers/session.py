"""One run of one model: all engines are loaded, then take turns, test by test."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benches.browser.measure import Bench, Tab
from benches.figures import Series
from benches.peers.native import Worker
from benches.prepare import say
from benches.turns import attempt, settled

ENGINES = ("halfbyte", "llama.cpp", "ik_llama.cpp")
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

        def rounds() -> None:
            for turn in range(plan.rounds + 1):
                say(f"{name}: round {turn} of {plan.rounds}{'' if turn else ' (to warm up)'}")
                for (test, worker), series in native.items():
                    _native_turn(test, worker, series, first=not turn)
                for tab, pair in zip(tabs, pairs, strict=True):
                    _take_turn(tab, pair, first=not turn)

        settled([*native.values(), *(series for pair in pairs for series in pair)], rounds)
        loads = {(load.engine, load.threads): load for load in results.loads}
        for worker in workers:
            load = loads[worker.engine, worker.threads]
            if not worker.reason and (peak := attempt([load], worker.peak_bytes)):
                load.more["memory_bytes"] = peak
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
    kinds = [(engine, threads) for threads in plan.threads for engine in ENGINES]
    results.loads = [Series(name, engine, "load", threads) for engine, threads in kinds]
    loads = min(LOADS, plan.rounds)
    workers = []
    for turn in range(loads):
        say(f"{name}: loading, {turn + 1} of {loads}")
        for series in results.loads:
            start = partial(Worker, series.engine, path, series.threads, plan.context)
            worker = attempt([series], start)
            if worker is None:
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
    if worker.reason:  # at another test
        series.seconds.clear()
        series.more["reason"] = worker.reason
    taken = attempt([series], lambda: worker.run(test) / int(test[2:]))
    worker.reason = series.more.get("reason", "")
    if taken and not first:
        series.seconds.append(taken)


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
    answer = attempt(pair, tab.run)
    if answer is None:
        return
    *speeds, read = answer
    for series, speed in zip(pair, speeds, strict=True):
        if first:
            series.more.setdefault("first_seconds", 1 / speed)
        else:
            series.seconds.append(1 / speed)
    if read and first:
        pair[1].more["reads"] = []
    elif read:
        pair[1].more["reads"].append(read)
