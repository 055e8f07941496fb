"""Reader of llama2.c's ``.bin`` files (https://github.com/karpathy/llama2.c, export.py).

v0, without magic: seven int32 (dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size,
seq_len; vocab_size is negative if the head is not shared with the embedding), then float32
tensors: embedding, attention norms, wq, wk, wv, wo, FFN norms, w1, w2, w3 (each for all layers in
turn), final norm, two unused tables of RoPE angles [seq_len, head_size / 2], head.

v1: magic ``ak42``, int32 version, the seven int32, a byte that is 1 if the head is shared;
padding to 256 bytes; all norms (attention, FFN, final), then embedding, wq ... w3, head.

v2: as v1, with an int32 group_size after that byte. Norms are float32, every other tensor is
int8 [numel], then float32 scales [numel / group_size].

Names and metadata are translated to GGUF's. Both rotate interleaved pairs in RoPE, so no rows are
permuted.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.grouped import Groups, grouped_notes, grouped_tensor
from halfbyte.formats.mapped import Pages
from halfbyte.formats.model_file import MetadataValue, ModelFile
from halfbyte.weights import F32, U8, Tensor

MAGIC = struct.pack("<I", 0x616B3432)  # "ak42" as one number

_HEADER_BYTES = 256  # of v1 and v2
_MAX_LAYERS = 10_000
_Shape = tuple[int, ...]


class _Sizes(NamedTuple):
    """The seven numbers of every header."""

    dim: int
    hidden_dim: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    vocab_size: int
    seq_len: int

    @property
    def head_size(self) -> int:
        return self.dim // self.n_heads

    def problem(self) -> str | None:
        """What is wrong with the sizes, or None."""
        for name, value in self._asdict().items():
            if value <= 0:
                return f"{name} is {value}, expected a positive number"
        if self.n_layers > _MAX_LAYERS:
            return f"n_layers is {self.n_layers}, expected at most {_MAX_LAYERS}"
        if self.dim % self.n_heads or self.head_size % 2:
            return f"dim {self.dim} in {self.n_heads} heads gives no even head size"
        if self.n_heads % self.n_kv_heads:
            return f"n_heads {self.n_heads} is not a multiple of n_kv_heads {self.n_kv_heads}"
        return None


@dataclass(frozen=True)
class _Header:
    version: int
    sizes: _Sizes
    shared_head: bool
    group_size: int = 0  # v2 only

    def layout(self) -> Iterator[tuple[str, _Shape]]:
        """GGUF name and shape of every tensor in file order; name "" for bytes to skip."""
        sizes = self.sizes
        norms: list[tuple[str, _Shape]] = [("attn_norm", (sizes.dim,)), ("ffn_norm", (sizes.dim,))]
        kv_dim = sizes.n_kv_heads * sizes.head_size
        attention = [
            ("attn_q", (sizes.dim, sizes.dim)),
            ("attn_k", (kv_dim, sizes.dim)),
            ("attn_v", (kv_dim, sizes.dim)),
            ("attn_output", (sizes.dim, sizes.dim)),
        ]
        ffn = [
            ("ffn_gate", (sizes.hidden_dim, sizes.dim)),
            ("ffn_down", (sizes.dim, sizes.hidden_dim)),
            ("ffn_up", (sizes.hidden_dim, sizes.dim)),
        ]
        embedding = ("token_embd.weight", (sizes.vocab_size, sizes.dim))
        if self.version == 0:
            yield embedding
            yield from self._layers([norms[0], *attention, norms[1], *ffn])
            yield "output_norm.weight", (sizes.dim,)
            yield "", (2, sizes.seq_len, sizes.head_size // 2)
        else:
            yield from self._layers(norms)
            yield "output_norm.weight", (sizes.dim,)
            yield embedding
            yield from self._layers([*attention, *ffn])
        if not self.shared_head:
            yield "output.weight", (sizes.vocab_size, sizes.dim)

    def _layers(self, parts: list[tuple[str, _Shape]]) -> Iterator[tuple[str, _Shape]]:
        for name, shape in parts:
            for layer in range(self.sizes.n_layers):
                yield f"blk.{layer}.{name}.weight", shape

    def stored_bytes(self, shape: _Shape) -> int:
        """Bytes of one tensor in the file; v2 has groups in matrices but not in vectors."""
        count = math.prod(shape)
        if self.version == 2 and len(shape) > 1:
            return count + count // self.group_size * 4
        return count * 4

    def file_bytes(self) -> int:
        """The size that the file must have."""
        start = 28 if self.version == 0 else _HEADER_BYTES
        return start + sum(self.stored_bytes(shape) for _, shape in self.layout())

    def metadata(self, name: str) -> dict[str, MetadataValue]:
        """The model's sizes under GGUF's keys."""
        sizes = self.sizes
        return {
            "general.architecture": "llama",
            "general.name": name.encode(errors="replace").decode(),  # a file name may be any bytes
            "llama.vocab_size": np.uint32(sizes.vocab_size),
            "llama.context_length": np.uint32(sizes.seq_len),
            "llama.embedding_length": np.uint32(sizes.dim),
            "llama.block_count": np.uint32(sizes.n_layers),
            "llama.feed_forward_length": np.uint32(sizes.hidden_dim),
            "llama.attention.head_count": np.uint32(sizes.n_heads),
            "llama.attention.head_count_kv": np.uint32(sizes.n_kv_heads),
            "llama.attention.layer_norm_rms_epsilon": np.float32(1e-5),
            "llama.rope.dimension_count": np.uint32(sizes.head_size),
            "llama.rope.freq_base": np.float32(10000.0),
        }


def _legacy_header(start: bytes) -> _Header | None:
    if len(start) < 28:
        return None
    sizes = _Sizes(*struct.unpack_from("<7i", start))
    shared_head = sizes.vocab_size > 0
    return _Header(0, sizes._replace(vocab_size=abs(sizes.vocab_size)), shared_head)


def is_legacy(start: bytes, size: int) -> bool:
    """Whether a file that begins with `start` is v0: its size must match the header exactly."""
    header = _legacy_header(start)
    return header is not None and header.sizes.problem() is None and header.file_bytes() == size


def legacy_hint(start: bytes, size: int) -> str:
    """A hint for a file that begins like v0 but has another size, else ""."""
    header = _legacy_header(start)
    if header is None or header.sizes.problem() is not None:
        return ""
    sizes = header.sizes
    return (
        f"; as llama2.c v0 its header (dim {sizes.dim}, {sizes.n_layers} layers, vocabulary "
        f"{sizes.vocab_size}) asks for {header.file_bytes()} bytes: "
        f"{'truncated' if size < header.file_bytes() else 'too long'}?"
    )


def _read_header(path: Path, start: bytes) -> _Header:
    if not start.startswith(MAGIC):
        header = _legacy_header(start)
    elif len(start) < _HEADER_BYTES:
        raise FormatError(f"{path}: truncated: {_HEADER_BYTES} bytes of header, {len(start)} found")
    else:
        (version,) = struct.unpack_from("<i", start, 4)
        if version not in (1, 2):
            raise UnsupportedError(
                f"{path}: expected llama2.c's version 0, 1 or 2, found {version}"
            )
        *sizes, shared, group_size = struct.unpack_from("<7iBi", start, 8)
        if shared > 1:
            raise FormatError(f"{path}: shared_classifier is {shared}, expected 0 or 1")
        header = _Header(version, _Sizes(*sizes), shared == 1, group_size if version == 2 else 0)
    if header is None:
        raise FormatError(f"{path}: truncated: 28 bytes of header expected, {len(start)} found")
    if problem := header.sizes.problem():
        raise FormatError(f"{path}: {problem}")
    return header


def read_llama2c(path: Path, pages: Pages) -> ModelFile:
    """Parse a llama2.c file: float32 tensors are views, int8 groups become Q8_0 on demand.

    If v2's groups are not whole blocks of Q8_0 (group_size or row length is not a multiple of 32),
    the tensor becomes float32. The tokenizer is in a separate file.

    Raises
    ------
    FormatError
        Sizes that contradict each other or the file's size.
    UnsupportedError
        An unknown version.
    """
    header = _read_header(path, bytes(pages[:_HEADER_BYTES]))
    _check_groups(path, header)
    if header.file_bytes() != len(pages):
        raise FormatError(
            f"{path}: {header.file_bytes()} bytes expected from the sizes in the header, "
            f"{len(pages)} found"
        )
    whole = np.frombuffer(pages, np.uint8)
    at = 28 if header.version == 0 else _HEADER_BYTES
    tensors: dict[str, Tensor] = {}
    for name, shape in header.layout():
        size = header.stored_bytes(shape)
        if name:
            tensors[name] = _tensor(path, header, name, shape, whole[at : at + size])
        at += size
    notes = grouped_notes(tensors)
    kind = f"llama2.c v{header.version}"
    file = ModelFile(path, kind, header.metadata(path.stem), tensors, notes, {path: pages})
    file.forget()  # the scales were read to check them
    return file


def _check_groups(path: Path, header: _Header) -> None:
    if header.version != 2:
        return
    if header.group_size <= 0:
        raise FormatError(f"{path}: group_size is {header.group_size}, expected a positive number")
    for name, shape in header.layout():
        if len(shape) > 1 and math.prod(shape) % header.group_size:
            raise FormatError(
                f"{path}: tensor {name!r}: {math.prod(shape)} weights is not a multiple of "
                f"group_size {header.group_size}"
            )


def _tensor(path: Path, header: _Header, name: str, shape: _Shape, data: U8) -> Tensor:
    if header.version != 2 or len(shape) == 1:
        return Tensor(name, F32, shape, data)
    count = math.prod(shape)
    scales = data[count:].view("<f4")
    groups = Groups(data[:count].view(np.int8), scales, shape[-1])
    return grouped_tensor(str(path), name, shape, groups)
