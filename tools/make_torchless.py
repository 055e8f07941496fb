"""Write a torchless ``.bin`` from a Hugging Face folder, in the layout of torchless' exporter.

    python tools/make_torchless.py Mistral-7B-v0.1 -o mistral.bin --int8

It serves tests of the reader; ``halfbyte.formats.torchless`` describes the layout. Tensors become
float32; with ``--int8`` projections become int8, with a float32 factor for each 64 weights, which
is 127 / the largest of them.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np

from halfbyte.errors import HalfbyteError
from halfbyte.formats.checkpoints.shards import read_folder_weights
from halfbyte.formats.json_file import read_json
from halfbyte.formats.torchless import ALIGNMENT, GROUP
from halfbyte.weights import Tensor

_METADATA = {
    "hidden_size": "hidden_size", "intermediate_size": "intermediate_size",
    "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads", "vocab_size": "vocab_size",
    "max_position_embeddings": "max_position_embeddings", "sliding_window": "sliding_window",
    "rope_theta": "rope_theta", "norm_eps": "rms_norm_eps",
}  # fmt: skip


def make_torchless(folder: Path, output: Path, *, int8: bool = False) -> None:
    """Write the file; the model should be a Mistral, with a tokenizer.json."""
    config, model = read_json(folder / "config.json"), read_json(folder / "tokenizer.json")["model"]
    entries: dict[str, Any] = {}
    parts: list[bytes] = []
    end = 0

    def place(data: bytes) -> int:
        nonlocal end
        start, padding = end, -len(data) % ALIGNMENT
        parts.append(data + bytes(padding))
        end += len(data) + padding
        return start

    for name, tensor in read_folder_weights(folder).tensors.items():
        entry: dict[str, Any] = {"dtype": "f32", "shape": list(tensor.shape)}
        if int8 and "_proj" in name:
            q, scales = _groups(tensor)
            entry |= {"dtype": "int8", "offset": place(q.tobytes())}
            entry |= {"scale_offset": place(scales.tobytes()), "scale_size": scales.size}
        else:
            entry["offset"] = place(tensor.decode().tobytes())
        entries[name] = entry
    metadata = {name: str(config.get(key)) for name, key in _METADATA.items()}
    metadata |= {"act_type": config["hidden_act"], "quant": "int8" if int8 else "f32"}
    tokenizer = {"vocab": model["vocab"], "merges": model["merges"]}
    header = json.dumps({"metadata": metadata, "tensors": entries, "tokenizer": tokenizer}).encode()
    header += bytes(-(8 + len(header)) % ALIGNMENT)
    output.write_bytes(struct.pack("<Q", len(header)) + header + b"".join(parts))


def _groups(tensor: Tensor) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """int8 values, and the factor of each group; it is inf for groups of zeros."""
    values = tensor.decode().reshape(-1, GROUP)
    with np.errstate(divide="ignore", invalid="ignore"):
        scales = np.float32(127) / np.abs(values).max(axis=1, keepdims=True)
        q = np.nan_to_num(np.rint(values * scales))
    return q.astype(np.int8), scales


def main() -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(description="Write torchless' .bin from a folder.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--int8", action="store_true", help="projections in int8")
    options = parser.parse_args()
    try:
        make_torchless(options.folder, options.output, int8=options.int8)
    except (HalfbyteError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
