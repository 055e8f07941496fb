"""Channels are scaled only where the model stays the same function."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.formats.files import DIM, HIDDEN, F32Array, model_metadata, tensor, weights

from halfbyte.formats import MetadataValue
from halfbyte.quantize import Report, quantize_file
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.text.opening import open_model

Weights = dict[str, F32Array]
CHANNEL, ROW = 3, 5
NORM, UP, DOWN = "blk.0.attn_norm.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight"


def rough(path: Path, change: Callable[[Weights], object], architecture: MetadataValue) -> Path:
    """A model with a channel after a norm, and a row of `up`, 64 times as large as the others."""
    tensors = weights()
    for reader in ("attn_q", "attn_k", "attn_v"):
        tensors[f"blk.0.{reader}.weight"][:, CHANNEL] *= 64
    tensors[UP][ROW] *= 64
    change(tensors)
    metadata = model_metadata() | {"general.architecture": architecture}
    write_gguf(path, metadata, [tensor(n, v) for n, v in tensors.items()])
    return path


def scaled(path: Path) -> tuple[bool, bool, Report]:
    """Whether quantization scaled the norm's channel, and the row of `up`."""
    keep = [(name, "F32") for name in (UP, DOWN)]
    report = quantize_file(path, "int8", keep=keep)
    before, after = open_model(path).tensors, open_model(report.output).tensors
    moved = [not np.array_equal(before[n].decode(), after[n].decode()) for n in (NORM, UP)]
    assert moved[1] == (not np.array_equal(before[DOWN].decode(), after[DOWN].decode()))
    return moved[0], moved[1], report


def drop(name: str) -> Callable[[Weights], object]:
    return lambda tensors: [tensors.pop(n) for n in list(tensors) if name in n]


def add(name: str, length: int) -> Callable[[Weights], object]:
    return lambda tensors: tensors.update({name: np.ones(length, np.float32)})


@pytest.mark.parametrize(
    ("change", "norm", "row"),
    [
        (lambda tensors: None, True, True),
        (add("blk.0.attn_q.bias", DIM), True, True),  # after the product: scales nothing
        (add("blk.0.attn_norm.bias", DIM), False, True),
        (add("blk.0.ffn_up.bias", HIDDEN), True, False),
        (drop("ffn_gate"), True, False),  # the activation function is on `up` itself
    ],
    ids=["plain", "bias of q", "bias of the norm", "bias of up", "no gate"],
)
def test_only_pairs_that_cancel_are_scaled(
    tmp_path: Path, change: Callable[[Weights], object], norm: bool, row: bool
) -> None:
    assert scaled(rough(tmp_path / "m.gguf", change, "llama"))[:2] == (norm, row)


@pytest.mark.parametrize(
    "architecture",
    ["plamo", "", ["llama"], np.uint32(1)],
    ids=["known", "empty", "list", "int"],
)
def test_other_graphs_are_not_changed(tmp_path: Path, architecture: MetadataValue) -> None:
    """In other architectures a norm may have more readers, such as both halves of a layer."""
    path = rough(tmp_path / "m.gguf", drop("ffn_norm"), architecture)
    norm, row, report = scaled(path)
    assert (norm, row) == (False, False)
    assert "note: not equalized, which needs architecture [" in report.table()


def test_shapes_that_do_not_meet(tmp_path: Path) -> None:
    def fold(tensors: Weights) -> None:
        for name in ("ffn_gate", "ffn_up"):
            tensors[f"blk.0.{name}.weight"] = tensors[f"blk.0.{name}.weight"].reshape(
                HIDDEN, 1, DIM
            )

    assert scaled(rough(tmp_path / "m.gguf", fold, "llama"))[:2] == (True, False)
