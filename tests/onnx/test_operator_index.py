"""Definitions are imported when they are needed, by a list that has to be whole."""

from __future__ import annotations

import subprocess
import sys

from tools.make_operator_index import TARGET

from halfbyte.onnx.reference import find
from halfbyte.onnx.reference.operator_index import OPERATORS

LISTED = "from tools import make_operator_index as m; print(m.text(m.found()), end='')"
ALONE = """
import sys
from halfbyte.onnx.reference import find, operators
before = len(sys.modules)
assert "halfbyte.onnx.reference.ml.trees" not in sys.modules
assert find("ai.onnx.ml", "TreeEnsembleClassifier", 1) is not None
assert "halfbyte.onnx.reference.ml.trees" in sys.modules
assert "halfbyte.onnx.reference.signal" not in sys.modules
assert find("", "NoSuchOperator", 1) is None
print(len(operators()))
"""


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=TARGET.parents[4],
    )
    return done.stdout


def test_the_list_is_that_of_the_modules() -> None:
    """If not: python tools/make_operator_index.py."""
    assert run(LISTED) == TARGET.read_text(encoding="utf-8")


def test_modules_are_imported_for_their_operators() -> None:
    assert int(run(ALONE)) == len({name for names in OPERATORS.values() for name in names.split()})
    assert find("", "Relu", 14) is not None
