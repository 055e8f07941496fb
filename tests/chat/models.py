"""Small models that hold conversations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from tests.chat.templates import CHATML

from halfbyte.formats import open_model
from halfbyte.formats.model_file import MetadataValue
from halfbyte.quantize.writers import write_gguf

STORYTELLER = Path(__file__).parents[2] / "runtime/halfbyte/data/storyteller.bin"


def sentencepiece(path: Path, model: Path = STORYTELLER, **metadata: MetadataValue) -> Path:
    """The storyteller (or another model), the last of whose tokens are ChatML's."""
    file = open_model(model)
    made = dict(file.metadata)
    tokens, types = made["tokenizer.ggml.tokens"], made["tokenizer.ggml.token_type"]
    assert isinstance(tokens, list)
    assert isinstance(types, np.ndarray)
    made["tokenizer.ggml.tokens"] = [*tokens[:-2], "<|im_start|>", "<|im_end|>"]
    made["tokenizer.ggml.token_type"] = np.array([*types[:-2], 3, 3], np.int32)
    made["tokenizer.ggml.eot_token_id"] = np.uint32(len(tokens) - 1)
    made["tokenizer.chat_template"] = CHATML
    made |= {key.replace("__", "."): value for key, value in metadata.items()}
    write_gguf(path, made, list(file.tensors.values()))
    return path


MODELS: dict[str, Callable[[Path], Path]] = {"sentencepiece": sentencepiece}
