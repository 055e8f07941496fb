"""The stand-ins in Pyodide: an unchanged package that requires onnxruntime, and `tokenizers`."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import zipfile
from typing import Any

import numpy as np
import pytest
from tests.browser.conftest import Python
from tests.onnx.session.mutants import network
from tests.onnx.session.test_standin import IDENTIFY
from tests.support.packages import CLICK, MAGIKA, fetch
from tests.text.standin.judge import PARTS
from tests.text.standin.test_tokenizer import small
from tests.text.tokenizers.strings import strings

import halfbyte

INSTALL = """
import js, pyodide_js
await pyodide_js.loadPackage("micropip")
import micropip
import halfbyte

halfbyte.install_as_onnxruntime()
await micropip.install([f"{{js.location.origin}}/wheels/{{name}}" for name in {names}])
sorted(name for name in micropip.list() if name in ("magika", "onnxruntime"))
"""

RUN = """
import base64, json
import numpy as np
import halfbyte
from pathlib import Path

options = halfbyte.SessionOptions()
options.enable_profiling = True
options.profile_file_prefix = "/tmp/profile"
session = halfbyte.InferenceSession(base64.b64decode("{data}"), options)
x = np.array({x}, np.float32)
received = []
session.run_async(None, {{"x": x}}, lambda results, data, problem: received.append(results), None)
events = json.loads(Path(session.end_profiling()).read_text())
kernels = {{e["args"]["kernel"] for e in events if e["cat"] == "Node"}}
[received[0][0].tolist(), sorted(kernel for kernel in kernels if kernel.startswith("numpy:"))]
"""


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The package's result with ONNX Runtime."""
    folder = tmp_path_factory.mktemp("magika")
    with zipfile.ZipFile(fetch(MAGIKA)) as wheel:
        wheel.extractall(folder)
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\n{IDENTIFY}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])[0]


def test_it_installs_and_runs(python: Python, expected: dict[str, list[Any]]) -> None:
    names = [fetch(CLICK).name, fetch(MAGIKA).name]
    assert python.run(INSTALL.format(names=names)) == ["magika", "onnxruntime"]
    lines = IDENTIFY.strip().splitlines()
    assert lines[-1].startswith("print(json.dumps([labels, ")
    result = python.run("\n".join([*lines[:-1], "labels"]))
    assert [label for label, _ in result.values()] == [label for label, _ in expected.values()]
    for name, (_, score) in expected.items():
        assert result[name][1] == pytest.approx(score, abs=1e-4)


def test_results_of_a_session_equal_native_ones(python: Python) -> None:
    """There are no threads, so `run_async` runs before it returns."""
    data, x = network(), np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)
    (expected,) = halfbyte.InferenceSession(data).run(None, {"x": x})
    code = RUN.format(data=base64.b64encode(data).decode(), x=x.tolist())
    result, in_numpy = python.run(code)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    assert in_numpy == []


TOKENIZE = """
import json
import halfbyte
halfbyte.install_as_tokenizers()
from importlib.metadata import version
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_str({content!r})
tokenizer.enable_truncation(20, stride=2)
encodings = tokenizer.encode_batch(json.loads({asked}))
parts = [[getattr(e, part) for part in {parts}] for e in encodings]
[version("tokenizers"), json.dumps(parts), [len(e.overflowing) for e in encodings]]
"""


def test_tokenizers(python: Python) -> None:
    theirs, asked = small(), [text for text in strings(150) if text.isprintable()]
    content = theirs.to_str()
    theirs.enable_truncation(20, stride=2)
    code = TOKENIZE.format(content=content, asked=repr(json.dumps(asked)), parts=PARTS)
    version, parts, overflowing = python.run(code)
    expected = theirs.encode_batch(asked)
    wanted = [[getattr(e, part) for part in PARTS] for e in expected]
    assert json.loads(parts) == json.loads(json.dumps(wanted))
    assert overflowing == [len(e.overflowing) for e in expected]
    assert version.startswith("0.23")
