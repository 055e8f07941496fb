"""Hugging Face's transformers as a reference for language models, where it is installed."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from halfbyte.errors import HalfbyteError


def logits(path: Path, ids: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
    """Logits float32 [tokens, vocabulary] of a Hugging Face folder or a GGUF file, in float32.

    Raises
    ------
    HalfbyteError
        A package is missing, the model has another format, or transformers refuses it.
    """
    packages: list[Any] = []
    for name in ("torch", "transformers"):
        try:
            packages.append(importlib.import_module(name))
        except ImportError:
            raise HalfbyteError(
                f"reference torch: expected the packages torch and transformers, found no {name}: "
                "pip install torch transformers"
            ) from None
    torch, transformers = packages
    if path.is_dir():
        source: dict[str, Any] = {"pretrained_model_name_or_path": str(path)}
    elif path.suffix == ".gguf":
        source = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    else:
        raise HalfbyteError(f"{path}: reference torch: expected a Hugging Face folder or .gguf")
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            **source, local_files_only=True, dtype=torch.float32
        ).eval()
        with torch.no_grad():
            result = model(torch.tensor([ids.tolist()])).logits[0]
    except Exception as error:  # a model's own code may raise anything
        text = " ".join(str(error).split())[:500]
        raise HalfbyteError(f"{path}: transformers: {text}") from None
    return np.asarray(result, np.float32)
