"""llama.cpp's C interface, in the library of xllamacpp: tokens, and the logits of a whole text."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xllamacpp

F32Array = npt.NDArray[np.float32]

POINTER, INT = ctypes.c_void_p, ctypes.c_int32
SILENT = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, POINTER)(lambda *_: None)


class _Parameters(ctypes.Structure):
    """Parameters by value; longer than llama.cpp's, which reads their beginning."""

    _fields_ = (("raw", ctypes.c_uint8 * 1024),)


class _Batch(ctypes.Structure):
    _fields_ = (
        ("n_tokens", INT), ("token", ctypes.POINTER(INT)), ("embd", POINTER),
        ("pos", ctypes.POINTER(INT)), ("n_seq_id", ctypes.POINTER(INT)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(INT))), ("logits", ctypes.POINTER(ctypes.c_int8)),
    )  # fmt: skip


SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "model_default_params": (_Parameters, []),
    "context_default_params": (_Parameters, []),
    "model_load_from_file": (POINTER, [ctypes.c_char_p, _Parameters]),
    "init_from_model": (POINTER, [POINTER, _Parameters]),
    "model_get_vocab": (POINTER, [POINTER]),
    "vocab_n_tokens": (INT, [POINTER]),
    "tokenize": (INT, [POINTER, ctypes.c_char_p, INT, POINTER, INT, *[ctypes.c_bool] * 2]),
    "set_n_threads": (None, [POINTER, INT, INT]),
    "batch_init": (_Batch, [INT] * 3),
    "batch_free": (None, [_Batch]),
    "decode": (INT, [POINTER, _Batch]),
    "get_logits": (ctypes.POINTER(ctypes.c_float), [POINTER]),
    "get_memory": (POINTER, [POINTER]),
    "memory_clear": (None, [POINTER, ctypes.c_bool]),
    "free": (None, [POINTER]),
    "model_free": (None, [POINTER]),
    "log_set": (None, [POINTER, POINTER]),
}


@cache
def _functions() -> dict[str, Any]:
    library = ctypes.CDLL(str(next(Path(xllamacpp.__file__).parent.glob("xllamacpp*.so"))))
    found = {name: getattr(library, f"llama_{name}") for name in SIGNATURES}
    for name, (result, arguments) in SIGNATURES.items():
        found[name].restype, found[name].argtypes = result, arguments
    found["log_set"](ctypes.cast(SILENT, POINTER), None)
    return found


class Llama:
    """A model in llama.cpp, with its KV cache in F16."""

    def __init__(self, path: Path, context: int) -> None:
        self.call = _functions()
        default = self.call["model_default_params"]()
        self.model = self.call["model_load_from_file"](str(path).encode(), default)
        assert self.model, f"llama.cpp does not load {path}"
        parameters = self.call["context_default_params"]()
        struct.pack_into("<3I", parameters.raw, 0, *[context] * 3)  # n_ctx, n_batch, n_ubatch
        self.state = self.call["init_from_model"](self.model, parameters)
        self.call["set_n_threads"](self.state, 1, 1)
        self.batch = self.call["batch_init"](context, 0, 1)
        self.words = self.call["model_get_vocab"](self.model)
        self.vocabulary = self.call["vocab_n_tokens"](self.words)
        self.position = 0

    def close(self) -> None:
        """Free its memory."""
        self.call["batch_free"](self.batch)
        self.call["free"](self.state)
        self.call["model_free"](self.model)

    def encode(self, text: str, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Ids of a text."""
        data = text.encode()
        ids = (INT * (len(data) + 8))()
        count = self.call["tokenize"](
            self.words, data, len(data), ids, len(ids), add_special, parse_special
        )
        return list(ids[:count])

    def reset(self) -> None:
        """Begin anew."""
        self.call["memory_clear"](self.call["get_memory"](self.state), True)
        self.position = 0

    def feed(self, ids: Sequence[int], rows: int = 1) -> F32Array:
        """Append tokens; logits [rows, vocabulary] after the last ones."""
        batch = self.batch
        batch.n_tokens = len(ids)
        for index, token in enumerate(ids):
            batch.token[index], batch.pos[index] = token, self.position + index
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, 0
            batch.logits[index] = index >= len(ids) - rows
        assert self.call["decode"](self.state, batch) == 0
        self.position += len(ids)
        return np.ctypeslib.as_array(
            self.call["get_logits"](self.state), (rows, self.vocabulary)
        ).copy()


@contextmanager
def opened(path: Path, context: int) -> Iterator[Llama]:
    """The model, closed at the end."""
    model = Llama(path, context)
    try:
        yield model
    finally:
        model.close()
