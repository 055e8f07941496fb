"""Errors of models and feeds: ONNX Runtime's exceptions, in the same situations."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.onnx.session.models import (
    FLOAT,
    HALFBYTE,
    INT64,
    ONNX_RUNTIME,
    STRING,
    added,
    identity,
    model,
    node,
    session,
    tensor,
    weight,
)

from halfbyte.errors import HalfbyteError

X = np.zeros((1, 2), np.float32)
_RELU = node("Relu", "x")
_TWICE = [node("Relu", "x"), node("Neg", "x")]
_CYCLE = [node("Relu", "z"), node("Relu", "y", "z")]

MODELS: dict[str, Any] = {
    "no bytes": b"",
    "random bytes": bytes(range(7, 107)),
    "truncated": added()[:-20],
    "None": None,
    "number": 3,
    "unknown operator": model([node("Nope", "x")]),
    "unknown operator of a known domain": model(
        [node("Nope", "x", domain="com.microsoft")], domains=[("com.microsoft", 1)]
    ),
    "unknown domain": model([node("Nope", "x", domain="foo")], domains=[("foo", 1)]),
    "operator of a later version": model([node("Gelu", "x")], opset=17),
    "version that is too new": model([_RELU], opset=99),
    "version that is too old": model([_RELU], opset=5),
    "IR version that is too new": model([_RELU], ir_version=99),
    "unknown attribute": model([node("Relu", "x", foo=1)]),
    "attribute of another type": model([node("LeakyRelu", "x", alpha="a")]),
    "list where a number is expected": model([node("LeakyRelu", "x", alpha=[1.0])]),
    "attribute that is missing": model([node("Cast", "x")]),
    "too many inputs": model([node("Relu", "x x")]),
    "too few inputs": model([node("Add", "x")]),
    "nodes in a cycle": model(_CYCLE),
    "value of two nodes": model(_TWICE),
    "value of no node": model([node("Relu", "z")]),
}

_TWO = model([node("Gather", "x i")], [tensor("x"), tensor("i", INT64, [1])])
_RESHAPE = model(
    [node("Reshape", "x s")], [tensor("x"), tensor("s", INT64, [1])], [tensor("y", FLOAT, None)]
)
_SIZE = {"s": np.array([7], np.int64)}
RUNS: dict[str, tuple[bytes, Any, Any]] = {
    "missing input": (added(), None, {}),
    "another input": (added(), None, {"q": X}),
    "unknown input": (added(), None, {"x": X, "q": X}),
    "initializer that is not an input": (added(), None, {"x": X, "w": X[0]}),
    "unknown output": (added(), ["q"], {"x": X}),
    "name of outputs as a string": (added(), "y", {"x": X}),
    "another dtype": (added(), None, {"x": X.astype(np.float64)}),
    "integers": (added(), None, {"x": X.astype(np.int64)}),
    "another rank": (added(), None, {"x": X[0]}),
    "another size": (added(), None, {"x": np.zeros((1, 3), np.float32)}),
    "Python's number": (added(), None, {"x": 1.0}),
    "NumPy's number": (identity(FLOAT, []), None, {"x": np.float32(1)}),
    "string": (added(), None, {"x": "abc"}),
    "None": (added(), None, {"x": None}),
    "strings for numbers": (identity(), None, {"x": np.array(["a", "b"])}),
    "numbers for strings": (identity(STRING), None, {"x": X[0]}),
    "another size of an initializer": (
        model([node("Add", "x w")], [tensor("x"), tensor("w")], weights=[weight("w", [1, 2])]),
        None,
        {"x": X[0], "w": np.zeros(3, np.float32)},
    ),
    "node that cannot compute": (_RESHAPE, None, {"x": X[0], **_SIZE}),
}

# Exceptions whose names differ, and why: ours, ONNX Runtime's.
DIFFERENT = {
    "version that is too new": ("NotImplemented", "Fail"),  # the more precise name
    "IR version that is too new": ("NotImplemented", "Fail"),
    "unknown operator of a known domain": ("NotImplemented", "Fail"),
    "value of no node": ("Fail", "InvalidArgument"),  # not an argument of the caller
}


def outcome(action: Callable[[], Any]) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is the question
        action()
    return caught.value


def compare(name: str, ours: BaseException, theirs: BaseException) -> None:
    assert isinstance(ours, HalfbyteError), repr(ours)
    assert "\n" not in str(ours)
    names = {kind.__name__ for kind in type(ours).__mro__}
    if name in DIFFERENT:
        assert (type(ours).__name__, type(theirs).__name__) == DIFFERENT[name]
    else:
        assert type(theirs).__name__ in names, f"{ours!r}, expected {theirs!r}"


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    """These are refused at construction."""
    ours, theirs = (
        outcome(functools.partial(session, api, MODELS[name])) for api in (HALFBYTE, ONNX_RUNTIME)
    )
    compare(name, ours, theirs)


@pytest.mark.parametrize("name", RUNS)
def test_runs(name: str) -> None:
    data, names, feeds = RUNS[name]
    ours, theirs = (session(api, data) for api in (HALFBYTE, ONNX_RUNTIME))
    compare(
        name,
        outcome(lambda: ours.run(names, feeds)),
        outcome(lambda: theirs.run(names, feeds)),
    )
    good = {"x": X, **_SIZE} if data == _RESHAPE else {"x": X}
    if data == added():  # the session still runs
        assert len(ours.run(None, good)) == 1


def test_files(tmp_path: Path) -> None:
    (tmp_path / "empty.onnx").touch()
    (tmp_path / "random.onnx").write_bytes(os.urandom(100) + b"\xff")
    for path in (tmp_path, *(tmp_path / n for n in ("empty.onnx", "random.onnx", "none.onnx"))):
        for source in (path, str(path)):
            ours, theirs = (
                outcome(functools.partial(session, api, source)) for api in (HALFBYTE, ONNX_RUNTIME)
            )
            compare(path.name, ours, theirs)
            assert path.name in str(ours)


def test_messages_name_the_place_and_the_expectation() -> None:
    ours = session(HALFBYTE, added())
    for feeds, text in (
        ({"x": X[0]}, r"input 'x': .*found 1 dimensions \[2\], expected 2: \['n', 2\]"),
        ({"x": X.astype(int)}, r"tensor\(int64\).*expected: \(tensor\(float\)\)"),
        ({"x": X, "q": X}, r"Invalid input name: 'q', expected one of \['x'\]"),
    ):
        with pytest.raises(HalfbyteError, match=text):
            ours.run(None, feeds)
    with pytest.raises(HalfbyteError, match=r"node 'bad' \(Relu\): attribute 'foo': expected one"):
        session(HALFBYTE, model([node("Relu", "x", name="bad", foo=1)]))


def test_subgraphs_and_functions_are_checked() -> None:
    from onnx import helper

    branch = helper.make_graph([node("Nope", "x", "b")], "b", [], [tensor("b")])
    data = model(
        [node("If", "c", then_branch=branch, else_branch=branch)],
        [tensor("x"), tensor("c", 9, [])],
    )
    with pytest.raises(HALFBYTE.capi.onnxruntime_pybind11_state.InvalidGraph, match="Nope"):
        session(HALFBYTE, data)
    body = [node("Relu", "a", "b", alpha=1.0)]
    opsets = [helper.make_opsetid("", 21)]
    function = helper.make_function("own", "F", ["a"], ["b"], body, opsets)
    data = model([node("F", "x", domain="own")], domains=[("own", 1)], functions=[function])
    with pytest.raises(HALFBYTE.capi.onnxruntime_pybind11_state.InvalidGraph, match="function 'F'"):
        session(HALFBYTE, data)


def test_terminate_and_wrong_run_options() -> None:
    ours = session(HALFBYTE, added())
    options = HALFBYTE.RunOptions()
    options.add_run_config_entry("a", "b")
    assert options.get_run_config_entry("a") == "b"
    assert len(ours.run(None, {"x": X}, options)) == 1
    options.terminate = True
    with pytest.raises(HALFBYTE.capi.onnxruntime_pybind11_state.Fail, match="terminate"):
        ours.run(None, {"x": X}, options)
    with pytest.raises(TypeError, match="run_options"):
        ours.run(None, {"x": X}, 3)
