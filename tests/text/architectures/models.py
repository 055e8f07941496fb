"""Tiny models of every architecture: a config.json each, weights from a formula.

Goldens (`goldens/<name>.json`, written by `make judge`) hold the names and shapes of such a model's
tensors in `transformers`, and its logits at some positions of a text.
"""

from __future__ import annotations

import base64
import json
import math
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tests.formats.files import VOCABULARY, tensor, tokenizer_metadata
from tests.text.architectures.configs import CONFIGS, CONTEXT, OLD, OLD_SIZES, SIZES

from halfbyte.formats import MetadataValue
from halfbyte.formats.huggingface.experts import with_stacks
from halfbyte.formats.huggingface.names import as_metadata, naming
from halfbyte.formats.huggingface.shapes import Shapes
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.text import architectures

F32Array = npt.NDArray[np.float32]

GOLDENS = Path(__file__).with_name("goldens")
COLUMNS = 64  # tokens whose logits are stored
_GAINS = (".weight", "_scalar", ".scale", "_scale")  # ends of names
_SHIFTED = re.compile(r"(gemma[23]?|vaultgemma|nemotron)\b")  # models whose gains lack one


def config(name: str) -> dict[str, Any]:
    """The config.json of a model."""
    own = CONFIGS[name]
    return {**(OLD_SIZES if own["model_type"] in OLD else SIZES), **own}


def ids(name: str) -> list[int]:
    """A text of the whole context, the beginning-of-text token first."""
    return [
        1,
        *(3 + zlib.crc32(f"{name} {i}".encode()) % (VOCABULARY - 3) for i in range(1, CONTEXT)),
    ]


def values(name: str, shape: tuple[int, ...]) -> F32Array:
    """A tensor's weights: uniform, of variance 1 / columns; vectors are 0.2 as large, gains near 1.

    PCG64's stream is the same in every version of NumPy.
    """
    raw = np.random.PCG64(zlib.crc32(name.encode())).random_raw(math.prod(shape))
    uniform = ((raw >> np.uint64(11)) * 2.0**-52 - 1).astype(np.float32).reshape(shape)
    if len(shape) > 1:
        return uniform * np.float32((3 / shape[-1]) ** 0.5)
    gain = name.endswith(_GAINS) and not _SHIFTED.match(name)
    return np.asarray(uniform * np.float32(0.2) + np.float32(gain))  # also of a scalar


def write(
    path: Path,
    name: str,
    architecture: str | None = None,
    change: Callable[[dict[str, MetadataValue], dict[str, F32Array]], object] | None = None,
) -> Path:
    """The model as GGUF in F32.

    `architecture` renames it, `change` may change its metadata and tensors in any way.
    """
    names = naming(config(name), architectures.model_types())
    shapes = read_golden(name)[0]
    metadata, tensors = dict(names.metadata), dict(names.tensors)
    wanted = Shapes(names.metadata, names.shapes)
    for source, shape in shapes.items():
        if renamed := names.rename(source):
            new, value = renamed[0], values(f"{name}/{source}", tuple(shape or (1,)))
            tensors[new] = renamed[1].fitting(value.shape, wanted[new]).apply(value)
    files = {n: tensor(n, v) for n, v in tensors.items()}
    stacks = with_stacks(name, files, wanted)
    metadata |= as_metadata(names, stacks)
    tensors = {n: t.decode() for n, t in stacks.items()}
    if architecture:
        old = f"{metadata['general.architecture']}."
        metadata = {k.replace(old, f"{architecture}."): v for k, v in metadata.items()}
        metadata["general.architecture"] = architecture
    if change:
        change(metadata, tensors)
    write_gguf(
        path, {**metadata, **tokenizer_metadata()}, [tensor(n, v) for n, v in tensors.items()]
    )
    return path


def write_golden(name: str, shapes: dict[str, list[int]], logits: F32Array | None = None) -> None:
    """Store the results of `make judge`; without logits only the shapes, for :func:`write`."""
    rows = list(range(3, CONTEXT, 4)) if logits is not None else []
    kept = np.zeros(0, np.float32) if logits is None else logits[rows, :COLUMNS]
    GOLDENS.mkdir(exist_ok=True)
    encoded = base64.b64encode(np.ascontiguousarray(kept, np.float32)).decode()
    text = json.dumps({"tensors": shapes, "rows": rows, "logits": encoded}, indent=1)
    text = re.sub(r"\[[\s\d,]*\]", lambda match: re.sub(r"\s+", " ", match[0]), text)
    (GOLDENS / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def read_golden(name: str) -> tuple[dict[str, list[int]], list[int], F32Array]:
    """Shapes of the model's tensors, rows of its text, and their logits [rows, COLUMNS]."""
    content = json.loads((GOLDENS / f"{name}.json").read_text(encoding="utf-8"))
    logits = np.frombuffer(base64.b64decode(content["logits"]), np.float32)
    return content["tensors"], content["rows"], logits.reshape(-1, COLUMNS)


def largest_difference(actual: F32Array, expected: F32Array) -> float:
    """Of two arrays of logits, relative to the largest expected one."""
    return float(np.abs(actual.astype(np.float64) - expected).max() / np.abs(expected).max())
