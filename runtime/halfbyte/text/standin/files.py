"""Reading and writing tokenizer.json."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from halfbyte.errors import FormatError, HalfbyteError
from halfbyte.formats.json_file import field, optional, parse_json, read_json
from halfbyte.outputs import write_file
from halfbyte.text.standin.added import AddedVocabulary, token_of_state
from halfbyte.text.standin.components import WHERE, written
from halfbyte.text.standin.decoders import Decoder
from halfbyte.text.standin.models import Model, model_from_state
from halfbyte.text.standin.normalizers import Normalizer
from halfbyte.text.standin.pre_tokenizers import PreTokenizer
from halfbyte.text.standin.processors import PostProcessor
from halfbyte.text.standin.sizes import Padding, Truncation

VERSION = "1.0"
_PARTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "normalizer": Normalizer.from_state, "pre_tokenizer": PreTokenizer.from_state,
    "post_processor": PostProcessor.from_state, "decoder": Decoder.from_state,
    "truncated": Truncation.from_state, "padded": Padding.from_state,
}  # fmt: skip
_NAMES = {"truncated": "truncation", "padded": "padding"}


class Saved:
    """The part of a tokenizer that reads and writes files."""

    added: AddedVocabulary
    model: Model
    normalizer: Normalizer | None

    def __init__(self, model: Model) -> None:
        self.model = model

    @classmethod
    def from_str(cls, json: str) -> Self:
        """The tokenizer in a string."""
        return cls.from_buffer(json.encode())

    @classmethod
    def from_buffer(cls, buffer: bytes) -> Self:
        """The tokenizer in bytes."""
        return cls._read(WHERE, parse_json(WHERE, bytes(buffer)))

    @classmethod
    def from_file(cls, path: str) -> Self:
        """The tokenizer in a file."""
        return cls._read(Path(path), read_json(Path(path)))

    @classmethod
    def from_pretrained(
        cls, identifier: str, revision: str = "main", token: str | None = None
    ) -> Self:
        """The tokenizer of a folder, or of a repository of the hub, which is cached."""
        folder = Path(identifier)
        if folder.is_dir():
            return cls.from_file(str(folder / "tokenizer.json"))
        from halfbyte.download.hub import pull_file

        return cls.from_file(str(pull_file(identifier, "tokenizer.json", revision, token)))

    def state(self) -> dict[str, Any]:
        """The object in tokenizer.json."""
        parts = {_NAMES.get(name, name): getattr(self, name) for name in _PARTS}
        states = {name: None if part is None else part.state() for name, part in parts.items()}
        return {
            "version": VERSION,
            "truncation": states.pop("truncation"),
            "padding": states.pop("padding"),
            "added_tokens": self.added.state(),
            **states,
            "model": self.model.state(),
        }

    def to_str(self, pretty: bool = False) -> str:
        """The content of a tokenizer.json."""
        return written(self.state(), pretty)

    def save(self, path: str, pretty: bool = True) -> None:
        """Write a tokenizer.json."""
        content = self.to_str(pretty).encode()
        write_file(Path(path), lambda file: file.write(content))

    def __reduce__(self) -> tuple[Callable[[bytes], Self], tuple[bytes]]:
        return type(self).from_buffer, (self.to_str().encode(),)

    @classmethod
    def _read(cls, path: Path, data: dict[str, Any]) -> Self:
        """A tokenizer of a tokenizer.json's object; errors name the file."""
        try:
            version = data.get("version", VERSION)
            if version != VERSION:
                raise FormatError(
                    f"{WHERE}: expected version {VERSION!r}, found {str(version)[:40]!r}"
                )
            tokenizer = cls(model_from_state(optional(WHERE, data, "model", {}, dict)))
            for name, read in _PARTS.items():
                key = _NAMES.get(name, name)
                if data.get(key) is not None:
                    setattr(tokenizer, name, read(field(WHERE, data, key, dict)))
            tokens = [token_of_state(t) for t in optional(WHERE, data, "added_tokens", [], list)]
            tokenizer.added.add(
                (token for _, token in tokens), tokenizer.model, tokenizer.normalizer
            )
        except HalfbyteError as error:
            text = str(error)
            raise type(error)(text.replace(str(WHERE), str(path), 1)) from None
        return tokenizer
