"""Fusions in programs of graphs, where a value may be read under several shapes.

Like `halfbyte.core.passes.fuse`, but instructions are matched by the memory that they share: a norm
or Gelu is fused with the quantization of its result, and a product with its residual or activation.
"""

from __future__ import annotations

from collections import Counter

from halfbyte.core import ops
from halfbyte.core.buffer import Buffer, Kind
from halfbyte.core.instruction import Instruction, Operation
from halfbyte.core.ops.panels import Activation
from halfbyte.core.program import Program, resume


def fuse_views(program: Program) -> Program:
    """Replace pairs by the operators in `ops.FUSED`, and put sums and Gelus into products."""
    rewritten = program.rewritten([])
    pairs = _Pairs(program)
    with resume(rewritten):
        for instruction in program.instructions:
            if instruction in pairs.absorbed:
                continue
            outputs = instruction.outputs
            if instruction in pairs.norms:
                quantize, product = pairs.norms[instruction], pairs.gains.get(instruction)
                gain = product.operands["y"] if product else None
                fused = ops.FUSED[instruction.operator, quantize.operator]
                fused(*instruction.inputs, gain, **instruction.attributes)
                result = product.outputs[0].view(outputs[0].shape) if product else outputs[0]
                outputs = (result, *quantize.outputs)
            elif instruction in pairs.gelus:
                gelu = pairs.gelus[instruction]
                x = gelu.inputs[0].view(_shape(instruction.inputs[0]))
                ops.FUSED[gelu.operator, instruction.operator](x, **gelu.attributes)
            elif instruction in pairs.sums:
                product, residual = pairs.sums[instruction]
                outputs = _again(instruction, product, r=residual)
            elif instruction in pairs.activated:
                tanh = instruction.attributes["approximate"] == "tanh"
                activation = Activation.GELU_TANH if tanh else Activation.GELU
                outputs = _again(instruction, pairs.activated[instruction], activation=activation)
            else:
                rewritten.append(instruction)
                continue
            rewritten.change_last(outputs, instruction.origin)
    return rewritten


class _Pairs:
    """Instructions that are fused; those in `absorbed` disappear."""

    def __init__(self, program: Program) -> None:
        self.norms: dict[Instruction, Instruction] = {}  # norm -> quantization of its result
        self.gains: dict[Instruction, Instruction] = {}  # norm -> product of its result and a row
        self.gelus: dict[Instruction, Instruction] = {}  # quantization -> Gelu before it
        self.sums: dict[Instruction, tuple[Instruction, Buffer]] = {}  # -> product and residual
        self.activated: dict[Instruction, Instruction] = {}  # Gelu -> product
        self.absorbed: set[Instruction] = set()
        self._uses = Counter(b.root for i in program.instructions for b in i.inputs)
        self._makers: dict[Buffer, Instruction] = {}
        for instruction in program.instructions:
            self._quantization(instruction)
            if instruction.operator is ops.binary:
                self._sum(instruction)
            elif instruction.operator is ops.gelu:
                self._gelu(instruction)
            self._makers.update({b.root: instruction for b in instruction.outputs})
        for instruction in program.instructions:
            if instruction.operator is ops.binary and instruction.attributes["function"] == "mul":
                self._gain(instruction)

    def _has_one_reader(self, buffer: Buffer) -> bool:
        return buffer.root.kind is Kind.SCRATCH and self._uses[buffer.root] == 1

    def _quantization(self, last: Instruction) -> None:
        maker = self._makers.get(last.inputs[0].root) if last.inputs else None
        if maker is None or (maker.operator, last.operator) not in ops.FUSED:
            return
        if maker in self.norms or maker in self.activated:
            return
        if maker.operator is ops.layer_norm and maker.outputs[0].shape == last.inputs[0].shape:
            self.norms[maker] = last
            self.absorbed.add(last)
        elif maker.operator is ops.gelu and self._has_one_reader(last.inputs[0]):
            self.gelus[last] = maker
            self.absorbed.add(maker)

    def _sum(self, last: Instruction) -> None:
        whole = last.attributes["d"] == last.attributes["n"]
        steps = last.attributes["x_step"], last.attributes["y_step"]
        if last.attributes["function"] != "add" or not whole or steps != (1, 1):
            return
        x, y, _ = last.inputs
        for product, residual in ((y, x), (x, y)):
            maker = self._product(product)
            if maker is not None and residual.root is not product.root:
                self.sums[last] = maker, residual
                self.absorbed.add(maker)
                return

    def _gain(self, last: Instruction) -> None:
        """Match a gain by channels that is the only reader of a norm's float result."""
        x, gain, _plan = last.inputs
        norm = self._makers.get(x.root)
        if norm not in self.norms or x.root.kind is not Kind.SCRATCH or self._uses[x.root] != 2:
            return
        d = norm.dims["d"]
        whole = x.shape == (last.attributes["n"],) and last.attributes["d"] == d
        if whole and gain.shape == (d,) and last.attributes["y_step"] == 1:
            self.gains[norm] = last
            self.absorbed.add(last)

    def _product(self, result: Buffer) -> Instruction | None:
        """The product whose result has one reader, if nothing is fused into it yet."""
        maker = self._makers.get(result.root)
        if maker is None or not _adds_rows(maker.operator) or maker in self.absorbed:
            return None
        free = "r" not in maker.operands and not maker.attributes.get("activation")
        return maker if free and self._has_one_reader(result) else None

    def _gelu(self, last: Instruction) -> None:
        maker = self._product(last.inputs[0])
        if maker is not None and "activation" in maker.attributes:
            self.activated[last] = maker
            self.absorbed.add(maker)


def _adds_rows(operator: Operation) -> bool:
    """Whether an operator is a product of matrices that takes a residual."""
    return operator.product and any(o.name == "r" and len(o.dims) == 2 for o in operator.inputs)


def _again(
    last: Instruction, product: Instruction, r: Buffer | None = None, activation: int | None = None
) -> tuple[Buffer, ...]:
    """Record a product that also does the work of `last`, into the memory of its result."""
    shape = _shape(product.outputs[0])
    arguments = {o.name: b for o, b in zip(product.operator.inputs, product.arguments, strict=True)}
    arguments["r"] = None if r is None else r.view(shape)
    attributes = dict(product.attributes)
    if activation is not None:
        attributes["activation"] = int(activation)
    product.operator(*arguments.values(), **attributes)
    return (last.outputs[0].view(shape),)


def _shape(buffer: Buffer) -> tuple[int, ...]:
    return buffer.shape  # type: ignore[return-value]
