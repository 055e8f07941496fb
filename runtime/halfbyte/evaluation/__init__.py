"""Models beside a reference: `evaluate` runs one workload on one model.

A workload is a function of a `subject`, which has two implementations: `graph_subject` for ONNX
graphs, `language_subject` for language models. `workloads` has `validate` and `run`, `tracing` has
`trace`, `throughput` has `bench`.

`comparison` measures how far two values are apart, and `tolerances` says how far they may be.
`evaluation` has the description of an evaluation and its result; `suite` reads lists of them.
"""

from __future__ import annotations

from halfbyte.evaluation.evaluation import REFERENCES, WORKLOADS, Evaluation, Result
from halfbyte.evaluation.graph_subject import GraphSubject
from halfbyte.evaluation.language_subject import LanguageSubject
from halfbyte.evaluation.subject import Subject
from halfbyte.evaluation.throughput import bench
from halfbyte.evaluation.tracing import trace
from halfbyte.evaluation.workloads import run, validate
from halfbyte.onnx.files import is_onnx_file

__all__ = ["REFERENCES", "WORKLOADS", "Evaluation", "Result", "evaluate"]

_WORKLOADS = {"validate": validate, "trace": trace, "bench": bench, "run": run}


def evaluate(evaluation: Evaluation) -> Result:
    """Run a workload.

    Raises
    ------
    HalfbyteError
        The model, its input or a setting cannot be used; the message says why.
    OSError
        A file cannot be read.
    """
    kind: type[Subject] = GraphSubject if is_onnx_file(evaluation.model) else LanguageSubject
    reference = evaluation.reference_of(*kind.references(evaluation.workload))
    return _WORKLOADS[evaluation.workload](kind(evaluation), reference)
