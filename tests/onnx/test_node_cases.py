"""ONNX's own tests on the definitions, on every backend, and in ONNX's own runner.

All cases pass except those in `node_exclusions.toml`, which must fail. A single case:
`python -m tests.onnx.node_cases -k NAME --backend BACKEND`.
"""

from __future__ import annotations

import unittest
import warnings
from typing import Any

import onnx
import pytest
from onnx.backend.test import BackendTest
from tests.onnx.backend import HalfbyteBackend, HalfbyteRep
from tests.onnx.node_cases import BACKENDS, NodeCase, check, exclusions, node_cases, outcome

from halfbyte.onnx.files.order import OPSETS
from halfbyte.onnx.session import SessionOptions

EXCLUDED = exclusions()
LONG = {"numpy", "wasm-simd128", "wasm-relaxed", "definition"}  # nearly the same as native ones
UNCOMPARED = {"loop16_seq_none"}  # onnx's runner asks for the length of a sequence's scalars


def problem(case: NodeCase, backend: str) -> str | None:
    """The problem of a case's result, or of its entry in the list."""
    excluded = EXCLUDED.get(case.name)
    if excluded is None:
        return outcome(case.name, backend)
    if excluded.random:
        try:
            check(case, backend, values=False)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None
    passes = outcome(case.name, backend) is None
    return f"passes: remove it from the list ({excluded.reason})" if passes else None


@pytest.mark.parametrize(
    "backend", [pytest.param(b, marks=pytest.mark.long) if b in LONG else b for b in BACKENDS]
)
def test_backend(backend: str) -> None:
    cases = node_cases()
    problems = [
        f"{case.name}: {error}" for case in cases if (error := problem(case, backend)) is not None
    ]
    assert not problems, f"{len(problems)} of {len(cases)} cases\n" + "\n".join(problems[:20])
    counted = [case for case in cases if case.kind == "node" and not case.domain]
    passed = sum(case.name not in EXCLUDED for case in counted)
    print(f"{backend}: {passed} of {len(counted)} node cases of the default domain")
    assert passed >= 0.95 * len(counted)


def is_older(case: NodeCase) -> bool:
    """Whether a case has an opset that is too old for files."""
    return any(o.version < OPSETS[0] for o in case.proto.opset_import if not o.domain)


def test_excluded_cases_exist() -> None:
    unknown = set(EXCLUDED) - {case.name for case in node_cases()}
    assert not unknown
    assert all(excluded.reason.strip() for excluded in EXCLUDED.values())


class OneThread(HalfbyteBackend):
    """Sessions with one thread: thousands of models would start as many threads."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> HalfbyteRep:
        options = SessionOptions(intra_op_num_threads=1)
        return super().prepare(model, device, sess_options=options)


@pytest.mark.long
def test_onnx_runs_its_tests_on_our_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """onnx.backend.test, as every implementation of its interface runs it."""
    cases = node_cases()

    def loaded(kind: str) -> list[Any]:
        return [case.source for case in cases if case.kind == kind]  # loading them takes seconds

    monkeypatch.setattr("onnx.backend.test.runner.load_model_tests", loaded)
    runner = BackendTest(OneThread, __name__)
    runner.exclude("_cuda$")
    left_out = {case.name for case in cases if is_older(case)} | set(EXCLUDED) | UNCOMPARED
    for name in left_out:
        runner.exclude(f"^test_{name}_cpu$")
    suite = unittest.TestSuite(
        unittest.defaultTestLoader.loadTestsFromTestCase(cases)
        for cases in runner.test_cases.values()
    )
    result = unittest.TestResult()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        suite.run(result)
    broken = [*result.errors, *result.failures]
    assert not broken, f"{len(broken)} cases\n{broken[0][0]}\n{broken[0][1]}"
    ran = result.testsRun - len(result.skipped)
    print(f"onnx.backend.test: {ran} cases")
    assert ran == len(cases) - len(left_out)


def test_backend_interface() -> None:
    case = next(case for case in node_cases() if case.name == "add")
    ((x, y), (expected,)) = case.data_sets()[0]
    (result,) = HalfbyteBackend.run_model(case.proto, [x, y])
    assert (result == expected).all()
    (result,) = HalfbyteBackend.run_node(case.proto.graph.node[0], {"x": x, "y": y})
    assert (result == expected).all()
    assert HalfbyteBackend.is_compatible(case.proto)
    assert HalfbyteBackend.supports_device("CPU")
    assert not HalfbyteBackend.supports_device("CUDA:0")
    with pytest.raises(ValueError, match=r"device 'CUDA': expected 'CPU'"):
        HalfbyteBackend.prepare(case.proto, "CUDA")
