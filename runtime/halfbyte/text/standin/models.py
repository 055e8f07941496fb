"""`tokenizers.models`: from words to tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.huggingface.vocabulary import merges_of, pieces_of, scored_pieces
from halfbyte.formats.json_file import field, optional, read_json
from halfbyte.formats.mapped import map_file
from halfbyte.outputs import write_file
from halfbyte.text.standin.components import WHERE, Component, written
from halfbyte.text.standin.pretokenized import Token
from halfbyte.text.tokenizers.base import CACHED_LENGTH, CACHED_WORDS
from halfbyte.text.tokenizers.subwords import Piece, make_model

Pieces = tuple[tuple[int, int, int, str], ...]  # ids, their spans in the word, and their texts


class Model(Component):
    """A vocabulary, and a way to find its tokens in a word."""

    KIND = "model"
    TYPES: ClassVar[dict[str, type[Component]]] = {}

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._index()

    def _index(self) -> None:
        """Read the vocabulary; raises `FormatError`."""
        vocab = self.fields.get("vocab")
        if isinstance(vocab, str):
            raise TypeError(f"{type(self).__name__}: the vocabulary is a path: use from_file()")
        self.ids = pieces_of(WHERE, {"vocab": {} if vocab is None else vocab})
        self.fields["vocab"] = self.ids
        self.texts = {i: token for token, i in self.ids.items()}

    @classmethod
    def parse(cls, state: dict[str, Any]) -> Any:
        model = super().parse(state)
        model._index()
        model.check_options()
        return model

    def check(self) -> None:
        """Later: what reads the vocabulary comes first."""

    def check_options(self) -> None:
        """Refuse options that are not supported."""
        options = ("dropout", "alpha", "nbest_size")
        for name in options:
            if self.fields.get(name):
                raise UnsupportedError(
                    f"{WHERE}: 'model.{name}': tokens that are drawn by chance are not in halfbyte"
                )

    def make(self) -> Callable[[str], Pieces]:
        self.check_options()
        names = ("vocab", "merges")
        options = {"type": self.TYPE} | {
            n: v for n, v in self.fields.items() if n not in names and v is not None
        }
        if not self.ids:
            return lambda word: ()
        find = make_model(WHERE, options, self.ids, self._merges(), self._scores())

        def pieces(word: str) -> Pieces:
            return tuple(
                (i, start, end, self._text(i, word[start:end]))
                for i, start, end in self._placed(word, find(word))
            )

        cached = lru_cache(CACHED_WORDS)(pieces)
        return lambda word: cached(word) if len(word) <= CACHED_LENGTH else pieces(word)

    def _merges(self) -> list[tuple[str, str]]:
        return []

    def _scores(self) -> list[float]:
        return []

    def _text(self, token: int, part: str) -> str:
        return self.texts[token]

    def _placed(self, word: str, found: list[Piece]) -> list[Piece]:
        return found

    def pieces(self, word: str) -> Pieces:
        """The tokens of a word."""
        return self.use()(word)  # type: ignore[no-any-return]

    def tokenize(self, sequence: str) -> list[Token]:
        """The tokens of a word."""
        return [Token(i, text, (a, b)) for i, a, b, text in self.pieces(sequence)]

    def token_to_id(self, token: str) -> int | None:
        """The id of a token."""
        return self.ids.get(token)

    def id_to_token(self, id: int) -> str | None:
        """The token with an id."""
        return self.texts.get(id)

    def get_vocab(self) -> dict[str, int]:
        """All tokens and their ids."""
        return dict(self.ids)

    def save(self, folder: str, prefix: str | None = None, name: str | None = None) -> list[str]:
        """Write the vocabulary's files into a folder, and return their paths."""
        prefix = prefix or name
        paths = []
        for file, content in self.files().items():
            path = Path(folder) / (f"{prefix}-{file}" if prefix else file)
            write_file(path, lambda file, text=content: file.write(text.encode()))  # type: ignore[misc]
            paths.append(str(path))
        return paths

    def files(self) -> dict[str, str]:
        """Names and contents of the files that `save` writes."""
        ordered = dict(sorted(self.ids.items(), key=lambda item: item[1]))
        return {"vocab.json": written(ordered)}

    def get_trainer(self) -> Any:
        """Refused."""
        raise UnsupportedError(f"{WHERE}: training a {self.TYPE} is not in halfbyte")

    def __repr__(self) -> str:
        values = {n: v for n, v in self.fields.items() if n not in ("vocab", "merges")}
        shown = [f"{n}={v!r}" for n, v in values.items()]
        return f"{type(self).__name__}({', '.join([*shown, f'vocab of {len(self.ids)}'])})"

    __str__ = __repr__

    def _clear_cache(self) -> None:
        self.instance = None

    def _resize_cache(self, capacity: int) -> None:
        """The cache has one size."""


class BPE(Model):
    """Byte-pair encoding: characters are merged in pairs."""

    TYPE = "BPE"
    FIELDS: ClassVar[dict[str, Any]] = {
        "vocab": None, "merges": None, "cache_capacity": None, "dropout": None, "unk_token": None,
        "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
        "byte_fallback": False, "ignore_merges": False,
    }  # fmt: skip

    def _index(self) -> None:
        super()._index()
        given = self.fields["merges"]
        pairs = [list(pair) if isinstance(pair, tuple) else pair for pair in given or ()]
        model = self.fields | {"merges": pairs}
        self.fields["merges"] = merges_of(WHERE, model, self.ids)

    def _merges(self) -> list[tuple[str, str]]:
        return self.fields["merges"]  # type: ignore[no-any-return]

    def _placed(self, word: str, found: list[Piece]) -> list[Piece]:
        """Where characters without a token were dropped, the tokens move up, as in `tokenizers`."""
        options = ("unk_token", "continuing_subword_prefix", "end_of_word_suffix")
        if any(self.fields[name] for name in options):
            return found
        sizes = [self._bytes(*piece) for piece in found]
        places = [at for at, character in enumerate(word) for _ in character.encode()]
        if sum(sizes) == len(places):
            return found
        moved, at = [], 0
        for (token, _, _), size in zip(found, sizes, strict=True):
            moved.append((token, places[at], places[at + size - 1] + 1))
            at += size
        return moved

    def _bytes(self, token: int, start: int, end: int) -> int:
        """The bytes that a token stands for: one for <0xE2> in the place of a character."""
        size = len(self.texts[token].encode())
        is_byte = self.fields["byte_fallback"] and size == len("<0xE2>") and end - start == 1
        return 1 if is_byte else size

    def state(self) -> dict[str, Any]:
        fields = {n: v for n, v in self.fields.items() if n not in ("vocab", "merges")}
        fields.pop("cache_capacity")
        vocab = dict(sorted(self.ids.items(), key=lambda item: item[1]))
        merges = list(dict.fromkeys(reversed(self._merges())))[::-1]  # the last of equals counts
        return {"type": self.TYPE, **fields, "vocab": vocab, "merges": merges}

    def files(self) -> dict[str, str]:
        lines = "".join(f"{left} {right}\n" for left, right in self._merges())
        return super().files() | {"merges.txt": f"#version: 0.2\n{lines}"}

    @staticmethod
    def read_file(vocab: str, merges: str) -> tuple[dict[str, int], list[tuple[str, str]]]:
        """The vocabulary and the merges of vocab.json and merges.txt."""
        lines = _text(merges).split("\n")
        pairs = (line.split(" ") for line in lines if line and not line.startswith("#version"))
        return pieces_of(Path(vocab), {"vocab": read_json(Path(vocab))}), [
            (pair[0], " ".join(pair[1:])) for pair in pairs
        ]

    @classmethod
    def from_file(cls, vocab: str, merges: str, **kwargs: Any) -> BPE:
        """A model of vocab.json and merges.txt."""
        return cls(*cls.read_file(vocab, merges), **kwargs)


class WordPiece(Model):
    """The longest token that begins a word, then the longest that continues it, and so on."""

    TYPE = "WordPiece"
    FIELDS: ClassVar[dict[str, Any]] = {
        "vocab": None, "unk_token": "[UNK]", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
    }  # fmt: skip

    def state(self) -> dict[str, Any]:
        fields = {n: v for n, v in self.fields.items() if n != "vocab"}
        vocab = dict(sorted(self.ids.items(), key=lambda item: item[1]))
        return {"type": self.TYPE, **fields, "vocab": vocab}

    def files(self) -> dict[str, str]:
        return {"vocab.txt": "".join(f"{self.texts[i]}\n" for i in sorted(self.texts))}

    @staticmethod
    def read_file(vocab: str) -> dict[str, int]:
        """The vocabulary of vocab.txt."""
        return {line: i for i, line in enumerate(_text(vocab).rstrip("\n").split("\n"))}

    @classmethod
    def from_file(cls, vocab: str, **kwargs: Any) -> WordPiece:
        """A model of vocab.txt."""
        return cls(cls.read_file(vocab), **kwargs)


class WordLevel(Model):
    """Whole words."""

    TYPE = "WordLevel"
    FIELDS: ClassVar[dict[str, Any]] = {"vocab": None, "unk_token": "<unk>"}

    def state(self) -> dict[str, Any]:
        vocab = dict(sorted(self.ids.items(), key=lambda item: item[1]))
        return {"type": self.TYPE, "vocab": vocab, "unk_token": self.fields["unk_token"]}

    @staticmethod
    def read_file(vocab: str) -> dict[str, int]:
        """The vocabulary of vocab.json."""
        return pieces_of(Path(vocab), {"vocab": read_json(Path(vocab))})

    @classmethod
    def from_file(cls, vocab: str, unk_token: str | None = None) -> WordLevel:
        """A model of vocab.json."""
        ids = cls.read_file(vocab)
        return cls(ids) if unk_token is None else cls(ids, unk_token)


class Unigram(Model):
    """The tokens with the highest sum of scores."""

    TYPE = "Unigram"
    FIELDS: ClassVar[dict[str, Any]] = {
        "vocab": None, "unk_id": None, "byte_fallback": False, "alpha": None, "nbest_size": None
    }  # fmt: skip

    def read(self, name: str, value: Any) -> Any:
        if name == "vocab" and value is not None:
            return [[piece, float(score)] for piece, score in value]
        return bool(value) if name == "byte_fallback" else value

    def _index(self) -> None:
        entries = [list(entry) for entry in self.fields["vocab"] or ()]
        self.ids, self.scores = scored_pieces(WHERE, {"vocab": entries})
        self.fields["vocab"] = entries
        self.texts = {i: token for token, i in self.ids.items()}

    def _scores(self) -> list[float]:
        return self.scores

    def _text(self, token: int, part: str) -> str:
        text = self.texts[token]
        return part if token == self.fields["unk_id"] else text

    def state(self) -> dict[str, Any]:
        unk_id, fallback = self.fields["unk_id"], bool(self.fields["byte_fallback"])
        vocab = self.fields["vocab"]
        return {"type": self.TYPE, "unk_id": unk_id, "vocab": vocab, "byte_fallback": fallback}

    def files(self) -> dict[str, str]:
        return {"unigram.json": written(self.state(), pretty=True)}


def model_from_state(state: dict[str, Any]) -> Model:
    """The model of a tokenizer.json; those of old files have no type."""
    if "type" not in state:
        kind = "BPE" if "merges" in state else "WordLevel"
        if isinstance(state.get("vocab"), list):
            kind = "Unigram"
        elif "continuing_subword_prefix" in state and kind == "WordLevel":
            kind = "WordPiece"
        state = state | {"type": kind}
    optional(WHERE, state, "unk_token", "", str, "model.")
    field(WHERE, state, "type", str, "model.")
    model: Model = Model.from_state(state)
    return model


def _text(path: str) -> str:
    try:
        return bytes(map_file(Path(path))).decode()
    except UnicodeDecodeError:
        raise FormatError(f"{path}: is not UTF-8") from None
