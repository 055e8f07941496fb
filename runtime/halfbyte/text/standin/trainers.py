"""`tokenizers.trainers`: refused, because tokenizers are not trained here."""

from __future__ import annotations

from typing import Any

from halfbyte.errors import UnsupportedError


class Trainer:
    """Refused."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        raise UnsupportedError(
            f"tokenizers: {type(self).__name__}: training is not in halfbyte; a tokenizer.json "
            "trained with PyPI's tokenizers works"
        )


class BpeTrainer(Trainer):
    """Refused."""


class ParityBpeTrainer(Trainer):
    """Refused."""


class UnigramTrainer(Trainer):
    """Refused."""


class WordLevelTrainer(Trainer):
    """Refused."""


class WordPieceTrainer(Trainer):
    """Refused."""
