"""``halfbyte info``: the contents of a model file and the memory that it will take."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from halfbyte.errors import printable
from halfbyte.formats import metadata
from halfbyte.formats.model_file import ModelFile
from halfbyte.text import architectures
from halfbyte.text.opening import open_model
from halfbyte.text.planning import Settings, capture_model, plan


def describe(
    path: str | os.PathLike[str],
    tokenizer: str | os.PathLike[str] | None = None,
    context: int | None = None,
    cache: str = "auto",
    *,
    program: bool = False,
    as_json: bool = False,
) -> str:
    """Metadata, tensors, bits per weight and planned memory of a file, as text or JSON."""
    file = open_model(path, tokenizer)
    settings = Settings(context=context, cache=cache)
    encodes = architectures.is_encoder(file)
    planned = plan(file, settings, encodes=encodes)
    memory, context = planned.memory, planned.settings.context or 0
    notes = [*file.notes, *planned.program.notes, *_foreign(file)]
    if as_json:
        return json.dumps(_data(file, notes, context, memory), indent=1)
    parts = [_metadata(file), *_notes(notes), _tensors(file), _memory(context, memory)]
    if program:
        captured = capture_model(file, settings, encodes=encodes)
        parts += [f"as captured:\n{captured.dump()}", f"after passes:\n{planned.program.dump()}"]
    return "\n\n".join(parts)


# Keys about a file, its tokenizer and how it was written; all others belong to an architecture.
_GENERAL = ("general.", "tokenizer.", "split.", "quantize.", "halfbyte.")


def _foreign(file: ModelFile) -> list[str]:
    """Notes on metadata of no use here, which its writer may have meant to count."""
    own = getattr(architectures.find(file), "KEYS", ())  # without the architecture's name
    known = (*_GENERAL, *own, metadata.text(file, "general.architecture") + ".")
    return [
        f"metadata {printable(key)!r}: passed over: it is not a key of this architecture"
        for key in file.metadata
        if not key.startswith(known)
    ]


def _data(
    file: ModelFile, notes: list[str], context: int, memory: Mapping[str, int]
) -> dict[str, Any]:
    return {
        "file": str(file.path),
        "format": file.kind,
        "notes": notes,
        "metadata": {key: _short(value) for key, value in file.metadata.items()},
        "tensors": [
            {"name": t.name, "type": t.format.name, "shape": t.shape, "bytes": t.nbytes}
            for t in file.tensors.values()
        ],
        "bits_per_weight": bits_per_weight(file),
        "context": context,
        "planned_bytes": {**memory, "total": sum(memory.values())},
    }


def bits_per_weight(file: ModelFile) -> float:
    """Average number of bits per weight over all tensors."""
    weights = sum(int(np.prod(t.shape)) for t in file.tensors.values())
    return 8 * sum(t.nbytes for t in file.tensors.values()) / max(weights, 1)


def _short(value: Any) -> Any:
    if isinstance(value, list | np.ndarray) and len(value) > 8:
        return f"{len(value)} values"
    return value.tolist() if isinstance(value, np.generic | np.ndarray) else value


def _metadata(file: ModelFile) -> str:
    width = max(map(len, file.metadata), default=0)
    lines = [f"{file.path}: {file.kind}"]
    for key, value in file.metadata.items():
        lines.append(f"  {key:<{width}}  {printable(str(_short(value)), 80)}")
    return "\n".join(map(printable, lines))


def _notes(notes: list[str]) -> list[str]:
    """The notes under a heading, if there are any."""
    lines = [printable(f"  {note}") for note in notes]
    return ["\n".join(["notes", *lines])] if lines else []


def _tensors(file: ModelFile) -> str:
    weights = sum(int(np.prod(t.shape)) for t in file.tensors.values())
    lines = [f"{len(file.tensors)} tensors, {weights:,} weights"]
    for t in file.tensors.values():
        shape = " x ".join(map(str, t.shape))
        lines.append(f"  {printable(t.name):<28} {t.format.name:<5} {shape:>16} {t.nbytes:>14,} B")
    types = Counter(t.format.name for t in file.tensors.values())
    lines.append(
        f"  {', '.join(f'{count} {name}' for name, count in types.items())}; "
        f"{bits_per_weight(file):.2f} bits per weight"
    )
    return "\n".join(lines)


def _memory(context: int, memory: Mapping[str, int]) -> str:
    lines = [f"planned memory at a context of {context} tokens"]
    for kind, count in (*memory.items(), ("total", sum(memory.values()))):
        lines.append(f"  {kind:<18} {count / 1e6:>10.2f} MB")
    return "\n".join(lines)
