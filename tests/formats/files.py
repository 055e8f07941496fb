"""Small model files for tests, complete enough to run."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt

from halfbyte.formats import MetadataValue
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.weights import F32, Tensor, WeightFormat

DIM, HIDDEN, LAYERS, HEADS, KV_HEADS, CONTEXT = 32, 64, 2, 2, 1, 16
VOCABULARY = 259 + 5  # <unk> <s> </s>, bytes, a few pieces

F32Array = npt.NDArray[np.float32]


def pieces() -> list[str]:
    """Tokens in SentencePiece's notation."""
    return [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{b:02X}>" for b in range(256)),
        "▁",
        "a",
        "b",
        "ab",
        "▁a",
    ]


def tokenizer_metadata() -> dict[str, MetadataValue]:
    types = np.ones(VOCABULARY, np.int32)
    types[0], types[1:3], types[3:259] = 2, 3, 6
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": pieces(),
        "tokenizer.ggml.scores": -np.arange(VOCABULARY, dtype=np.float32),
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": np.uint32(1),
        "tokenizer.ggml.eos_token_id": np.uint32(2),
    }


def model_metadata() -> dict[str, MetadataValue]:
    return {
        "general.architecture": "llama",
        "llama.vocab_size": np.uint32(VOCABULARY),
        "llama.context_length": np.uint32(CONTEXT),
        "llama.embedding_length": np.uint32(DIM),
        "llama.block_count": np.uint32(LAYERS),
        "llama.feed_forward_length": np.uint32(HIDDEN),
        "llama.attention.head_count": np.uint32(HEADS),
        "llama.attention.head_count_kv": np.uint32(KV_HEADS),
        "llama.attention.layer_norm_rms_epsilon": np.float32(1e-5),
        "llama.rope.freq_base": np.float32(10000),
        **tokenizer_metadata(),
    }


def weights(tied: bool = True) -> dict[str, F32Array]:
    """Random tensors under GGUF's names, in the order of llama2.c's version 0."""
    random = np.random.default_rng(0)
    kv = DIM // HEADS * KV_HEADS
    layer = {
        "attn_norm": (DIM,), "attn_q": (DIM, DIM), "attn_k": (kv, DIM), "attn_v": (kv, DIM),
        "attn_output": (DIM, DIM), "ffn_norm": (DIM,), "ffn_gate": (HIDDEN, DIM),
        "ffn_down": (DIM, HIDDEN), "ffn_up": (HIDDEN, DIM),
    }  # fmt: skip
    tensors = {"token_embd.weight": random.standard_normal((VOCABULARY, DIM), np.float32)}
    for name, shape in layer.items():
        for index in range(LAYERS):
            value = random.standard_normal(shape, np.float32) * np.float32(DIM**-0.5)
            tensors[f"blk.{index}.{name}.weight"] = value + (1 if len(shape) == 1 else 0)
    tensors["output_norm.weight"] = np.ones(DIM, np.float32)
    if not tied:
        tensors["output.weight"] = random.standard_normal((VOCABULARY, DIM), np.float32)
    return tensors


def tensor(name: str, value: F32Array, format_: type[WeightFormat] = F32) -> Tensor:
    data = format_.encode(np.ascontiguousarray(value).reshape(-1, value.shape[-1]))
    return Tensor(name, format_, value.shape, data.reshape(-1))


def write_small(path: Path, **changes: MetadataValue) -> Path:
    """A complete GGUF model; `changes` are metadata, with double underscores for dots."""
    metadata = model_metadata() | {k.replace("__", "."): v for k, v in changes.items()}
    write_gguf(path, metadata, [tensor(n, v) for n, v in weights().items()])
    return path


def header(vocabulary: int = VOCABULARY) -> bytes:
    return struct.pack("<7i", DIM, HIDDEN, LAYERS, HEADS, KV_HEADS, vocabulary, CONTEXT)


def write_v0(path: Path, *, tied: bool = True) -> Path:
    """llama2.c's version 0, and its tokenizer beside it."""
    tensors = weights(tied)
    head = tensors.pop("output.weight", None)
    angles = np.zeros((2, CONTEXT, DIM // HEADS // 2), np.float32)
    parts = [header(VOCABULARY if tied else -VOCABULARY)]
    parts += [value.tobytes() for value in (*tensors.values(), angles)]
    if head is not None:
        parts.append(head.tobytes())
    path.write_bytes(b"".join(parts))
    path.with_name(f"{path.stem}-tokenizer.bin").write_bytes(tokenizer_bytes())
    return path


def tokenizer_bytes() -> bytes:
    """llama2.c's tokenizer file."""
    parts = [struct.pack("<i", 6)]
    for index, piece in enumerate(pieces()):
        text = {"<s>": "\n<s>\n", "</s>": "\n</s>\n"}.get(piece, piece).replace("▁", " ").encode()
        parts.append(struct.pack("<fi", -index, len(text)) + text)
    return b"".join(parts)


def ordered_v1() -> list[str]:
    """Names in the order of versions 1 and 2: norms first."""
    names = list(weights())
    norms = [n for n in names if "_norm" in n]
    return [*norms, *(n for n in names if n not in norms)]


def write_v1(path: Path) -> Path:
    """llama2.c's version 1, head shared."""
    start = b"24ka" + struct.pack("<i", 1) + header() + b"\x01"
    tensors = weights()
    body = b"".join(tensors[name].tobytes() for name in ordered_v1())
    path.write_bytes(start.ljust(256, b"\0") + body)
    return path


def write_v2(path: Path, group: int) -> Path:
    """llama2.c's version 2: int8 groups."""
    start = b"24ka" + struct.pack("<i", 2) + header() + b"\x01" + struct.pack("<i", group)
    tensors, parts = weights(), []
    for name in ordered_v1():
        value = tensors[name]
        if value.ndim == 1:
            parts.append(value.tobytes())
            continue
        groups = value.reshape(-1, group)
        scale = np.abs(groups).max(axis=1, keepdims=True) / np.float32(127)
        parts += [np.rint(groups / scale).astype(np.int8).tobytes(), scale.tobytes()]
    path.write_bytes(start.ljust(256, b"\0") + b"".join(parts))
    return path
