"""Kin of Llama of which only GGUF files are read: a table, in place of a module each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from halfbyte.core.program import Program
from halfbyte.errors import UnsupportedError
from halfbyte.formats.model_file import ModelFile
from halfbyte.text.architectures import CHANNELS, _block
from halfbyte.text.architectures._block import Block, Config
from halfbyte.text.architectures._keys import Keys

if TYPE_CHECKING:
    from halfbyte.formats.huggingface.names import Translation


@dataclass(frozen=True)
class Kin:
    """An `Architecture` that a line describes.

    Attributes
    ----------
    name : str
        As in ``general.architecture``, before each key of the metadata.
    BLOCK : Block
        What its layers do otherwise than Llama's.
    alibi : float
        Of the slopes by which a head's scores fall with distance, in place of rotation.
    doubled : bool
        The width of the feed-forward part is given for its two matrices together.
    """

    name: str
    BLOCK: Block
    alibi: float = 0.0
    doubled: bool = False

    TABLES: ClassVar[frozenset[str]] = _block.TABLES
    MODEL_TYPES: ClassVar[tuple[str, ...]] = ()
    EQUALIZED: ClassVar[Mapping[str, tuple[str, ...]]] = CHANNELS

    def translate(self, config: Translation) -> None:
        """Refuse a config.json."""
        raise UnsupportedError(
            f"{config.keys.where}: model_type {config.kind!r}: expected a GGUF file of such a model"
        )

    def read_config(self, file: ModelFile) -> Config:
        """Hyperparameters from metadata."""
        keys = Keys(file, self.name)
        config = _block.read_config(keys, self.BLOCK, alibi=self.alibi)
        if not self.doubled:
            return config
        return replace(config, hidden=keys.size("feed_forward_length", 1 << 22, low=2) // 2)

    def build(
        self, file: ModelFile, config: Config, *, context: int, batch: int, cache: str
    ) -> Program:
        """Capture the model."""
        return _block.build(self.BLOCK, file, config, context=context, batch=batch, cache=cache)


_PAIRS = Block(interleaved=True)  # rotates neighbours
KIN = {
    kin.name.replace("-", "_"): kin
    for kin in (
        Kin("internlm2", _PAIRS),
        Kin("xverse", _PAIRS),
        Kin("pangu-embedded", Block()),  # biases in attention
        Kin("qwen", Block(), doubled=True),  # biases of queries, keys and values
        Kin("refact", Block(), alibi=8.0),
    )
}
