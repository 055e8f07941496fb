"""Capture: the nodes of a graph become a program for the shapes of one call.

Shapes, constants and everything that follows from them are computed during the capture and cost
nothing in a run. For other nodes, the rules of `lowering` record operators of the core. A node
without a rule, or whose rule returns None, becomes an instruction that runs the node's definition
in NumPy; a profile shows it as `numpy:` and the operator's name. A node whose results' shapes
depend on values ends the program (`EndOfProgramError`); see `runner`.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from halfbyte.core.buffer import Buffer
from halfbyte.core.dtypes import dtype_key
from halfbyte.core.interrupt import step
from halfbyte.core.ops.operator import record_host
from halfbyte.core.program import Program
from halfbyte.errors import HalfbyteError, MemoryBudgetError, OutOfMemoryError, ProgramError
from halfbyte.onnx.calls import UNFIT, Call, bound
from halfbyte.onnx.evaluate import check_outputs
from halfbyte.onnx.files.model import Graph, Model, Node
from halfbyte.onnx.forms import Forms
from halfbyte.onnx.reference import Definition, lookup
from halfbyte.onnx.shared_weights import SharedWeights
from halfbyte.onnx.size_arrays import empty, is_sized, now
from halfbyte.onnx.sized_nodes import results_of
from halfbyte.onnx.sizes import FixedSizeError, is_named
from halfbyte.onnx.values import Array, Operand, Unknown, Value, aligned, dtype_of, key_of
from halfbyte.onnx.work import MAX_FOLDED, WORK, bytes_given, exact_work, folded, work_of


class EndOfProgramError(Exception):
    """The node cannot be part of the program."""


class Lowering(NamedTuple):
    """How nodes become operators with kernels; see `halfbyte.onnx.lowering`."""

    rule_of: Callable[[str, str], Callable[..., Any] | None]  # domain and operator -> rule
    permuted: Callable[[Capture, Buffer, Sequence[int]], Buffer | None]  # as np.transpose


# How much larger than its inputs the result of a node may be: float32 of four bits
_GROWTH = {"DequantizeLinear": 8, "Cast": 8}


class Capture(Forms):
    """One program under capture, and the values of its graph.

    Without a `lowering`, every node runs its definition.

    Attributes
    ----------
    program : Program
    values : mapping of str to Value, array or anything else
        By their names in the graph. Arrays are constants; other objects are never in a program.
    node : Node
        The node that is being recorded.
    version, opset : int
        The versions of its domain and of the default domain.
    weights : SharedWeights
    conditions : mapping of str to bool, optional
        Of Ifs, which are not constants: the branch that such an If takes is recorded.
    """

    def __init__(
        self,
        model: Model,
        program: Program,
        values: MutableMapping[str, Any],
        weights: SharedWeights,
        lowering: Lowering | None,
        planning: bool = False,
        conditions: Mapping[str, bool] | None = None,
    ) -> None:
        super().__init__(program, weights, planning)
        self._planning = planning
        self.model, self.values = model, values
        self._conditions: Mapping[str, bool] = conditions or {}
        self.opset = model.opsets.get("", 1)
        self.node = Node("", (), ())
        self.version = 0
        self._lowering = lowering

    def outputs(self, names: Iterable[str]) -> tuple[dict[str, Buffer], dict[str, Any]]:
        """The values of these names: buffers to read after a run, and constants.

        Outputs of the program take the place of buffers that a run fills: it ends the capture.
        """
        buffers: dict[str, Buffer] = {}
        constants: dict[str, Any] = {}
        for name in sorted(names):
            value = self.values.get(name)
            if isinstance(value, Value):
                buffers[name] = self.plain(value)
            elif value is not None:
                constants[name] = value
        return self.program.set_outputs(buffers), constants

    def record(self, node: Node) -> None:
        """Make a node part of the program, or compute its results now.

        Raises
        ------
        EndOfProgramError
            The shapes of its results depend on values, or a value is not a tensor.
        ProgramError
            The operator does not allow such a node.
        """
        step()
        outside, self.program.origin = self.program.origin, node.title
        try:
            self._record(node)
        except MemoryBudgetError as error:
            if str(error).startswith(str(self.model.path)):
                raise
            raise type(error)(f"{self.model.path}: {node}: {error}") from error
        except UNFIT as error:
            raise ProgramError(f"{self.model.path}: {node}: {error!r}") from error
        except MemoryError as error:
            raise OutOfMemoryError(f"{self.model.path}: {node}: no memory: {error}") from error
        finally:
            self.program.origin = outside

    def _record(self, node: Node) -> None:
        inputs = [self.values[name] if name else None for name in node.inputs]
        self.node = node
        self.version = node.version or self.model.opsets.get(node.domain, 1)
        self.opset = self.model.opsets.get("", 1) if node.domain else self.version
        where = f"{self.model.path}: {node}"
        if node.op_type == "If" and not node.domain:
            condition = self._conditions.get(node.inputs[0])
            if condition is None and isinstance(inputs[0], np.ndarray):
                condition = bool(inputs[0].reshape(-1)[0])
            if condition is not None:
                self._branch(node, condition)
                return
        definition = lookup(node.domain, node.op_type, self.version, where)
        if any(isinstance(v, Graph) for v in node.attributes.values()):
            raise EndOfProgramError
        call = bound(definition, node, self.opset, _no_graph, where)
        results = self._results(definition, call, inputs)
        check_outputs(node, results, where)
        for name, value in zip(node.outputs, results, strict=False):
            if name:
                self.values[name] = value

    def _branch(self, node: Node, condition: bool) -> None:
        """Record the chosen branch of an If in its place."""
        graph = node.attributes["then_branch" if condition else "else_branch"]
        outside, mark, conditions = self.values, self.mark(), self._conditions
        self.values = ChainMap(dict(graph.initializers), outside)
        inside = {*graph.initializers, *(name for inner in graph.nodes for name in inner.outputs)}
        self._conditions = {k: v for k, v in conditions.items() if k not in inside}
        try:
            for inner in graph.nodes:
                self.record(inner)
            results = [self.values[output.name] for output in graph.outputs]
        except EndOfProgramError:
            self.undo(mark)
            raise
        finally:
            self.values, self._conditions = outside, conditions
        for name, value in zip(node.outputs, results, strict=False):
            if name:
                self.values[name] = value

    def _results(self, definition: Definition, call: Call, inputs: list[Any]) -> Sequence[Any]:
        if any(isinstance(v, Unknown) for v in inputs):
            raise EndOfProgramError
        if not any(isinstance(v, Value) for v in inputs):
            if not definition.pure:
                raise EndOfProgramError
            return self._folded(call, inputs)
        if not all(v is None or (isinstance(v, Value | np.ndarray) and key_of(v)) for v in inputs):
            raise EndOfProgramError
        call.check(inputs, [None if v is None else dtype_of(v) for v in inputs])
        rule = self._lowering and self._lowering.rule_of(self.node.domain, self.node.op_type)
        if rule is not None:
            mark = self.mark()
            try:
                result = rule(self, *inputs, **self.node.attributes)
            except (*UNFIT, ProgramError):
                result = None  # the definition runs, or says what is wrong
            if result is not None:
                return result if isinstance(result, tuple) else (result,)
            self.undo(mark)
        return self._host(definition, call, inputs)

    def _folded(self, call: Call, inputs: list[Any]) -> Sequence[Any]:
        """The results of a node whose inputs are constants; large ones are left to each run."""
        if any(map(is_sized, inputs)):
            return self._sized_results(call, inputs)
        if work_of(call.definition, self.node, inputs) > WORK:
            raise EndOfProgramError
        growth = _GROWTH.get(self.node.op_type, 2)
        limit = max(growth * bytes_given(self.node, inputs), MAX_FOLDED)
        results = folded(call, inputs, limit)
        if results is None:
            raise EndOfProgramError
        self.weights.derive(self.node, inputs, results)
        return results

    def _sized_results(self, call: Call, inputs: list[Any]) -> Sequence[Any]:
        """The results of a node whose inputs are constants, some of which depend on sizes."""
        results = results_of(self.node, call, inputs)
        for array in filter(is_sized, results):
            if array.nbytes > MAX_FOLDED:
                raise FixedSizeError(array.under.values)
        return results

    def _host(self, definition: Definition, call: Call, inputs: list[Operand]) -> Sequence[Operand]:
        """An instruction that runs the node's definition in NumPy; empty results are constants."""
        decided = [inputs[i] for i in definition.decided_by if i < len(inputs)]
        if definition.dynamic or any(isinstance(v, Value) for v in decided):
            raise EndOfProgramError
        specs = self._inferred(call, inputs)
        given = [_any_values(v) for v in inputs]
        if all(_is_empty(shape) for _, shape in specs) and not any(map(is_sized, given)):
            with suppress(HalfbyteError):  # inputs that do not fit are refused in the run
                return call.run(given)
        where = f"{self.model.path}: {self.node}"
        if not self._planning:  # a plan counts what is read from the file
            inputs = [aligned(v) for v in inputs]

        given = [Ellipsis if isinstance(v, Value) else v for v in inputs]
        expected = [shape for _, shape in specs]

        def meaning(*arrays: Array) -> tuple[Array, ...]:
            remaining = iter(arrays)
            results = call.quietly([next(remaining) if v is Ellipsis else now(v) for v in given])
            shapes = [r.shape for r in results]
            if shapes != expected:
                raise ProgramError(f"{where}: shapes {shapes}, which depend on values")
            return results

        constants = [v for v in inputs if isinstance(v, np.ndarray)]
        operands = [self.plain(v) for v in inputs if isinstance(v, Value)]
        buffers = record_host(self.node.op_type, meaning, operands, specs, constants)
        return [self.value(buffer) for buffer in buffers]

    def _inferred(self, call: Call, inputs: list[Operand]) -> list[tuple[str, tuple[int, ...]]]:
        """Dtypes and shapes of a node's results, by its rule."""
        if (exact_work(self.node, inputs) or 0) > WORK:
            raise EndOfProgramError
        try:
            types = call.infer([_any_values(v) for v in inputs])
        except HalfbyteError:
            raise EndOfProgramError from None  # the definition says what is wrong
        if types is None:
            raise EndOfProgramError
        specs = [(key, shape) for dtype, shape in types if (key := dtype_key(dtype)) is not None]
        if len(specs) < len(types):
            raise EndOfProgramError
        return specs

    def _by_kernel(self, buffer: Buffer, order: Sequence[int]) -> Buffer | None:
        return None if self._lowering is None else self._lowering.permuted(self, buffer, order)


def _any_values(operand: Operand) -> Any:
    """A constant, or an array of a value's type and shape."""
    return empty(operand.shape, operand.numpy) if isinstance(operand, Value) else operand


def _is_empty(shape: tuple[int, ...]) -> bool:
    """Whether arrays of a shape, all of whose sizes are known, have no elements."""
    return 0 in shape and not any(map(is_named, shape))


def _no_graph(graph: Graph) -> Any:
    raise EndOfProgramError
