"""From nodes to a program: each node becomes operators with kernels, a constant, or NumPy's work.

A `Capture` goes through nodes with the shapes of one call: what is known then (shapes, constants
and all that follows from them) is computed at once and costs nothing later. A node whose results'
shapes depend on values ends the program: see `stages`.
"""

from __future__ import annotations

import weakref
from collections import ChainMap
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from halfbyte.core import ops
from halfbyte.core.dtypes import dtype_key
from halfbyte.core.interrupt import step
from halfbyte.core.ops.operator import record_host
from halfbyte.core.program import Buffer, Kind, Program
from halfbyte.errors import HalfbyteError, MemoryBudgetError, ProgramError
from halfbyte.onnx.evaluate import UNFIT, Call, all_made, bound, used_names
from halfbyte.onnx.files.model import Graph, Model, Node
from halfbyte.onnx.reference import Definition, lookup
from halfbyte.onnx.reference.arrays import check_elements, check_shape
from halfbyte.onnx.values import Array, Operand, Unknown, Value, dtype_of, key_of
from halfbyte.onnx.work import MAX_FOLDED, WORK, bytes_given, exact_work, folded, work_of
from halfbyte.weights import Tensor

Rounding = Callable[[Buffer], tuple[Buffer, ...]]  # of a matrix to integers, and their scales


class EndOfProgramError(Exception):
    """This node cannot be part of the program."""


class Weights:
    """Initializers, and what is made of them alone, in the memory of all programs, each once."""

    def __init__(self, graph: Graph) -> None:
        self._names = {id(array): name for name, array in graph.initializers.items()}
        self._makers: dict[str, Node] = {}
        self._made: dict[tuple[str, str], Buffer] = {}

    def name(self, array: Array) -> str | None:
        """The name of such an array; None for constants that depend on shapes."""
        return self._names.get(id(array))

    def derive(self, node: Node, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Know results of a node, as long as they are there, if its inputs are known.

        The next program computes them anew and finds their buffers. Branches of an If may have the
        same names: the first node of a name has it.
        """
        if not inputs or not all(v is None or id(v) in self._names for v in inputs):
            return
        for name, array in zip(node.outputs, results, strict=False):
            if not isinstance(array, np.ndarray) or id(array) in self._names:
                continue
            if self._makers.setdefault(name, node) is node:
                self._names[id(array)] = name
                weakref.finalize(array, self._names.pop, id(array)).atexit = False

    def get(self, array: Array, layout: str, make: Callable[[], Buffer]) -> Buffer:
        """The buffer of an array in a layout, made when it is first asked for.

        Constants without a name belong to one program: their buffer is made each time.
        """
        name = self.name(array)
        if name is None:
            return make()
        if (name, layout) not in self._made:
            self._made[name, layout] = make()
        return self._made[name, layout]


class Lowering(NamedTuple):
    """How nodes become operators with kernels; see `halfbyte.onnx.lowering`."""

    rule_of: Callable[[str, str], Callable[..., Any] | None]  # of a domain and an operator's name
    ordered: Callable[[Capture, Buffer, Sequence[int]], Buffer | None]  # dimensions in this order


class Capture:
    """One program under capture, and what its values are.

    Without a `lowering` every node is its definition.

    Attributes
    ----------
    program : Program
    values : mapping of str to Value, array or anything else
        By their names in the graph; arrays are constants, other objects belong to Python.
    node : Node
        The node at hand.
    version, opset : int
        Of its domain, and of the default domain.
    weights : Weights
    """

    def __init__(
        self,
        model: Model,
        program: Program,
        values: MutableMapping[str, Any],
        weights: Weights,
        lowering: Lowering | None,
        planning: bool = False,
    ) -> None:
        self.model, self.program, self.values, self.weights = model, program, values, weights
        self.opset = model.opsets.get("", 1)
        self.node = Node("", (), ())
        self.version = 0
        self._lowering = lowering
        # What is only planned may be for a machine with more memory than this one.
        self._check: Callable[[Sequence[int]], Any] = check_shape if planning else check_elements
        # by what was quantized, and how: the number of the instruction, and its results
        self._quantized: dict[tuple[Buffer, Rounding], tuple[int, tuple[Buffer, ...]]] = {}
        self._made: list[tuple[Value, str]] = []  # buffers made of others, in order
        self._rotated: dict[Buffer, Buffer] = {}  # by what Hadamard made: what it was made of

    # ---- for rules -------------------------------------------------------------------------------

    def value(self, buffer: Buffer, shape: tuple[int, ...] | None = None) -> Value:
        """A value whose elements lie in order in a buffer, under another shape if one is given."""
        made = tuple(int(d) for d in buffer.shape) if shape is None else shape  # type: ignore[arg-type]
        self._check(made)
        return Value(buffer.dtype, made, plain=buffer.view(made))

    def value_channels_last(self, buffer: Buffer) -> Value:
        """A value [n, c, ...] whose elements lie as [n, ..., c] in a buffer of that shape."""
        n, *between, channels = (int(d) for d in buffer.shape)  # type: ignore[arg-type]
        return Value(buffer.dtype, (n, channels, *between), channels_last=buffer)

    def plain(self, operand: Value | Array) -> Buffer:
        """A tensor's buffer in the order of its shape."""
        if not isinstance(operand, Value):
            return self.constant(operand)
        if operand.plain is None:
            operand.plain = self._ordered(*operand.origin()).view(operand.shape)
            self._made.append((operand, "plain"))
        return operand.plain

    def channels_last(self, value: Value) -> Buffer:
        """The buffer [n, ..., c] of a value [n, c, ...]."""
        if value.channels_last is None:
            buffer, order = value.origin()
            value.channels_last = self._ordered(buffer, (order[0], *order[2:], order[1]))
            self._made.append((value, "channels_last"))
        return value.channels_last

    def transposed(self, value: Value, perm: Sequence[int]) -> Value:
        """The value with its dimensions in another order; nothing is moved before it must be."""
        buffer, order = value.origin()
        composed = tuple(order[i] for i in perm)
        shape = tuple(value.shape[i] for i in perm)
        real = [i for i in composed if buffer.shape[i] != 1]
        if real == sorted(real):
            return self.value(buffer, shape)
        return Value(value.dtype, shape, permuted=(buffer, composed))

    def matrix(self, operand: Value | Array, rows: int, columns: int) -> Buffer:
        """A tensor's buffer seen as a matrix."""
        return self.plain(operand).view((rows, columns))

    def quantized(
        self, value: Value, rows: int, columns: int, rounding: Rounding = ops.dynamic_quantize
    ) -> tuple[Buffer, ...]:
        """A value's rows in integers, which come first, once for all that read them."""
        x = self.matrix(value, rows, columns)
        known = self._quantized.get((x.root, rounding))
        if known is None or known[1][0].shape != x.shape:
            known = len(self.program.instructions), rounding(x)
            self._quantized[x.root, rounding] = known
        return known[1]

    def rotated(self, value: Value) -> Value:
        """The rows of 32 numbers of a value, times the Hadamard matrix of `ops.hadamard`."""
        x = self.matrix(value, value.size // value.shape[-1], value.shape[-1])
        y = ops.hadamard(x)
        self._rotated[y.root] = x
        return self.value(y, value.shape)

    def before_rotation(self, value: Value, rows: int, columns: int) -> Value | None:
        """What `rotated` made all of a value of, with these rows; None where it did not."""
        found = None if value.plain is None else self._rotated.get(value.plain.root)
        if found is None or value.plain is None or value.plain.nbytes != found.nbytes:
            return None
        return self.value(found.view((rows, columns)))

    def constant(self, array: Array) -> Buffer:
        """A constant in a program's memory, aligned and contiguous."""

        def make() -> Buffer:
            aligned = array if array.flags.aligned else array.copy()
            name = self.weights.name(array) or f"constant{list(array.shape)}"
            return self.program.constant(name, aligned)

        return self.weights.get(array, "plain", make)

    def weight(self, tensor: Tensor) -> Buffer:
        """A tensor's buffer of its own: one name may be there in several layouts."""
        return Buffer(tensor.name, Kind.WEIGHT, tensor.format.dtype, tensor.shape, tensor)

    def mark(self) -> tuple[int, int]:
        """What `undo` goes back to."""
        return len(self.program.instructions), len(self._made)

    def undo(self, mark: tuple[int, int]) -> None:
        """Forget the instructions since then, and the buffers that they would have filled."""
        del self.program.instructions[mark[0] :]
        for value, field in self._made[mark[1] :]:
            setattr(value, field, None)
        del self._made[mark[1] :]
        self._quantized = {x: q for x, q in self._quantized.items() if q[0] < mark[0]}

    # ---- nodes -----------------------------------------------------------------------------------

    def record(self, node: Node) -> None:
        """Make a node part of the program, or compute it now.

        Raises
        ------
        EndOfProgramError
            Its results' shapes depend on values, or values are no tensors.
        ProgramError
            The node is not as its operator wants it.
        """
        step()
        first = len(self.program.instructions)
        try:
            self._record(node)
        except MemoryBudgetError as error:
            if str(error).startswith(str(self.model.path)):
                raise
            raise type(error)(f"{self.model.path}: {node}: {error}") from error
        except UNFIT as error:
            raise ProgramError(f"{self.model.path}: {node}: {error!r}") from error
        for instruction in self.program.instructions[first:]:
            instruction.origin = instruction.origin or node.title

    def _record(self, node: Node) -> None:
        inputs = [self.values[name] if name else None for name in node.inputs]
        self.node = node
        self.version = node.version or self.model.opsets.get(node.domain, 1)
        self.opset = self.model.opsets.get("", 1) if node.domain else self.version
        where = f"{self.model.path}: {node}"
        if node.op_type == "If" and not node.domain and isinstance(inputs[0], np.ndarray):
            self._branch(node, bool(inputs[0].reshape(-1)[0]))
            return
        definition = lookup(node.domain, node.op_type, self.version, where)
        if any(isinstance(v, Graph) for v in node.attributes.values()):
            raise EndOfProgramError
        call = bound(definition, node, self.opset, _no_graph, where)
        results = self._results(definition, call, inputs)
        all_made(node, results, where)
        for name, value in zip(node.outputs, results, strict=False):
            if name:
                self.values[name] = value

    def _branch(self, node: Node, condition: bool) -> None:
        """The branch of an If whose condition is known, in its place."""
        graph = node.attributes["then_branch" if condition else "else_branch"]
        outside, mark = self.values, self.mark()
        self.values = ChainMap(dict(graph.initializers), outside)
        try:
            for inner in graph.nodes:
                self.record(inner)
            results = [self.values[output.name] for output in graph.outputs]
        except EndOfProgramError:
            self.undo(mark)
            raise
        finally:
            self.values = outside
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
                result = None  # the definition says what does not fit, or takes it
            if result is not None:
                return result if isinstance(result, tuple) else (result,)
            self.undo(mark)
        return self._host(definition, call, inputs)

    def _folded(self, call: Call, inputs: list[Any]) -> Sequence[Any]:
        """A node whose inputs are all known; what is large is not kept, but made at each run."""
        if work_of(call.definition, self.node, inputs) > WORK:
            raise EndOfProgramError
        most = max(2 * bytes_given(self.node, inputs), MAX_FOLDED)
        results = folded(call, inputs, most)
        if results is None:
            raise EndOfProgramError
        self.weights.derive(self.node, inputs, results)
        return results

    def _host(self, definition: Definition, call: Call, inputs: list[Operand]) -> Sequence[Value]:
        """The node's definition as an instruction of its own."""
        decided = [inputs[i] for i in definition.decided_by if i < len(inputs)]
        if definition.dynamic or any(isinstance(v, Value) for v in decided):
            raise EndOfProgramError
        given = [v for v in inputs if isinstance(v, Value)]
        specs = self._inferred(call, inputs)
        where = f"{self.model.path}: {self.node}"

        def meaning(*arrays: Array) -> tuple[Array, ...]:
            left = iter(arrays)
            results = tuple(call([next(left) if isinstance(v, Value) else v for v in inputs]))
            shapes = [r.shape for r in results]
            if shapes != [shape for _, shape in specs]:
                raise ProgramError(f"{where}: shapes {shapes}, which depend on values")
            return results

        holds = [v for v in inputs if isinstance(v, np.ndarray)]
        given_buffers = [self.plain(v) for v in given]
        buffers = record_host(self.node.op_type, meaning, given_buffers, specs, holds)
        return [self.value(buffer) for buffer in buffers]

    def _inferred(self, call: Call, inputs: list[Operand]) -> list[tuple[str, tuple[int, ...]]]:
        """Dtypes and shapes of a node's results: by rule, or else those that it has for zeros."""
        if (exact_work(self.node, inputs) or 0) > WORK:
            raise EndOfProgramError
        try:
            found = call.infer([_blank(v) if isinstance(v, Value) else v for v in inputs])
            if found is None:
                results = call([_zeros(v) if isinstance(v, Value) else v for v in inputs])
                if not all(isinstance(result, np.ndarray) for result in results):
                    raise EndOfProgramError
                found = [(result.dtype, result.shape) for result in results]
        except HalfbyteError:
            raise EndOfProgramError from None  # zeros may be out of range: values decide
        specs = [(key, shape) for dtype, shape in found if (key := dtype_key(dtype)) is not None]
        if len(specs) < len(found):
            raise EndOfProgramError
        return specs

    def _ordered(self, buffer: Buffer, order: tuple[int, ...]) -> Buffer:
        """The elements of a buffer with its dimensions in another order."""
        shape = tuple(int(buffer.shape[i]) for i in order)  # type: ignore[arg-type]
        real = [i for i in order if buffer.shape[i] != 1]
        if real == sorted(real):
            return buffer.view(shape)
        made = self._lowering and self._lowering.ordered(self, buffer, order)
        if made is not None:
            return made
        (turned,) = record_host(
            "Transpose", lambda x: (x.transpose(order),), [buffer], [(buffer.dtype, shape)]
        )
        return turned


def _blank(value: Value) -> Array:
    """An array that has a value's type and shape, and no memory."""
    return np.broadcast_to(np.zeros((), value.numpy), value.shape)


def _zeros(value: Value) -> Array:
    return np.zeros(check_elements(value.shape, value.numpy.itemsize), value.numpy)


def _no_graph(graph: Graph) -> Any:
    raise EndOfProgramError


class Lives:
    """From which node to which the values of a graph are needed; outputs are until the end."""

    def __init__(self, nodes: Sequence[Node], outputs: Sequence[str]) -> None:
        self._made = {name: i for i, node in enumerate(nodes) for name in node.outputs}
        self._last = {name: i for i, node in enumerate(nodes) for name in used_names(node)}
        self._last.update(dict.fromkeys(outputs, len(nodes)))

    def needed(self, name: str, at: int) -> bool:
        """Whether a value made before node `at` is needed by it, or by what follows."""
        return self._made.get(name, -1) < at <= self._last.get(name, -1)


def finish(capture: Capture, wanted: Iterable[str]) -> tuple[dict[str, Buffer], dict[str, Any]]:
    """What later stages or the caller need: buffers to read after a run, and known values."""
    results: dict[str, Buffer] = {}
    known: dict[str, Any] = {}
    for name in sorted(wanted):
        value = capture.values.get(name)
        if not isinstance(value, Value):
            known[name] = value
            continue
        buffer = capture.plain(value)
        if buffer.root.kind is Kind.SCRATCH:
            capture.program.output(name, buffer.root)
        results[name] = buffer
    return results, known


def dead_code_removed(program: Program) -> Program:
    """Without instructions whose results nothing reads."""
    needed = {b.root for b in program.outputs.values()}
    kept = []
    for instruction in reversed(program.instructions):
        if any(b.root in needed or b.root.kind is Kind.STATE for b in instruction.outputs):
            kept.append(instruction)
            needed.update(b.root for b in instruction.inputs)
    return program.rewritten(kept[::-1])
