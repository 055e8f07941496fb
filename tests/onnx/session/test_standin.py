"""halfbyte in the place of ONNX Runtime: a package from PyPI runs on it unchanged."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from tests.onnx.session.models import HALFBYTE, ONNX_RUNTIME
from tests.support.packages import MAGIKA, fetch

import halfbyte
from halfbyte.errors import HalfbyteError, UnsupportedError
from halfbyte.onnx import standin
from halfbyte.onnx.session import errors

HIDE = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "onnxruntime":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hide())
import halfbyte
assert halfbyte.install_as_onnxruntime() is halfbyte.install_as_onnxruntime()
"""
IDENTIFY = """
import json, magika, onnxruntime
texts = {
    "python": "import os\\n\\ndef f(x):\\n    return os.fspath(x)\\n" * 9,
    "html": "<html><body><h1>Title</h1><p>Text.</p></body></html>\\n" * 9,
    "c": "#include <stdio.h>\\nint main(void) { puts(\\"\\"); return 0; }\\n" * 9,
    "zero": "\\0" * 5000,
}
identifier = magika.Magika()
labels = {}
for name, text in texts.items():
    result = identifier.identify_bytes(text.encode())
    labels[name] = [str(result.output.label), float(result.score)]
print(json.dumps([labels, onnxruntime.__version__, hasattr(onnxruntime, "__halfbyte__")]))
"""


def python(code: str, *paths: Path) -> Any:
    """The last line that a new process prints, which is JSON."""
    paths_first = f"import sys; sys.path[:0] = {[str(path) for path in paths]}\n"
    done = subprocess.run(
        [sys.executable, "-c", paths_first + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_package_that_requires_onnxruntime(tmp_path: Path) -> None:
    with zipfile.ZipFile(fetch(MAGIKA)) as wheel:
        wheel.extractall(tmp_path)
    expected, real_version, is_ours = python(IDENTIFY, tmp_path)
    assert not is_ours
    actual, our_version, is_ours = python(HIDE + IDENTIFY, tmp_path)
    assert is_ours
    assert our_version == real_version
    assert [label for label, _ in actual.values()] == [label for label, _ in expected.values()]
    assert actual["python"][0] == "python"
    for name, (_, score) in expected.items():
        assert actual[name][1] == pytest.approx(score, abs=1e-5)


def test_imports() -> None:
    code = """
import importlib.metadata, importlib.util, json
import onnxruntime as ort
from onnxruntime.capi import _pybind_state, onnxruntime_pybind11_state
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument
from onnxruntime.capi.onnxruntime_inference_collection import IOBinding
absent = []
for name in ("onnxruntime.tools", "onnxruntime.training", "onnxruntime.datasets"):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        absent.append(name)
distribution = importlib.metadata.distribution("onnxruntime")
print(json.dumps([
    importlib.util.find_spec("onnxruntime").origin, importlib.metadata.version("onnxruntime"),
    distribution.metadata["Name"], list(distribution.requires or []), absent,
    ort.capi.onnxruntime_pybind11_state is onnxruntime_pybind11_state, IOBinding is ort.IOBinding,
    [d.version for d in importlib.metadata.distributions(name="onnxruntime")][0],
]))
"""
    real = version("onnxruntime")
    result = python(HIDE + code)
    parts = ["onnxruntime.training"]
    assert result == ["halfbyte", real, "onnxruntime", [], parts, True, True, real]


def test_the_real_package_is_only_replaced_by_force() -> None:
    with pytest.raises(UnsupportedError, match="force=True"):
        halfbyte.install_as_onnxruntime()
    assert sys.modules["onnxruntime"] is ONNX_RUNTIME
    code = """
import json, onnxruntime, halfbyte
real = onnxruntime.InferenceSession
halfbyte.install_as_onnxruntime(force=True)
import onnxruntime, onnxruntime.capi._pybind_state
print(json.dumps([onnxruntime.InferenceSession is halfbyte.InferenceSession, real.__module__]))
"""
    replaced, module = python(code)
    assert replaced
    assert module.startswith("onnxruntime.capi")


def test_it_has_the_exceptions_and_the_parts_for_inference() -> None:
    theirs, ours = (api.capi.onnxruntime_pybind11_state for api in (ONNX_RUNTIME, HALFBYTE))
    names = [n for n, v in vars(theirs).items() if isinstance(v, type) and issubclass(v, Exception)]
    assert len(names) > 10
    for name in names:
        assert issubclass(getattr(ours, name), HalfbyteError)
        assert getattr(ours, name).__name__ == name
    assert {e.__name__ for e in errors.ALL} == set(names)
    for name in ("GraphOptimizationLevel", "ExecutionMode", "ExecutionOrder"):
        kinds = (getattr(api, name).__members__ for api in (ONNX_RUNTIME, HALFBYTE))
        expected, actual = ({k: int(v) for k, v in kind.items()} for kind in kinds)
        assert actual == expected
    assert HALFBYTE.get_device() == ONNX_RUNTIME.get_device()
    assert HALFBYTE.get_version_string() == ONNX_RUNTIME.get_version_string() == standin.VERSION
    assert set(HALFBYTE.get_available_providers()) <= set(ONNX_RUNTIME.get_available_providers())
    HALFBYTE.set_default_logger_severity(3)
    HALFBYTE.disable_telemetry_events()


def test_seed() -> None:
    """Nodes without a seed of their own draw the same numbers after a call."""
    from tests.onnx.session.models import FLOAT, model, node, session, tensor

    data = model([node("RandomNormal", "", shape=[4])], [], [tensor("y", FLOAT, [4])])
    draws = []
    for seed in (1, 1, 2):
        HALFBYTE.set_seed(seed)
        ours = session(HALFBYTE, data)
        draws.append([ours.run(None, {})[0].tolist() for _ in range(2)])
    assert draws[0] == draws[1] != draws[2]
    assert draws[0][0] != draws[0][1]


def test_language_models_import_nothing_of_graphs() -> None:
    code = (
        "import json, sys, halfbyte; "
        "print(json.dumps([n for n in sys.modules if n.startswith('halfbyte.onnx')]))"
    )
    assert python(code) == []
    assert "InferenceSession" in halfbyte.__all__
    assert halfbyte.SessionOptions is HALFBYTE.SessionOptions
    with pytest.raises(AttributeError, match="nothing"):
        _ = halfbyte.nothing
