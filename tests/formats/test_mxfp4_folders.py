"""Folders of gpt-oss in MXFP4, written here as they are on the hub."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.formats.folders import write_header, write_json
from tests.text.architectures import models, test_folders

from halfbyte.errors import HalfbyteError
from halfbyte.text.opening import open_model
from halfbyte.weights import MXFP4

Tensors = dict[str, npt.NDArray[Any]]
NAME = "gpt_oss"


def write(path: Path, spoil: Callable[[Tensors], object] = lambda tensors: None) -> Path:
    """A folder whose experts are in MXFP4, and beside it, ``plain``, what these mean."""
    plain: Tensors = {}
    packed: Tensors = {}
    for key, shape in models.read_golden(NAME)[0].items():
        value = models.values(f"{NAME}/{key}", tuple(shape))
        if key.endswith("_proj"):
            rows = np.ascontiguousarray(value.swapaxes(1, 2))
            blocks = MXFP4.encode(rows.reshape(-1, rows.shape[-1])).reshape(*rows.shape[:2], -1, 17)
            numbers = MXFP4.get_quantized(np.ascontiguousarray(blocks).view(MXFP4.layout)[..., 0])
            packed[f"{key}_scales"] = blocks[..., 0]
            packed[f"{key}_blocks"] = numbers[..., ::2] | numbers[..., 1::2] << 4
            value = MXFP4.decode(blocks.reshape(-1, blocks[0, 0].size)).reshape(rows.shape)
            value = np.ascontiguousarray(value.swapaxes(1, 2))
        else:
            packed[key] = value
        plain[key] = value
    spoil(packed)
    for name, tensors in (("plain", plain), ("packed", packed)):
        folder = test_folders.write(path / name, NAME, "model.safetensors")
        write_tensors(folder / "model.safetensors", tensors)
    quantization = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.embed_tokens"]}
    config = models.config(NAME) | {"quantization_config": quantization}
    write_json(path / "packed" / "config.json", config)
    return path / "packed"


def write_tensors(path: Path, tensors: Tensors) -> None:
    """Floats and bytes in safetensors."""
    header: dict[str, Any] = {}
    data = b""
    for name, value in tensors.items():
        kind = "U8" if value.dtype == np.uint8 else "F32"
        raw = np.ascontiguousarray(value).tobytes()
        header[name] = {
            "dtype": kind, "shape": list(value.shape), "data_offsets": [len(data), len(data + raw)],
        }  # fmt: skip
        data += raw
    write_header(path, header, data)


def test_experts_are_read_without_rounding(tmp_path: Path) -> None:
    file, plain = open_model(write(tmp_path)), open_model(tmp_path / "plain")
    assert file.tensors.keys() == plain.tensors.keys()
    for name, tensor in file.tensors.items():
        np.testing.assert_array_equal(tensor.decode(), plain.tensors[name].decode())
    kinds = {n: t.format.name for n, t in file.tensors.items()}
    assert kinds["blk.1.ffn_gate_exps.weight"] == "MXFP4"
    assert kinds["blk.1.ffn_gate_exps.bias"] == "F32"


EXPERTS = "model.layers.1.mlp.experts.down_proj"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda t: t.pop(f"{EXPERTS}_scales"),
        lambda t: t.update({f"{EXPERTS}_scales": t[f"{EXPERTS}_scales"][:, 1:]}),
        lambda t: t.update({f"{EXPERTS}_blocks": t[f"{EXPERTS}_blocks"][..., 1:]}),
    ],
)
def test_damaged_parts(spoil: Callable[[Tensors], object], tmp_path: Path) -> None:
    with pytest.raises(HalfbyteError, match=rf"tensor '{EXPERTS}.weight': expected "):
        open_model(write(tmp_path, spoil))
