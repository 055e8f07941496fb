"""Models beside a reference: `evaluate` runs one workload on one model.

A file a workload: `graphs` and `language` have `validate` and `run`, `tracing` has `trace` of
graphs, `throughput` has `bench`. `tolerances` says how far values may be apart, `suite` reads lists
of evaluations.
"""

from __future__ import annotations

from halfbyte.evaluation import graphs, language, throughput, tracing
from halfbyte.evaluation.evaluation import REFERENCES, WORKLOADS, Evaluation, Result
from halfbyte.onnx.files import is_onnx_file

__all__ = ["REFERENCES", "WORKLOADS", "Evaluation", "Result", "evaluate"]

_GRAPHS = {
    "validate": graphs.validate, "trace": tracing.trace, "bench": throughput.bench_graph,
    "run": graphs.run,
}  # fmt: skip
_LANGUAGE_MODELS = {
    "validate": language.validate, "trace": language.trace,
    "bench": throughput.bench_language_model, "run": language.run,
}  # fmt: skip


def evaluate(evaluation: Evaluation) -> Result:
    """Run a workload.

    Raises
    ------
    HalfbyteError
        The model, its input or a setting cannot be used; the message says why.
    OSError
        A file cannot be read.
    """
    workloads = _GRAPHS if is_onnx_file(evaluation.model) else _LANGUAGE_MODELS
    return workloads[evaluation.workload](evaluation)
