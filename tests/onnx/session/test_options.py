"""Options of sessions, compared with ONNX Runtime's, and the traces of profiling."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.onnx.session.models import (
    FLOAT,
    HALFBYTE,
    ONNX_RUNTIME,
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
from tests.onnx.session.test_errors import compare, outcome

from halfbyte.core import profiling
from halfbyte.core.backends import available
from halfbyte.errors import HalfbyteError, OutputError

X = np.arange(4, dtype=np.float32).reshape(2, 2)


def test_names_and_defaults() -> None:
    for kind in ("SessionOptions", "RunOptions"):
        theirs, ours = (getattr(api, kind)() for api in (ONNX_RUNTIME, HALFBYTE))
        names = {n for n in dir(theirs) if n[0] != "_"}
        assert names <= set(dir(ours))
        for name in names:
            value = getattr(theirs, name)
            if not callable(value):
                assert comparable(getattr(ours, name)) == comparable(value), name


def comparable(value: Any) -> Any:
    """A number from an enum of pybind, or a string."""
    return value if isinstance(value, str) else int(value)


def _set(name: str, value: Any) -> Callable[[Any], Any]:
    return lambda api: setattr(api.SessionOptions(), name, value)


WRONG: dict[str, Callable[[Any], Any]] = {
    "no such option": _set("nope", 1),
    "number for a level": _set("graph_optimization_level", 99),
    "string for a number": _set("intra_op_num_threads", "a"),
    "no such setting": lambda api: api.SessionOptions().get_session_config_entry("a"),
    "no such setting of a run": lambda api: api.RunOptions().get_run_config_entry("a"),
    "fewer values than names": lambda api: api.SessionOptions().add_external_initializers(
        ["w"], []
    ),
    "no initializer": lambda api: with_initializer(api, "q", [1, 2], data=added()),
    "initializer of another shape": lambda api: with_initializer(api, "w", [1, 2, 3]),
    "initializer of another type": lambda api: with_initializer(api, "w", [1, 2], np.float64),
}


@pytest.mark.parametrize("name", WRONG)
def test_settings_that_are_refused(name: str) -> None:
    ours = outcome(lambda: WRONG[name](HALFBYTE))
    theirs = outcome(lambda: WRONG[name](ONNX_RUNTIME))
    if isinstance(ours, AttributeError):
        assert isinstance(theirs, AttributeError)
    else:
        compare(name, ours, theirs)


def with_initializer(
    api: Any, name: str, values: Any, dtype: Any = np.float32, data: bytes | None = None
) -> Any:
    options = api.SessionOptions()
    value = api.OrtValue.ortvalue_from_numpy(np.array(values, dtype))
    options.add_external_initializers([name], [value])
    return session(api, external() if data is None else data, options).run(None, {"x": X})[0]


def external() -> bytes:
    """`added`, with w in a file that does not exist."""
    built = onnx.load_from_string(added())
    w = built.graph.initializer[0]
    onnx.external_data_helper.set_external_data(w, "w.bin", 0, 8)
    w.ClearField("raw_data")
    w.data_location = TensorProto.EXTERNAL
    return bytes(built.SerializeToString())


def test_initializers_of_models_in_memory() -> None:
    ours, theirs = (with_initializer(api, "w", [5, 6]) for api in (HALFBYTE, ONNX_RUNTIME))
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(ours, X + np.array([5, 6]))
    options = HALFBYTE.SessionOptions()
    options.add_external_initializers_from_files_in_memory(
        ["w.bin"], [np.array([7, 8, 9], np.float32).tobytes()], [8]
    )
    (y,) = session(HALFBYTE, external(), options).run(None, {"x": X})
    np.testing.assert_array_equal(y, X + np.array([7, 8]))


def test_initializers_of_four_bits() -> None:
    values = np.array([1, -2, 3], np.int8).astype(ml_dtypes.int4)
    built = proto(
        [node("DequantizeLinear", "w s")], [], [tensor("y", FLOAT, [3])],
        [helper.make_tensor("w", TensorProto.INT4, [3], [0, 0, 0]), weight("s", 0.5)],
    )  # fmt: skip
    options = HALFBYTE.SessionOptions()
    options.add_initializer("w", HALFBYTE.OrtValue.ortvalue_from_numpy(values))
    ours = session(HALFBYTE, built.SerializeToString(), options)
    assert ours.run(None, {})[0].tolist() == [0.5, -1, 1.5]
    assert ours.model.graph.packed["w"].tolist() == [0xE1, 0x03]


def test_sizes_by_name_and_denotation() -> None:
    built = onnx.load_from_string(identity(FLOAT, ["n", "m", 3]))
    built.graph.input[0].type.tensor_type.shape.dim[1].denotation = "DATA_CHANNEL"
    data = built.SerializeToString()
    described = []
    for api in (ONNX_RUNTIME, HALFBYTE):
        options = api.SessionOptions()
        options.add_free_dimension_override_by_name("n", 4)
        options.add_free_dimension_override_by_name("another", 9)
        options.add_free_dimension_override_by_denotation("DATA_CHANNEL", 5)
        instance = session(api, data, options)
        described.append((arguments(instance.get_inputs()), arguments(instance.get_outputs())))
        with pytest.raises(Exception, match="Got invalid dimensions"):
            instance.run(None, {"x": np.zeros((4, 4, 3), np.float32)})
        assert instance.run(None, {"x": np.zeros((4, 5, 3), np.float32)})[0].shape == (4, 5, 3)
    assert described[0] == described[1] == ([("x", [4, 5, 3], "tensor(float)")], described[0][1])


def test_threads_level_and_backend() -> None:
    options = HALFBYTE.SessionOptions()
    options.intra_op_num_threads = 3
    for backend in (*available(), "native"):
        options.backend = backend
        ours = session(HALFBYTE, added(), options)
        ours.run(None, {"x": X})
        assert (ours._threads, ours.get_session_options().backend) == (3, backend)
    options.backend = "abacus"
    with pytest.raises(HalfbyteError, match="abacus"):
        session(HALFBYTE, added(), options).run(None, {"x": X})
    options.backend = "native"
    options.graph_optimization_level = HALFBYTE.GraphOptimizationLevel.ORT_DISABLE_ALL
    ours = session(HALFBYTE, added(), options)
    ours.run(None, {"x": X})
    (instruction,) = ours.programs()[0].instructions
    assert instruction.operator.host


def test_memory_of_programs_is_shown_and_bounded() -> None:
    options = HALFBYTE.SessionOptions()
    ours = session(HALFBYTE, added(), options)
    assert ours.memory()[1:3] == (0, 0)
    ours.run(None, {"x": X})
    memory = ours.memory()
    assert memory.program_count == 1
    assert memory.programs >= 2 * X.nbytes  # input and output
    assert memory.program_limit == 512 << 20
    options.program_cache_bytes = 0
    ours = session(HALFBYTE, added(), options)
    for rows in (1, 2, 3):
        ours.run(None, {"x": np.ones((rows, *X.shape[1:]), X.dtype)})
        assert ours.memory().program_count == 1  # that of the last run


def test_later_changes_change_nothing() -> None:
    options = HALFBYTE.SessionOptions()
    ours = session(HALFBYTE, added(), options)
    options.logid = "later"
    assert ours.get_session_options().logid == ""


def test_options_that_are_refused() -> None:
    options = HALFBYTE.SessionOptions()
    with pytest.raises(HalfbyteError, match="libraries of custom operators"):
        options.register_custom_ops_library("a.so")
    with pytest.raises(TypeError, match="sess_options"):
        session(HALFBYTE, added(), 3)


# ---- profiling -----------------------------------------------------------------------------------


def test_trace(tmp_path: Path) -> None:
    """It has nodes between programs, and instructions with and without kernels."""
    data = model(
        [
            node("Add", "x x", "a", name="twice"),
            node("NonZero", "a", "b", name="where"),
            node("Mod", "b b", "c", name="rest"),
            node("Neg", "c", "y"),
        ],
        outputs=[tensor("y", TensorProto.INT64, None)],
    )
    options = HALFBYTE.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = tmp_path / "profile"
    ours = session(HALFBYTE, data, options)
    ours.run(None, {"x": np.array([1, 0], np.float32)})
    assert ours.get_profiling_start_time_ns() > 0
    path = ours.end_profiling()
    assert path.startswith(str(tmp_path / "profile_"))
    assert ours.end_profiling() == ""
    events = json.loads(Path(path).read_text())
    nodes = {e["name"].removesuffix("_kernel_time"): e for e in events if e["cat"] == "Node"}
    assert list(nodes) == ["twice", "where", "rest", "y"]
    assert {n: e["args"]["op_name"] for n, e in nodes.items()}["where"] == "NonZero"
    kernels = {n: e["args"]["kernel"] for n, e in nodes.items()}
    assert kernels["where"] == "numpy:NonZero"
    assert kernels["rest"] == "numpy:Mod"
    assert nodes["twice"]["args"]["output_type_shape"] == [{"float": [2]}]
    assert nodes["where"]["args"]["output_type_shape"] == [{"int64": [1, 1]}]
    assert nodes["where"]["args"]["bytes"] == 8 + 8
    for before, after in zip(list(nodes.values()), list(nodes.values())[1:], strict=False):
        assert after["ts"] >= before["ts"] >= 0
        assert before["dur"] >= 0
    assert {e["name"] for e in events if e["cat"] == "Session"} == {
        "session_initialization", "model_run",
    }  # fmt: skip
    run = next(e for e in events if e["name"] == "model_run")
    assert run["ts"] <= nodes["twice"]["ts"]
    assert nodes["y"]["ts"] + nodes["y"]["dur"] <= run["ts"] + run["dur"] + 1


def test_trace_is_bounded_and_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiling, "MAX_EVENTS", 5)
    for prefix in ("profile", "no/folder/profile"):
        options = HALFBYTE.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = tmp_path / prefix
        ours = session(HALFBYTE, added(), options)
        for _ in range(9):
            ours.run(None, {"x": X})
        assert [row.calls for row in ours.profile.rows.values()] == [9]
        if prefix == "profile":
            events = json.loads(Path(ours.end_profiling()).read_text())
            assert len([e for e in events if e["ph"] == "X"]) == 5
            assert events[-1]["name"] == "14 later events are left out"
        else:
            with pytest.raises(OutputError, match="no/folder"):
                ours.end_profiling()


def test_without_profiling() -> None:
    ours = session(HALFBYTE, added())
    assert (ours.end_profiling(), ours.profile, ours.get_profiling_start_time_ns()) == ("", None, 0)


def test_programs_name_the_nodes() -> None:
    ours = session(HALFBYTE, model([node("Relu", "x", "a", name="first"), node("Neg", "a")]))
    ours.run(None, {"x": X[0]})
    (program,) = ours.programs()
    assert [i.origin for i in program.instructions] == ["first", "y"]
    assert program.dump().splitlines()[1].endswith("# first")


def test_without_kernels_numpy_computes(tmp_path: Path) -> None:
    """In an installation that has none, or in a browser without WebAssembly SIMD."""
    (tmp_path / "added.onnx").write_bytes(added())
    code = (
        "import numpy as np, halfbyte; s = halfbyte.InferenceSession('added.onnx'); "
        "print(s.run(None, {i.name: np.ones((3, 2), np.float32) for i in s.get_inputs()})[0].shape)"
    )
    environment = os.environ | {"HALFBYTE_KERNELS": str(tmp_path / "none")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.stdout == "(3, 2)\n", done.stderr
