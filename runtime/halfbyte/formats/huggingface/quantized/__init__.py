"""Folders whose matrices are quantized already.

They are those of GPTQ, AWQ, compressed-tensors, FP8, MXFP4 and BitNet.

Such a matrix is several tensors: integers, several to a word, their scales, and perhaps zero
points. It becomes one tensor. Where a type of GGUF can hold the integers and the scales, it is that
type, without any rounding: TQ2_0 for integers from -1 to 1, Q4_0 from -8 to 7, Q5_0 from -16 to
15, Q8_0 for those of eight bits. Otherwise the products are float32: if columns are in the order of
their activations, if groups are not whole blocks, if float16 cannot hold a scale, and for FP8.

Sources: the layouts of AutoGPTQ, AutoAWQ, compressed-tensors and DeepSeek-V3's FP8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from halfbyte.errors import UnsupportedError, nearest
from halfbyte.formats.checkpoints import Checkpoint
from halfbyte.formats.derived import DerivedTensor
from halfbyte.formats.huggingface.config import Keys
from halfbyte.formats.huggingface.quantized import (
    awq,
    gptq,
    mxfp4,
    packed_words,
    ternary,
    whole_bytes,
)
from halfbyte.formats.huggingface.quantized.matrix import Parts
from halfbyte.weights import Tensor

# By method, how to read a matrix whose integers are in a tensor with this end
_METHODS: Mapping[str, Mapping[str, Callable[[Parts], DerivedTensor]]] = {
    "gptq": {".qweight": gptq.read},
    "awq": {".qweight": awq.read},
    "compressed-tensors": {".weight_packed": packed_words.read, ".weight": whole_bytes.read},
    "fp8": {".weight": whole_bytes.read},
    "fbgemm_fp8": {".weight": whole_bytes.read},
    "mxfp4": {"_blocks": mxfp4.read},
    "bitnet": {".weight": ternary.read},
}
_IGNORED = ("input_scale", "k_scale", "v_scale")  # of activations, which halfbyte measures


def with_plain_weights(
    checkpoint: Checkpoint, keys: Keys, where: str, notes: list[str]
) -> Checkpoint:
    """The checkpoint with one tensor for each quantized matrix.

    Parameters
    ----------
    keys : Keys
        ``quantization_config`` of config.json.
    where : str
        The folder, for messages.
    notes : list of str
        Gets what became of the matrices.

    Raises
    ------
    FormatError, UnsupportedError
        The method is not known, or a part of a matrix is missing or has the wrong shape.
    """
    method = keys.text("quant_method", "")
    if method not in _METHODS:
        raise UnsupportedError(
            f"{keys.where}: quant_method {method[:80]!r}: expected one of "
            f"{nearest(method, sorted(_METHODS))}"
        )
    parts, plain = Parts(checkpoint, where, keys), dict[str, Tensor]()
    for end, read in _METHODS[method].items():
        for name in parts.layers(end):
            parts.name = name
            plain[f"{name}.weight"] = read(parts)
    if method == "bitnet" and keys.text("quantization_mode", "offline") == "online":
        floats = {n: t for n, t in parts.tensors.items() if n.endswith(ternary.LINEAR)}
        plain |= {name: ternary.from_floats(tensor) for name, tensor in floats.items()}
    for name in [n for n in (*parts.tensors, *parts.raw) if n.rsplit(".", 1)[-1] in _IGNORED]:
        parts.tensors.pop(name, None)
        parts.raw.pop(name, None)
    kinds = sorted({tensor.format.name for tensor in plain.values()})
    exact = "" if "F32" in kinds else ", without rounding"
    notes.append(f"{method}: {len(plain)} quantized matrices as {' and '.join(kinds)}{exact}")
    unusable = {name: why for name, why in checkpoint.unusable.items() if name in parts.raw}
    others = {n: w for n, w in checkpoint.unusable.items() if n not in checkpoint.raw}
    return replace(
        checkpoint, tensors=parts.tensors | plain, raw=parts.raw, unusable=others | unusable
    )
