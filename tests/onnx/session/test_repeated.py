"""Runs that repeat an earlier one go straight to its program, with the same results and errors."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.onnx.graphs import Net
from tests.onnx.session.models import HALFBYTE

from halfbyte.core.backends.direct import DirectOperands
from halfbyte.errors import HalfbyteError
from halfbyte.onnx.session.session import InferenceSession

Array = npt.NDArray[Any]


class Counted(InferenceSession):
    """Counts runs that took the long way."""

    long = 0

    def _run(self, *arguments: Any) -> list[Any]:
        self.long += 1
        return super()._run(*arguments)


def opened(*outputs: str, net: Net, **options: Any) -> Counted:
    settings = HALFBYTE.SessionOptions()
    for name, value in options.items():
        setattr(settings, name, value)
    return Counted(net.proto(*outputs).SerializeToString(), settings)


def squares() -> tuple[Net, Counted]:
    net = Net()
    x = net.x(2, 3)
    return net, opened(net.node("Mul", x, x), net.node("Relu", x), net=net)


def test_results_are_of_the_new_feeds_and_belong_to_the_caller() -> None:
    net, session = squares()
    kept = []
    for _ in range(4):
        x = net.numbers(2, 3)
        kept.append((x.copy(), session.run(None, {"x0": x})))
    for x, (y, z) in kept:
        np.testing.assert_array_equal(y, x * x)
        np.testing.assert_array_equal(z, np.maximum(x, 0))
    assert session.long == 1


def test_other_names_types_and_shapes_are_other_calls() -> None:
    net, session = squares()
    x = net.numbers(2, 3)
    y, z = session.get_outputs()[0].name, session.get_outputs()[1].name
    for count in range(2):
        (only,) = session.run([z], {"x0": x})
        np.testing.assert_array_equal(only, np.maximum(x, 0))
        second, first = session.run([z, y], {"x0": x})
        np.testing.assert_array_equal(first, x * x)
        np.testing.assert_array_equal(second, np.maximum(x, 0))
        for rows in (5, 7, 9):
            more = net.numbers(rows, 3)
            np.testing.assert_array_equal(session.run([y], {"x0": more})[0], more * more)
        np.testing.assert_array_equal(session.run(None, {"x0": x.T.copy().T})[0], x * x)
        assert session.long == 6, count


def test_wrong_calls_are_refused_as_before() -> None:
    net, session = squares()
    x = net.numbers(2, 3)
    y = session.get_outputs()[0].name
    session.run([y], {"x0": x})
    for names, feeds in (
        (y, {"x0": x}), ([["y"]], {"x0": x}), (["no"], {"x0": x}), ([y], {}), ([y], {"x1": x}),
        ([y], {"x0": x.astype(np.float64)}), ([y], {"x0": x[0]}), ([y], {"x0": x, "x1": x}),
    ):  # fmt: skip
        for _ in range(2):
            with pytest.raises((HalfbyteError, ValueError, TypeError)):
                session.run(names, feeds)  # type: ignore[arg-type]


def test_programs_that_are_gone_are_captured_again() -> None:
    net = Net()
    session = opened(net.node("Exp", net.x(2, 3)), net=net, program_cache_bytes=0)
    x, more = net.numbers(2, 3), net.numbers(4, 3)
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, {"x0": x})[0], np.exp(x), rtol=1e-6)
        np.testing.assert_allclose(session.run(None, {"x0": more})[0], np.exp(more), rtol=1e-6)
    assert session.long == 6
    session.close()
    with pytest.raises(HalfbyteError, match="closed"):
        session.run(None, {"x0": x})


def test_threads_take_turns() -> None:
    net, session = squares()
    session.run(None, {"x0": net.numbers(2, 3)})
    problems: list[str] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(200):
            x = rng.standard_normal((2 + seed % 2, 3)).astype(np.float32)
            if not np.array_equal(session.run(None, {"x0": x})[0], x * x):
                problems.append(f"thread {seed}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


def test_results_that_are_not_of_one_program_take_the_long_way() -> None:
    """Shapes that depend on values, and conditions that do."""
    net = Net()
    session = opened(net.node("NonZero", net.node("Relu", net.x(2, 3))), net=net)
    for x in (np.ones((2, 3), np.float32), -np.ones((2, 3), np.float32)):
        assert session.run(None, {"x0": x})[0].shape == (2, int((x > 0).sum()))
    assert session.long == 2


def large() -> tuple[Net, Counted]:
    """Arrays that are not copied into the program's memory: x x, exp(relu(x)) and x itself."""
    net = Net()
    x = net.x(96, 128)
    positive = net.node("Relu", x)
    outputs = net.node("Mul", x, x), positive, net.node("Exp", positive)
    return net, opened(*outputs, net=net)


def unaligned(x: Array) -> Array:
    memory = np.zeros(x.nbytes + 1, np.uint8)
    view = memory[1:].view(x.dtype).reshape(x.shape)
    view[...] = x
    return view


def test_large_arrays_are_used_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    placed: list[int] = []
    place = DirectOperands.place

    def counted(self: DirectOperands, arrays: Any) -> None:
        placed.append(len(arrays))
        place(self, arrays)

    monkeypatch.setattr(DirectOperands, "place", counted)
    net, session = large()
    y, z, e = (output.name for output in session.get_outputs())
    kept = []
    for kind in range(8):
        x = net.numbers(96, 128)
        original = x.copy()
        given = (x, unaligned(x), x.T.copy().T, x)[kind % 4]
        given.setflags(write=kind % 4 != 3)
        names = ([y, z, e], [e, y])[kind // 4]
        results = dict(zip(names, session.run(names, {"x0": given}), strict=True))
        kept.append((original, given, results))
    for original, given, results in kept:
        np.testing.assert_array_equal(given, original)
        np.testing.assert_array_equal(results[y], original * original)
        np.testing.assert_allclose(results[e], np.exp(np.maximum(original, 0)), rtol=1e-6)
    # of the first call with each names, none is repeated; x, where it can be, and the results
    assert placed == [3, 3, 4, 2, 2, 3]
    assert session.long == 2


def test_the_long_way_after_large_arrays_has_its_own_memory() -> None:
    net, session = large()
    results = []
    for count in range(6):
        x = net.numbers(96, 128)
        options = HALFBYTE.RunOptions() if count % 2 else None
        results.append((x.copy(), session.run(None, {"x0": x}, options)))
        x[...] = np.nan
        del x
    for x, (y, z, e) in results:
        np.testing.assert_array_equal(y, x * x)
        np.testing.assert_array_equal(z, np.maximum(x, 0))
        np.testing.assert_allclose(e, np.exp(np.maximum(x, 0)), rtol=1e-6)


def test_inputs_that_are_results_are_copied() -> None:
    net = Net()
    x = net.x(96, 128)
    flat = net.node("Reshape", x, net.array([-1], np.int64))
    session = opened(flat, net.node("Neg", x), net=net)
    for _ in range(3):
        x0 = net.numbers(96, 128)
        same, negative = session.run(None, {"x0": x0})
        np.testing.assert_array_equal(same, x0.reshape(-1))
        np.testing.assert_array_equal(negative, -x0)
        assert not np.shares_memory(same, x0)
    assert session.long == 1
