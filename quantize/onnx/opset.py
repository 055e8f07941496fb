"""Converting a model to a newer version of the standard operators."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx.version_converter
from onnx import ModelProto, TensorProto, helper

from halfbyte.errors import UnsupportedError
from halfbyte.quantize.onnx.editor import Editor
from halfbyte.quantize.onnx.nodes import clone


def raise_opset(editor: Editor, version: int, why: str) -> None:
    """Convert a model to at least this version of the standard operators.

    ONNX's converter does it, without the large tensors: it sees them as inputs.

    Raises
    ------
    UnsupportedError
        ONNX's converter cannot; `why` says what needs the version.
    """
    if editor.opset() >= version:
        return
    model = editor.model
    before = clone(model)
    large = [t for t in before.graph.initializer if t.name in editor.source.bulk]
    _replace_by_inputs(model, before, large)
    try:
        model.CopyFrom(onnx.version_converter.convert_version(model, version))
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0][:200]
        raise UnsupportedError(
            f"{editor.source.path}: {why} needs opset {version}, the model has {editor.opset()}, "
            f"and it cannot be converted: {reason}"
        ) from None
    for values, originals in ((model.graph.input, before.graph.input),
                              (model.graph.output, before.graph.output)):  # fmt: skip
        del values[:]
        values.extend(originals)
    del model.graph.value_info[:]
    model.graph.initializer.extend(large)
    editor.refresh()


def _replace_by_inputs(model: ModelProto, before: ModelProto, large: Sequence[TensorProto]) -> None:
    """Declare large tensors as inputs instead of initializers."""
    names = {t.name for t in large}
    del model.graph.initializer[:]
    model.graph.initializer.extend(t for t in before.graph.initializer if t.name not in names)
    inputs = {value.name for value in before.graph.input}
    model.graph.input.extend(
        helper.make_tensor_value_info(t.name, t.data_type, list(t.dims))
        for t in large
        if t.name not in inputs
    )
    model.ir_version = max(model.ir_version, 4)
    del model.graph.value_info[:]
