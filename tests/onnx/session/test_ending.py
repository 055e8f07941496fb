"""The end of runs and preparations: termination, cancellation, and a bounded number of runners."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
from collections import Counter
from typing import Any

import numpy as np
import pytest
from onnx import helper
from tests.onnx.session.models import (
    FLOAT,
    HALFBYTE,
    ONNX_RUNTIME,
    added,
    model,
    node,
    session,
    tensor,
    weight,
)

from halfbyte.core.backends import open_program
from halfbyte.core.interrupt import interruptible
from halfbyte.onnx import capture
from halfbyte.onnx import prepare as preparing
from halfbyte.onnx.files import open_onnx
from halfbyte.onnx.prepare import prepare
from halfbyte.onnx.runner import Runner
from halfbyte.onnx.session import Fail
from halfbyte.onnx.session.session import MAX_RUNNERS

X = np.ones((1, 2), np.float32)
CANCELED = HALFBYTE.capi.onnxruntime_pybind11_state.ModelLoadCanceled


def overridable(count: int = 9, tail: int = 0) -> bytes:
    """y = x + w0 + w1 ..., where a run may replace every w; with `tail` constants to fold."""
    sums = [node("Add", f"s{i} w{i}", f"s{i + 1}") for i in range(count)]
    folded = [node("Neg", f"c{i}", f"c{i + 1}") for i in range(tail)]
    return model(
        [node("Identity", "x", "s0"), *sums, *folded, node("Add", f"s{count} c{tail}")],
        [tensor("x", FLOAT, ["n", 2]), *(tensor(f"w{i}") for i in range(count))],
        [tensor("y", FLOAT, ["n", 2])],
        [weight("c0", [0, 0]), *(weight(f"w{i}", [i, i]) for i in range(count))],
    )


def spoiled(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, end: Any) -> list[None]:
    """Call `end` with every call of a function; returns a list that grows with each call."""
    function, calls = getattr(where, name), []

    def watched(*arguments: Any) -> Any:
        calls.append(None)
        end()
        return function(*arguments)

    monkeypatch.setattr(where, name, watched)
    return calls


@pytest.mark.parametrize(("where", "name"), [(preparing, "folded"), (capture.Capture, "record")])
def test_terminate_ends_a_preparation(
    where: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends at the next node, and the next run is correct."""
    ours, options = session(HALFBYTE, overridable(tail=9)), HALFBYTE.RunOptions()
    feeds = {"x": X, "w0": np.ones(2, np.float32)}
    calls = spoiled(monkeypatch, where, name, lambda: setattr(options, "terminate", True))
    with pytest.raises(Fail, match="terminate"):
        ours.run(None, feeds, options)
    assert len(calls) == 1
    monkeypatch.undo()
    (y,) = ours.run(None, feeds)
    np.testing.assert_array_equal(y, X + 1 + sum(range(9)))


NODES = 300


def called() -> bytes:
    """y = -...-x, by nested functions, and as many constants to fold."""
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    names = [f"t{i}" for i in range(NODES - 1)]
    chain = [node("Neg", a, b) for a, b in zip(["x", *names], [*names, "y"], strict=True)]
    inner = helper.make_function("own", "Inner", ["x"], ["y"], chain, opsets)
    call = helper.make_node("Inner", ["x"], ["y"], domain="own")
    outer = helper.make_function("own", "Outer", ["x"], ["y"], [call], opsets)
    constants = [node("Neg", f"c{i}", f"c{i + 1}") for i in range(NODES)]
    graph = helper.make_graph(
        [
            helper.make_node("Outer", ["x"], ["z"], domain="own"), *constants,
            node("Add", f"z c{NODES}", "y"),
        ],
        "g", [tensor("x", FLOAT, ["n", 2])], [tensor("y", FLOAT, ["n", 2])],
        [weight("c0", [1, 2])],
    )  # fmt: skip
    proto = helper.make_model(graph, functions=[inner, outer], opset_imports=opsets)
    return bytes(proto.SerializeToString())


PHASES = {
    "inlined", "check_types", "_fold_constants", "merge_equal", "drop_unused", "__init__", "nodes",
    "record", "check", "lifetimes", "_allocate",
}  # fmt: skip


def test_every_phase_of_a_preparation_has_a_step_for_each_node() -> None:
    steps: Counter[str] = Counter()

    def check() -> None:
        steps[sys._getframe(2).f_code.co_name] += 1  # the function that called `step`

    with interruptible(check):
        runner = Runner(prepare(open_onnx(called())), open_program)
        (y,) = runner.run({"x": X}, ["y"]).values()
    runner.close()
    np.testing.assert_array_equal(y, np.add(X, [1, 2]))
    assert {name for name, count in steps.items() if count >= NODES} >= PHASES


def test_any_step_may_be_the_last() -> None:
    """No handler on the way stops the error of the check, and no step follows it."""
    model = open_onnx(called())

    def run(last: int) -> int:
        steps = itertools.count(1)

        def check() -> None:
            if next(steps) == last:
                raise ValueError("enough")

        with interruptible(check):
            Runner(prepare(model), open_program).run({"x": X}, ["y"])
        return next(steps) - 1

    whole = run(0)
    for last in range(1, whole + 1, whole // 50):
        with pytest.raises(ValueError, match="enough"):
            run(last)


def test_terminate_ends_the_wait_for_a_turn() -> None:
    ours, options = session(HALFBYTE, added()), HALFBYTE.RunOptions()
    problems: list[Fail] = []

    def work() -> None:
        try:
            ours.run(None, {"x": X}, options)
        except Fail as error:
            problems.append(error)

    with ours._turns.whole():
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        while not ours._turns._queue:
            assert thread.is_alive()
        options.terminate = True
        thread.join(20)
        assert "terminate" in str(problems[0])
    np.testing.assert_array_equal(ours.run(None, {"x": X})[0], [[2, 3]])


def test_loading_is_canceled(monkeypatch: pytest.MonkeyPatch) -> None:
    for api in (HALFBYTE, ONNX_RUNTIME):
        options = api.SessionOptions()
        options.set_load_cancellation_flag(True)
        with pytest.raises(api.capi.onnxruntime_pybind11_state.ModelLoadCanceled):
            session(api, added(), options)
        options.set_load_cancellation_flag(False)
        assert session(api, added(), options).run(None, {"x": X})
    options = HALFBYTE.SessionOptions()
    cancel = options.set_load_cancellation_flag
    calls = spoiled(monkeypatch, preparing, "folded", lambda: cancel(True))
    with pytest.raises(CANCELED, match="canceled"):
        session(HALFBYTE, overridable(tail=9), options)
    assert len(calls) == 1


def test_runners_are_bounded() -> None:
    """There is one for each set of replaced initializers; the least recently used are closed."""
    options = HALFBYTE.SessionOptions()
    options.intra_op_num_threads = 2
    names = [f"w{i}" for i in range(9)]
    gc.collect()  # other tests' sessions
    before = threading.active_count()
    with session(HALFBYTE, overridable(), options) as ours:
        for size in range(4):
            for replaced in itertools.combinations(names, size):
                feeds = {name: np.full(2, 7, np.float32) for name in replaced}
                (y,) = ours.run(None, {"x": X, **feeds})
                np.testing.assert_array_equal(
                    y, X + sum(7 if name in replaced else int(name[1]) for name in names)
                )
                assert len(ours._runners) <= MAX_RUNNERS
                assert threading.active_count() <= before + MAX_RUNNERS
        assert len(ours.programs()) <= MAX_RUNNERS
    assert threading.active_count() == before
