"""Qwen 3.5 (text): Qwen 3 Next's layers, whose value heads are in another order, without experts.

Positions of a text are those of its tokens in all of their sections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import qwen3next
from halfbyte.text.architectures._block import Config
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation

TABLES = qwen3next.TABLES
EQUALIZED = qwen3next.EQUALIZED
MODEL_TYPES = ("qwen3_5_text",)
build = qwen3next.build


def translate(config: Translation) -> None:
    """Translate a config.json into GGUF's terms."""
    translate_text(config, "qwen35")


def translate_text(config: Translation, architecture: str) -> None:
    """Set the sizes and names of layers of a text model."""
    qwen3next.translate_layers(config, architecture, apart=True)
    translate_sections(config, [11, 11, 10])


def translate_sections(config: Translation, usual: list[int]) -> None:
    """Set how pairs are divided among positions in time, height and width; a text has one."""
    sections = config.keys.rope().list("mrope_section") or usual
    if len(sections) == 3 and all(type(n) is int and 0 <= n < 1 << 12 for n in sections):
        config.metadata["rope.dimension_sections"] = np.array([*sections, 0], np.int32)


def read_config(file: ModelFile) -> Config:
    """Hyperparameters from metadata, under ``qwen35.*``."""
    return qwen3next.read(Keys(file, "qwen35"), apart=True)
