"""Descriptions and results of sessions, compared with ONNX Runtime's."""

from __future__ import annotations

import copy
import io
import pickle
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.onnx.session.models import (
    BOOL,
    FLOAT,
    HALFBYTE,
    INT64,
    ONNX_RUNTIME,
    STRING,
    added,
    arguments,
    identity,
    model,
    node,
    proto,
    session,
    tensor,
    weight,
)

import halfbyte
from halfbyte.errors import HalfbyteError
from halfbyte.onnx.files import dtypes

OPTIONAL = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, [2]))
SEQUENCE = helper.make_tensor_sequence_value_info
X = np.arange(4, dtype=np.float32).reshape(2, 2)
W = np.array([1, 2], np.float32)  # of `added`

MODELS = {
    "symbolic and unknown sizes": identity(FLOAT, ["batch", 3, None, "", 0]),
    "scalar": identity(FLOAT, []),
    "no rank": identity(FLOAT, None),
    "string": identity(STRING),
    "float16": identity(TensorProto.FLOAT16),
    "bfloat16": identity(TensorProto.BFLOAT16),
    "float8": identity(TensorProto.FLOAT8E5M2),
    "uint64": identity(TensorProto.UINT64),
    "sequences": model(
        [node("SequenceInsert", "s x", "z")],
        [SEQUENCE("s", FLOAT, ["a"]), tensor("x", FLOAT, ["a"])],
        [SEQUENCE("z", FLOAT, None)],
    ),
    "optionals": model(
        [node("OptionalHasElement", "o")],
        [helper.make_value_info("o", OPTIONAL)],
        [tensor("y", BOOL, [])],
    ),
    "initializers that are inputs": model(
        [node("Add", "x w")], [tensor("x"), tensor("w")], weights=[weight("w", [1, 2])]
    ),
    "the same before IR version 4": model(
        [node("Add", "x w")],
        [tensor("x"), tensor("w")],
        weights=[weight("w", [1, 2])],
        ir_version=3,
        opset=9,
    ),
    "an input that nothing reads": model([node("Relu", "x")], [tensor("x"), tensor("unused")]),
}


@pytest.mark.parametrize("name", MODELS)
def test_inputs_and_outputs(name: str) -> None:
    theirs, ours = (session(api, MODELS[name]) for api in (ONNX_RUNTIME, HALFBYTE))
    for method in ("get_inputs", "get_outputs", "get_overridable_initializers"):
        actual, expected = (arguments(getattr(s, method)()) for s in (ours, theirs))
        assert actual == expected
        texts = [list(map(str, getattr(s, method)())) for s in (ours, theirs)]
        assert texts[0] == texts[1]


def test_metadata() -> None:
    built = proto(
        [node("Relu", "x")], producer_name="tests", domain="org.example", model_version=7,
        doc_string="a model",
    )  # fmt: skip
    helper.set_model_props(built, {"a": "1", "b": "ä"})
    theirs, ours = (
        session(api, built.SerializeToString()).get_modelmeta() for api in (ONNX_RUNTIME, HALFBYTE)
    )
    fields = [name for name in dir(theirs) if not name.startswith("_")]
    assert {n: getattr(ours, n) for n in fields} == {n: getattr(theirs, n) for n in fields}
    assert ours.custom_metadata_map == {"a": "1", "b": "ä"}


def test_every_method_exists() -> None:
    for name in ("InferenceSession", "SessionOptions", "OrtValue", "IOBinding", "RunOptions"):
        theirs, ours = (
            {n for n in dir(getattr(api, name)) if n[0] != "_"} for api in (ONNX_RUNTIME, HALFBYTE)
        )
        assert theirs <= ours, name


def test_sources(tmp_path: Path) -> None:
    data = added()
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    with path.open("rb") as file:
        sources: list[Any] = [
            path, str(path), data, bytearray(data), memoryview(data), io.BytesIO(data), file,
        ]  # fmt: skip
        for source in sources:
            (y,) = halfbyte.InferenceSession(source).run(None, {"x": X})
            np.testing.assert_array_equal(y, X + W)


def test_names_of_outputs() -> None:
    data = model(
        [node("Relu", "x", "a"), node("Neg", "x", "b")], outputs=[tensor("a"), tensor("b")]
    )
    x = np.array([1, -1], np.float32)
    for names in (None, [], ["b"], ("b", "a"), ["a", "a"]):
        theirs, ours = (session(api, data).run(names, {"x": x}) for api in (ONNX_RUNTIME, HALFBYTE))
        np.testing.assert_array_equal(ours, theirs)


FEEDS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "list": (identity(), {"x": [1.5, 2]}),
    "columns first": (identity(FLOAT, [2, 2]), {"x": np.asfortranarray(X)}),
    "strided": (identity(), {"x": X[:, 1]}),
    "scalar": (identity(FLOAT, []), {"x": np.array(3, np.float32)}),
    "empty": (added(), {"x": np.zeros((0, 2), np.float32)}),
    "float16": (identity(TensorProto.FLOAT16), {"x": np.array([1, 65504], np.float16)}),
    "bool": (identity(BOOL), {"x": np.array([True, False])}),
    "uint64": (identity(TensorProto.UINT64), {"x": np.array([1, 1 << 63], np.uint64)}),
    "unicode strings": (identity(STRING), {"x": np.array(["a", "bé"])}),
    "string objects": (identity(STRING), {"x": np.array(["a", "bé"], object)}),
    "strings in a list": (identity(STRING), {"x": ["a", ""]}),
    "objects that are not strings": (identity(STRING), {"x": np.array([1, None], object)}),
    "initializer": (
        MODELS["initializers that are inputs"], {"x": X[0], "w": np.array([5, 5], np.float32)},
    ),
    "initializer left out": (MODELS["initializers that are inputs"], {"x": X[0]}),
    "sequence": (MODELS["sequences"], {"s": [X[0], X[1]], "x": X[1]}),
    "empty sequence": (MODELS["sequences"], {"s": [], "x": X[1]}),
    "optional": (MODELS["optionals"], {"o": X[0]}),
    "optional that is None": (MODELS["optionals"], {"o": None}),
    "optional left out": (MODELS["optionals"], {}),
}  # fmt: skip


def equal(actual: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert isinstance(actual, list)
        assert len(actual) == len(expected)
        for pair in zip(actual, expected, strict=True):
            equal(*pair)
        return
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("name", FEEDS)
def test_feeds(name: str) -> None:
    data, feeds = FEEDS[name]
    theirs, ours = (session(api, data).run(None, feeds) for api in (ONNX_RUNTIME, HALFBYTE))
    equal(ours, theirs)


TYPES: dict[int, Any] = {
    TensorProto.BFLOAT16: ml_dtypes.bfloat16,
    TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    TensorProto.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    TensorProto.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
    TensorProto.FLOAT8E8M0: ml_dtypes.float8_e8m0fnu,
    TensorProto.FLOAT4E2M1: ml_dtypes.float4_e2m1fn,
    TensorProto.INT4: ml_dtypes.int4,
    TensorProto.UINT4: ml_dtypes.uint4,
    TensorProto.INT2: ml_dtypes.int2,
    TensorProto.UINT2: ml_dtypes.uint2,
}


@pytest.mark.parametrize("number", TYPES)
def test_types_that_numpy_lacks(number: int) -> None:
    """They are arrays of ml_dtypes in both directions; structured arrays are accepted too."""
    data = identity(number, [3], opset=25, ir_version=13)
    ours = session(HALFBYTE, data)
    x = np.array([1, 1, 2]).astype(TYPES[number])
    if number in (TensorProto.INT4, TensorProto.INT2):
        x = np.array([1, -1, -2]).astype(TYPES[number])
    (y,) = ours.run(None, {"x": x})
    assert y.dtype == TYPES[number]
    assert y.tobytes() == x.tobytes()
    value = HALFBYTE.OrtValue.ortvalue_from_numpy(x)
    assert value.element_type() == number
    assert ours.run(None, {"x": value})[0].tobytes() == x.tobytes()
    structured = value._value
    assert structured.dtype == dtypes.DTYPES[number]
    assert ours.run(None, {"x": structured})[0].tobytes() == x.tobytes()
    assert arguments(ours.get_inputs())[0][2] == value.data_type()


def test_results_without_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    from halfbyte.onnx.session import arrays

    monkeypatch.setattr(arrays, "_ml_dtypes", lambda: None)
    x = np.array([1, 2]).astype(ml_dtypes.bfloat16)
    (y,) = session(HALFBYTE, identity(TensorProto.BFLOAT16)).run(None, {"x": x})
    assert y.dtype == dtypes.BFLOAT16
    assert dtypes.widen(y).tolist() == [1, 2]


def test_results_are_the_callers_own() -> None:
    ours = session(HALFBYTE, added())
    (first,) = ours.run(None, {"x": X})
    kept = first.copy()
    ours.run(None, {"x": X + 1})
    np.testing.assert_array_equal(first, kept)
    x = X[0].copy()
    (y,) = session(HALFBYTE, identity()).run(None, {"x": x})
    y[:] = 7
    assert x.tolist() == [0, 1]


def test_maps() -> None:
    kind = helper.make_sequence_type_proto(
        helper.make_map_type_proto(INT64, helper.make_tensor_type_proto(FLOAT, []))
    )
    data = model(
        [node("ZipMap", "x", domain="ai.onnx.ml", classlabels_int64s=[4, 5])],
        [tensor("x", FLOAT, [1, 2])],
        [helper.make_value_info("y", kind)],
        domains=[("ai.onnx.ml", 1)],
    )
    theirs, ours = (session(api, data) for api in (ONNX_RUNTIME, HALFBYTE))
    assert arguments(ours.get_outputs()) == arguments(theirs.get_outputs())
    assert ours.run(None, {"x": X[:1]}) == theirs.run(None, {"x": X[:1]}) == [[{4: 0.0, 5: 1.0}]]


def test_other_byte_order() -> None:
    """ONNX Runtime uses the bytes without a conversion."""
    (y,) = session(HALFBYTE, identity()).run(None, {"x": np.array([1, 2], ">f4")})
    assert (y.dtype, y.tolist()) == (np.dtype("=f4"), [1, 2])


def test_many_threads_share_a_session() -> None:
    ours = session(HALFBYTE, added())
    wrong: list[float] = []

    def work(value: float) -> None:
        for size in (1, 2, 3) * 10:
            x = np.full((size, 2), value, np.float32)
            (y,) = ours.run(None, {"x": x})
            if not np.array_equal(y, x + W):
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(float(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_runs_in_a_thread_of_its_own() -> None:
    calls: list[Any] = []
    done = threading.Event()

    def callback(results: list[Any], data: Any, problem: str) -> None:
        calls.append((results, data, problem))
        done.set()

    ours = session(HALFBYTE, added())
    ours.run_async(None, {"x": X}, callback, "data")
    assert done.wait(10)
    ((results, data, problem),) = calls
    np.testing.assert_array_equal(results[0], X + W)
    assert (data, problem) == ("data", "")
    done.clear()
    ours.run_async(None, {}, callback, None)
    assert done.wait(10)
    assert "Required inputs (['x'])" in calls[1][2]


@pytest.mark.parametrize("call", [pickle.dumps, copy.copy, copy.deepcopy])
def test_pickling_and_copying_are_refused(call: Any) -> None:
    ours = session(HALFBYTE, added())
    with pytest.raises(TypeError, match="a session cannot be pickled or copied") as caught:
        call(ours)
    assert isinstance(caught.value, HalfbyteError)


def test_closed_sessions_do_not_run() -> None:
    with session(HALFBYTE, added()) as ours:
        ours.run(None, {"x": X})
    with pytest.raises(HalfbyteError, match="is closed"):
        ours.run(None, {"x": X})


def test_providers(recwarn: pytest.WarningsRecorder) -> None:
    data = added()
    cpu = ["CPUExecutionProvider"]
    ours = HALFBYTE.InferenceSession(data, providers=cpu)
    assert ours.get_providers() == cpu == session(ONNX_RUNTIME, data).get_providers()
    assert ours.get_provider_options() == session(ONNX_RUNTIME, data).get_provider_options()
    ours.set_providers([("CPUExecutionProvider", {"a": 1})])
    ours.disable_fallback()
    ours.enable_fallback()
    assert not recwarn
    with pytest.warns(UserWarning, match="CUDAExecutionProvider.*not available"):
        ours = HALFBYTE.InferenceSession(data, providers=["CUDAExecutionProvider", *cpu])
    assert ours.get_providers() == cpu
    for wrong in ([3], [("a", "b")], [("a", {}, 3)]):
        with pytest.raises(ValueError, match="providers"):
            HALFBYTE.InferenceSession(data, providers=wrong)
    with pytest.raises(ValueError, match="provider_options"):
        HALFBYTE.InferenceSession(data, providers=cpu, provider_options=[])
    with pytest.raises(TypeError, match="providers"):
        HALFBYTE.InferenceSession(data, providers=3)


def test_external_data(tmp_path: Path) -> None:
    built = onnx.load_from_string(added())
    path = tmp_path / "model.onnx"
    onnx.save(built, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    (y,) = session(HALFBYTE, path).run(None, {"x": X})
    np.testing.assert_array_equal(y, X + W)
    data = path.read_bytes()
    with pytest.raises(HalfbyteError, match=r"w\.bin.*open it by its path"):
        session(HALFBYTE, data)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(HALFBYTE.capi.onnxruntime_pybind11_state.Fail, match=r"w\.bin"):
        session(HALFBYTE, path)
