"""Folding BatchNormalization into the convolution before it.

y = gain (W x + b - mean) / sqrt(variance + epsilon) + bias is a convolution again, with weights
factor W and bias factor (b - mean) + bias, where factor = gain / sqrt(variance + epsilon).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, TensorProto

from halfbyte.quantize.onnx.editor import Editor, Weight
from halfbyte.quantize.onnx.nodes import attribute, input_of, is_op, replace_nodes
from halfbyte.quantize.onnx.numbers import Numbers

F32 = npt.NDArray[np.float32]


def fold_batch_norms(
    editor: Editor, is_quantized: Callable[[NodeProto, Weight], bool]
) -> dict[str, F32]:
    """Remove BatchNormalization after convolutions of the main graph.

    Parameters
    ----------
    editor : Editor
    is_quantized : callable
        Whether the weights of a convolution will be quantized.

    Returns
    -------
    dict
        Output of a convolution -> the factor of each channel, by which its weights are still to be
        multiplied; its bias already is.
    """
    graph, readers = editor.model.graph, editor.readers()
    outputs = {value.name for value in graph.output}
    factors: dict[str, F32] = {}
    for conv in graph.node:
        name = conv.output[0]
        if not is_op(conv, "Conv") or name in outputs or len(readers.get(name, ())) != 1:
            continue
        norm, weight = readers[name][0], editor.weight(editor.main, conv.input[1])
        if weight is None or weight.data_type != TensorProto.FLOAT or weight.transposed:
            continue
        folded = _folded(editor, conv, norm, weight.shape[0] if weight.shape else 0)
        if folded is None or not is_quantized(conv, weight):
            continue
        factor, bias = folded
        del conv.input[2:]
        conv.input.append(editor.add(f"{weight.name}_bias", bias))
        conv.output[0] = norm.output[0]
        factors[conv.output[0]] = factor
    if factors:
        replace_nodes(graph, [n for n in graph.node if not _is_folded(n, factors)])
        editor.refresh()
    return factors


def _is_folded(node: NodeProto, factors: dict[str, F32]) -> bool:
    return is_op(node, "BatchNormalization") and node.output[0] in factors


def _folded(
    editor: Editor, conv: NodeProto, norm: NodeProto, channels: int
) -> tuple[F32, F32] | None:
    """The factor of each channel and the new bias; None where an operand is not constant."""
    if not is_op(norm, "BatchNormalization") or any(norm.output[1:]):  # training
        return None
    parts = [_numbers(editor, name) for name in norm.input[1:5]]
    bias: npt.NDArray[np.float64] | None = np.zeros(channels)
    if input_of(conv, 2):
        bias = _numbers(editor, conv.input[2])
    vectors = [part for part in (*parts, bias) if part is not None and part.size == channels]
    if len(vectors) != 5:
        return None
    gain, shift, mean, variance, before = vectors
    with np.errstate(all="ignore"):
        factor = gain / np.sqrt(variance + float(attribute(norm, "epsilon", 1e-5)))
        after = (before - mean) * factor + shift
    if not np.isfinite(factor).all() or not np.isfinite(after).all():
        return None
    return factor.astype(np.float32), after.astype(np.float32)


def _numbers(editor: Editor, name: str) -> npt.NDArray[np.float64] | None:
    weight = editor.weight(editor.main, name)
    if weight is None or weight.transposed or weight.tensor.data_type != TensorProto.FLOAT:
        return None
    numbers = Numbers(editor.source, weight.tensor)
    return numbers.take(0, numbers.rows).reshape(-1).astype(np.float64)
