"""The workload `trace`: every intermediate value in order, and the first that differs.

A graph is traced by name: its runner gives intermediate values memory of their own
(``Runner(keep=names)``), and the reference shows the values of the original graph one by one.
A program is traced by instruction, in lockstep with NumPy (`lockstep`): language models always,
since their instructions have no counterpart in another runtime, graphs with ``--forced``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from halfbyte.core.backends import Executable
from halfbyte.core.buffer import Buffer
from halfbyte.core.instruction import Instruction
from halfbyte.core.program import Program
from halfbyte.errors import HalfbyteError
from halfbyte.evaluation import onnx_runtime
from halfbyte.evaluation.comparison import Comparison, compare
from halfbyte.evaluation.evaluation import Evaluation, Result
from halfbyte.evaluation.graph_subject import GraphSubject
from halfbyte.evaluation.lockstep import Lockstep
from halfbyte.evaluation.rows import difference_rows
from halfbyte.evaluation.subject import Subject
from halfbyte.evaluation.tolerances import INNER_INT8
from halfbyte.onnx.evaluate import Evaluator
from halfbyte.onnx.files.model import Node


class FirstDifferenceError(Exception):
    """A trace stops at the first difference."""


@dataclass
class Difference:
    """A value that was compared.

    Attributes
    ----------
    value : str
        Its name.
    operator, node : str
        ONNX's name of the operator that computes it, and the node's name or the instruction's
        number.
    comparison : Comparison
    made_by : str
        What computes it here: the fused node's operator, or the kernel.
    """

    value: str
    operator: str
    node: str
    comparison: Comparison
    made_by: str

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "value": self.value, "operator": self.operator, "node": self.node,
            "made_by": self.made_by, **self.comparison.as_json(),
        }  # fmt: skip


@dataclass
class Trace:
    """The values compared so far, in order."""

    evaluation: Evaluation
    seen: list[Difference] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)  # "value (operator)"
    removed_before: list[str] = field(default_factory=list)  # the first difference

    def add(self, difference: Difference) -> None:
        """Add a value; raises FirstDifferenceError where the trace is to stop."""
        if not difference.comparison.passed and not self.differing:
            self.removed_before = self.removed[self._removed_at :]
        self._removed_at = len(self.removed)
        self.seen.append(difference)
        if not difference.comparison.passed and self.evaluation.stop:
            raise FirstDifferenceError

    _removed_at = 0  # number of removed values before the last one seen

    @property
    def differing(self) -> list[Difference]:
        """The values beyond their tolerance."""
        return [d for d in self.seen if not d.comparison.passed]

    def result(self, head: str, data: Mapping[str, Any]) -> Result:
        """The result of `trace`."""
        differing = self.differing
        lines = [head, *self._first(), *_listed(differing), self._counts()]
        first = differing[0] if differing else None
        summary = (
            f"{len(self.seen)} values agree" if first is None
            else f"first difference: {first.value} ({first.operator})"
        )  # fmt: skip
        report = {
            **data, "values": [d.as_json() for d in self.seen], "removed": self.removed,
            "first_difference": first.as_json() if first is not None else None,
        }  # fmt: skip
        return Result(self.evaluation, first is None, summary, lines, report)

    def _first(self) -> list[str]:
        if not self.differing:
            return []
        first = self.differing[0]
        at = f" at {list(first.comparison.worst)}" if first.comparison.worst else ""
        lines = [
            f"first difference: value {first.value!r}, node {first.node!r} ({first.operator}), "
            f"here made by {first.made_by}; {first.comparison.differing} of "
            f"{first.comparison.size} elements differ, the worst{at}"
        ]
        if self.removed_before:
            lines.append(
                f"  values before it that fusion removed: {', '.join(self.removed_before)}"
            )
        return lines

    def _counts(self) -> str:
        stopped = self.evaluation.stop and bool(self.differing)
        return (
            f"{len(self.seen)} values compared, {len(self.differing)} differ, "
            f"{len(self.removed)} removed by fusion{'; stopped there' if stopped else ''}"
        )


def _listed(differences: list[Difference]) -> list[str]:
    rows = [(d.value, d.operator, d.comparison) for d in differences]
    return difference_rows(rows) if rows else []


def trace(subject: Subject, reference: str) -> Result:
    """Intermediate values beside those of a reference."""
    e = subject.evaluation
    if isinstance(subject, GraphSubject) and not e.forced:
        return _trace_values(subject, reference)
    if reference != "numpy":
        raise HalfbyteError(
            f"{e.model}: --reference {reference}: --forced compares instructions, which only numpy "
            "has"
        )
    return _trace_instructions(subject)


def _trace_values(graph: GraphSubject, reference: str) -> Result:
    e = graph.evaluation
    inner = {name for node in graph.model.graph.nodes for name in node.outputs if name}
    makers = {name: n for n in graph.prepared.graph.nodes for name in n.outputs if name in inner}
    e.progress(f"running {e.backend}")
    with graph.runner(e.one_thread_count, keep=makers) as runner:
        computed = runner.run(graph.feeds, list(makers))
    constants = graph.prepared.graph.initializers
    known: dict[str, Any] = {n: v for n, v in constants.items() if n in inner} | computed
    trace = Trace(e)

    def visit(node: Node, name: str, expected: Any) -> None:
        graph.dump.value("reference", name, expected)
        if name not in known:
            trace.removed.append(f"{name} ({node.op_type})")
            return
        graph.dump.value("values", name, known[name])
        rule = INNER_INT8 if graph.rounds_activations else node.op_type
        tolerance = e.tolerance(rule, graph.backend, expected)
        made_by = _described(makers[name], node) if name in makers else "a constant, folded"
        comparison = compare(known[name], expected, tolerance)
        trace.add(Difference(name, node.op_type, node.name, comparison, made_by))

    e.progress(f"running {reference}")
    with contextlib.suppress(FirstDifferenceError):
        _walk(graph, reference, visit)
    head = f"{e.model.name}: values of {graph.backend} beside {reference}; {graph.inputs}"
    return trace.result(head, {"reference": reference, "backend": graph.backend})


def _described(maker: Node, original: Node) -> str:
    kind = f"{maker.domain}.{maker.op_type}" if maker.domain else maker.op_type
    return kind if kind == original.op_type else f"{kind}, fused"


def _walk(graph: GraphSubject, reference: str, visit: Any) -> None:
    """Call `visit` with node, name and value for every value that the reference computes."""
    if reference == "numpy":
        Evaluator(graph.model, observe=visit).run(graph.feeds)
        return
    nodes, e = graph.model.graph.nodes, graph.evaluation
    names = [name for node in nodes for name in node.outputs if name]
    session = onnx_runtime.Session(e.model, e.one_thread_count, names=names)
    values = session.run(graph.feeds)
    for node in nodes:
        for name in filter(None, node.outputs):
            visit(node, name, values[name])


class InstructionTrace(Trace):
    """A trace of instructions, of each buffer that they write; `visit` is called by a lockstep."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject.evaluation)
        self._dump, self.backend = subject.dump, subject.backend
        self.rule = ""  # takes the place of all operators in rules of tolerances
        self._program = 0  # programs so far
        self._last = -1

    def visit(
        self, number: int, instruction: Instruction, buffer: Buffer, actual: Any, expected: Any
    ) -> None:
        """Compare what an instruction wrote."""
        if number < self._last:
            self._program += 1
        self._last = number
        name = f"{self._program}.{number}.{buffer.name}"
        self._dump.value("values", name, actual)
        self._dump.value("reference", name, expected)
        operator = instruction.operator.onnx
        tolerance = self.evaluation.tolerance(self.rule or operator, self.backend, expected)
        kernel = instruction.operator.kernel(instruction)
        node = instruction.origin or f"instruction {number}"
        self.add(Difference(name, operator, node, compare(actual, expected, tolerance), kernel))


def _trace_instructions(subject: Subject) -> Result:
    """Every instruction beside NumPy's definition of it."""
    e = subject.evaluation
    forced = e.forced is not False
    trace = InstructionTrace(subject)

    def opener(program: Program) -> Executable:
        lockstep = Lockstep(program, e.backend, e.one_thread_count, trace.visit, forced=forced)
        trace.backend = lockstep.backend
        trace.rule = "" if forced else subject.output_kind  # errors add up
        return lockstep

    e.progress(f"running {e.backend} and numpy")
    with contextlib.suppress(FirstDifferenceError):
        subject.step_through(opener)
    how = "with numpy's inputs" if forced else "running freely"
    head = f"{e.model.name}: instructions of {trace.backend} beside numpy, {how}; {subject.inputs}"
    return trace.result(head, {"reference": "numpy", "backend": trace.backend, "forced": forced})
