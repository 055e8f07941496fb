"""Operators that ONNX does not test: our definitions against ONNX Runtime, or against formulas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.onnx import contrib_cases, ml_cases
from tests.onnx.contrib_cases import Array, Case
from tests.onnx.contrib_formulas import all_formulas
from tests.onnx.convert import model_from

from halfbyte.onnx.evaluate import Evaluator
from halfbyte.onnx.reference import operators
from halfbyte.onnx.reference.registry import MICROSOFT, ML
from halfbyte.onnx.session.checking import check_nodes

CASES = [*contrib_cases.all_cases(), *ml_cases.all_cases()]


def built(case: Case, results: list[Array] | None = None) -> onnx.ModelProto:
    """A model of the case's node; its outputs have the types of `results`."""
    names = [f"x{i}" if value is not None else "" for i, value in enumerate(case.inputs)]
    node = helper.make_node(
        case.operator, names, list(case.outputs), domain=case.domain, **case.attributes
    )
    given = [(i, v) for i, v in enumerate(case.inputs) if v is not None]
    inputs = [
        helper.make_tensor_value_info(names[i], helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for i, v in given
        if i not in case.constants
    ]
    constants = [numpy_helper.from_array(v, names[i]) for i, v in given if i in case.constants]
    kinds = [TensorProto.FLOAT] * len(case.outputs)
    if results is not None:
        kinds = [helper.np_dtype_to_tensor_dtype(value.dtype) for value in results]
    wanted = [name for name in case.outputs if name]
    outputs = [
        helper.make_tensor_value_info(name, kind, None)
        for name, kind in zip(wanted, kinds, strict=False)
    ]
    graph = helper.make_graph([node], "case", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", case.opset), helper.make_opsetid("com.microsoft", 1)]
    opsets.append(helper.make_opsetid("ai.onnx.ml", 4))
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def feeds(case: Case) -> dict[str, Any]:
    return {
        f"x{i}": value
        for i, value in enumerate(case.inputs)
        if value is not None and i not in case.constants
    }


def compare(case: Case, ours: Sequence[Array], theirs: Sequence[Array]) -> None:
    for mine, yours, name in zip(ours, theirs, filter(None, case.outputs), strict=True):
        assert mine.shape == yours.shape, name
        if mine.dtype.kind == "f":
            np.testing.assert_allclose(mine, yours, case.rtol, case.atol, err_msg=name)
        elif mine.dtype == object:
            assert mine.tolist() == yours.tolist(), name
        else:
            assert mine.dtype == yours.dtype, name
            apart = np.abs(mine.astype(np.int64) - yours.astype(np.int64))
            assert apart.max(initial=0) <= case.apart, f"{name}: {apart.max()} apart"


def defined(case: Case) -> list[Array]:
    """The case by our definition."""
    return list(Evaluator(model_from(built(case), f"{case}.onnx")).run(feeds(case)).values())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_onnxruntime(case: Case) -> None:
    ours = defined(case)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        built(case, ours).SerializeToString(), options, ["CPUExecutionProvider"]
    )
    theirs = session.run(None, feeds(case))
    assert [a.dtype for a in ours] == [a.dtype for a in theirs]
    compare(case, ours, theirs)


@pytest.mark.parametrize(("case", "expected"), all_formulas(), ids=lambda v: str(v)[:60])
def test_against_formulas(case: Case, expected: Sequence[Array]) -> None:
    compare(case, defined(case), expected)


def test_sessions_know_all_definitions() -> None:
    for case in [*CASES, *(case for case, _ in all_formulas())]:
        check_nodes(model_from(built(case), f"{case}.onnx"))


def test_every_operator_has_a_case() -> None:
    tried = {case.operator for case in CASES} | {c.operator for c, _ in all_formulas()}
    elsewhere = {"CastMap", "DictVectorizer", "TreeEnsemble", "ZipMap"}  # maps; ONNX's own
    ours = {name for domain, name in operators() if domain in (MICROSOFT, ML)}
    assert ours - tried - elsewhere == set()
