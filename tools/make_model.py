"""Write a GGUF model of a well-known shape with random weights, for benchmarks and tests.

    python tools/make_model.py --shape smollm2-135m --type F16 -o smollm2-135m-f16.gguf

Weights are normal with standard deviation 1 / sqrt(columns), so that activations keep their size
from layer to layer; norms are ones and biases zeros. The tokenizer is an artificial SentencePiece
vocabulary of the shape's size. Types are the presets of `quantize`: a Q4_0 file has its embeddings
in Q8_0, a Q4_K_M file is a mixture, and norms are always F32. The head is the embedding, even where
the original has a head of its own; Llama 3.2's scaling of RoPE frequencies is left out. Memory
stays small: rows are generated, encoded and written in slices. With --random-blocks all matrices
are in one format, any that halfbyte reads, and their blocks are random bytes with scales that give
weights of the usual size: nothing is encoded, and speed does not depend on values.
"""

from __future__ import annotations

import argparse
import itertools
import math
import string
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from halfbyte.errors import HalfbyteError
from halfbyte.formats.model_file import MetadataValue, ModelFile
from halfbyte.quantize.gguf_writer import GGUFWriter, TensorInfo
from halfbyte.quantize.mixtures import Model
from halfbyte.quantize.presets import ResolvedPreset, fitting, presets
from halfbyte.weights import F32, FORMATS, U8, Tensor, WeightFormat

_SLICE = 1 << 18  # weights generated at once: they fit into the cache


@dataclass(frozen=True)
class Shape:
    """Sizes of a model with tied embeddings."""

    dim: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    context: int
    rope_base: float
    architecture: str = "llama"
    width: int = 0  # of a head, unless it is dim / heads
    window: int = 0  # of the layers that have a window
    experts: int = 0  # of a layer, in place of one feed-forward part
    used: int = 0  # experts that run for a token

    @property
    def head_dim(self) -> int:
        """Elements of a head."""
        return self.width or self.dim // self.heads


SHAPES = {
    "smollm2-135m": Shape(576, 30, 9, 3, 1536, 49152, 8192, 100_000.0),
    "llama-1b": Shape(2048, 16, 32, 8, 8192, 128256, 131072, 500_000.0),
    "mistral-7b": Shape(4096, 32, 32, 8, 14336, 32000, 32768, 10_000.0, window=4096),
    "qwen2-0.5b": Shape(896, 24, 14, 2, 4864, 151936, 32768, 1_000_000.0, "qwen2"),
    "qwen3-0.6b": Shape(1024, 28, 16, 8, 3072, 151936, 40960, 1_000_000.0, "qwen3", 128),
    "gemma3-1b": Shape(1152, 26, 4, 1, 6912, 262144, 32768, 1_000_000.0, "gemma3", 256, 512),
    "phi3-mini": Shape(3072, 32, 32, 32, 8192, 32064, 4096, 10_000.0, "phi3", window=2047),
    "llama-160m": Shape(768, 12, 12, 12, 3072, 32000, 2048, 10_000.0),
    "gpt2": Shape(768, 12, 12, 12, 3072, 50257, 1024, 10_000.0, "gpt2"),
    # three of OLMoE's layers
    "7-of-64": Shape(2048, 3, 16, 16, 1024, 2048, 4096, 10_000.0, "olmoe", experts=64, used=7),
    "small": Shape(384, 4, 6, 2, 1024, 2048, 1024, 10_000.0),
    "tiny": Shape(64, 3, 4, 2, 160, 512, 256, 10_000.0),
    "tiny-256": Shape(256, 8, 4, 2, 512, 512, 256, 10_000.0),
}


def make_model(path: Path, name: str, type: str, seed: int = 0, blocks: bool = False) -> None:
    """Write the model in one of the presets; progress goes to stderr. Raises `OutputError`.

    With `blocks`, `type` is a format of blocks, and these are random.
    """
    shape, metadata = SHAPES[name], {}
    if blocks:
        infos = [
            TensorInfo(n, FORMATS[type] if len(size) > 1 else F32, size)
            for n, size in _names(shape)
        ]
    else:
        preset = presets()[type]
        infos = list(_tensors(shape, preset))
        metadata["general.file_type"] = np.uint32(preset.file_type)
    total = sum(info.size for info in infos)
    rng = np.random.Generator(np.random.SFC64(seed))
    write = write_blocks if blocks else write_tensor
    with GGUFWriter(path, _metadata(name, shape) | metadata, infos) as writer:
        progress = _Progress(path.name, total)
        for info in infos:
            (write_tensor if info.format is F32 else write)(writer, info, rng)
            progress.add(info.size)


def empty_model(shape: Shape, type: str, name: str = "shape", *, pure: bool = False) -> ModelFile:
    """A model whose weights are memory that is never touched, to plan with; see `make_model`.

    `pure`: the head has the format of the layers too.
    """
    preset = presets()[type]
    metadata = _metadata(name, shape) | {"general.file_type": np.uint32(preset.file_type)}
    tensors = {
        i.name: Tensor(i.name, i.format, i.shape, np.zeros(i.size, np.uint8))
        for i in _tensors(shape, replace(preset, head=None) if pure else preset)
    }
    return ModelFile(Path(f"{name}.gguf"), "GGUF v3", metadata, tensors)


class _Progress:
    """A line on stderr: updated on a terminal, otherwise printed once at the end."""

    def __init__(self, name: str, total: int) -> None:
        self._name, self._total, self._done = name, total, 0
        self._start = self._printed = time.perf_counter()

    def add(self, size: int) -> None:
        self._done += size
        now, last = time.perf_counter(), self._done == self._total
        if not last and (now - self._printed < 0.1 or not sys.stderr.isatty()):
            return
        self._printed = now
        rate = self._done / 1e6 / (now - self._start)
        print(
            f"\r{self._name}: {self._done / 1e6:.1f} of {self._total / 1e6:.1f} MB, "
            f"{rate:.0f} MB/s",
            end="\n" if last else "",
            file=sys.stderr,
            flush=True,
        )


def _tensors(shape: Shape, preset: ResolvedPreset) -> Iterator[TensorInfo]:
    sharing = shape.heads // shape.kv_heads
    model = Model(shape.layers, True, shape.architecture, sharing, shape.experts)
    for name, size in _names(shape):
        weight_format = F32
        if len(size) > 1:
            weight_format = fitting(preset.format_of(name, model), size[-1])
        yield TensorInfo(name, weight_format, size)


def _names(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "token_embd.weight", (shape.vocabulary, shape.dim)
    if shape.architecture == "gpt2":
        yield "position_embd.weight", (shape.context, shape.dim)
        yield "output_norm.bias", (shape.dim,)
    for layer in range(shape.layers):
        for name, size in _layer(shape):
            yield f"blk.{layer}.{name}", size
    yield "output_norm.weight", (shape.dim,)


def _layer(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and sizes of a layer's tensors in the architecture."""
    dim, ffn, of = shape.dim, shape.ffn, shape.architecture
    width, kv = shape.head_dim * shape.heads, shape.head_dim * shape.kv_heads
    norms = {"attn_norm": dim, "ffn_norm": dim}
    if of in ("qwen3", "gemma3"):
        norms |= {"attn_q_norm": shape.head_dim, "attn_k_norm": shape.head_dim}
    if of == "olmoe":
        norms |= {"attn_q_norm": width, "attn_k_norm": kv}
    if of == "gemma3":
        norms |= {"post_attention_norm": dim, "post_ffw_norm": dim}
    products = {"attn_q": (width, dim), "attn_k": (kv, dim), "attn_v": (kv, dim)}
    if of in ("phi3", "gpt2"):
        products = {"attn_qkv": (width + 2 * kv, dim)}
    products["attn_output"] = (dim, width)
    if of not in ("phi3", "gpt2"):
        products["ffn_gate"] = (ffn, dim)
    products |= {"ffn_up": (2 * ffn if of == "phi3" else ffn, dim), "ffn_down": (dim, ffn)}
    if shape.experts:
        for name in ("ffn_gate", "ffn_up", "ffn_down"):
            products[f"{name}_exps"] = (shape.experts, *products.pop(name))
        products["ffn_gate_inp"] = (shape.experts, dim)
    biases = {"qwen2": ("attn_q", "attn_k", "attn_v"), "gpt2": (*norms, *products)}
    for name, size in ({k: (v,) for k, v in norms.items()} | products).items():
        yield f"{name}.weight", size
        if name in biases.get(of, ()):
            yield f"{name}.bias", size[:1]


def write_tensor(writer: GGUFWriter, info: TensorInfo, rng: np.random.Generator) -> None:
    if len(info.shape) == 1:
        value = np.float32(info.name.endswith(".weight"))
        writer.write(info.format.encode(np.full((1, info.shape[0]), value)))
        return
    rows, columns = math.prod(info.shape[:-1]), info.shape[-1]
    step = max(1, _SLICE // columns)
    for first in range(0, rows, step):
        values = rng.standard_normal((min(step, rows - first), columns), np.float32)
        values *= np.float32(columns**-0.5)
        writer.write(info.format.encode(values))


def write_blocks(writer: GGUFWriter, info: TensorInfo, rng: np.random.Generator) -> None:
    format_, columns = info.format, info.shape[-1]
    unit = format_.decode(_random_blocks(format_, 16, columns, 1.0, rng)).std()
    rows = math.prod(info.shape[:-1])
    step = max(1, _SLICE // columns)
    for first in range(0, rows, step):
        count = min(step, rows - first)
        writer.write(_random_blocks(format_, count, columns, columns**-0.5 / unit, rng))


def _random_blocks(
    format_: type[WeightFormat], rows: int, columns: int, scale: float, rng: np.random.Generator
) -> U8:
    """Rows of random bytes in which every block has one scale."""
    data = rng.integers(0, 256, (rows, format_.row_bytes(columns)), np.uint8)
    layout: np.dtype[np.void] = format_.layout  # type: ignore[attr-defined]  # as all of blocks
    blocks = data.view(layout)
    half, exponent = np.float16(scale), round(math.log2(scale))
    if format_.name == "MXFP4":
        blocks["e"] = 128 + exponent
    elif format_.name == "NVFP4":  # half an E4M3 number
        blocks["d"] = max(1, 8 + exponent) << 3
    elif format_.name == "IQ1_M":  # the bits of an F16 number at the top of four words
        nibbles = half.view(np.uint16) >> np.arange(0, 16, 4, dtype=np.uint16) << np.uint16(12)
        blocks["scales"] = (blocks["scales"] & np.uint16(0xFFF)) | nibbles
    else:
        for field in {"d", "dmin", "m"}.intersection(layout.names or ()):
            blocks[field] = half
    return data


def _metadata(name: str, shape: Shape) -> dict[str, MetadataValue]:
    tokens, types = vocabulary(shape.vocabulary)
    return {
        "general.architecture": shape.architecture,
        "general.name": f"random weights, shape {name}",
        **{f"{shape.architecture}.{key}": value for key, value in _sizes(shape).items()},
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": -np.arange(shape.vocabulary, dtype=np.float32),
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": np.uint32(1),
        "tokenizer.ggml.eos_token_id": np.uint32(2),
        "tokenizer.ggml.unknown_token_id": np.uint32(0),
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.add_space_prefix": True,
    }


def _sizes(shape: Shape) -> dict[str, MetadataValue]:
    """Metadata of the architecture; its name is left out of the keys."""
    sizes: dict[str, MetadataValue] = {
        "vocab_size": np.uint32(shape.vocabulary),
        "context_length": np.uint32(shape.context),
        "embedding_length": np.uint32(shape.dim),
        "block_count": np.uint32(shape.layers),
        "feed_forward_length": np.uint32(shape.ffn),
        "attention.head_count": np.uint32(shape.heads),
        "attention.head_count_kv": np.uint32(shape.kv_heads),
    }
    if shape.architecture == "gpt2":
        return sizes | {"attention.layer_norm_epsilon": np.float32(1e-5)}
    if shape.width:
        lengths = ("attention.key_length", "attention.value_length")
        sizes |= dict.fromkeys(lengths, np.uint32(shape.width))
    if shape.experts:
        sizes["expert_count"] = np.uint32(shape.experts)
        sizes["expert_used_count"] = np.uint32(shape.used)
    if shape.window:
        sizes["attention.sliding_window"] = np.uint32(shape.window)
    if shape.architecture == "phi3":  # llama.cpp requires it
        sizes["rope.scaling.original_context_length"] = np.uint32(shape.context)
    return sizes | {
        "attention.layer_norm_rms_epsilon": np.float32(1e-5),
        "rope.dimension_count": np.uint32(shape.head_dim),
        "rope.freq_base": np.float32(shape.rope_base),
    }


def vocabulary(size: int) -> tuple[list[str], np.ndarray[tuple[int], np.dtype[np.int32]]]:
    """Special tokens, bytes, printable ASCII, then letter strings, each a shorter one's extension.

    Token types are GGUF's: 1 normal, 2 unknown, 3 control, 6 byte.
    """
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    letters = string.ascii_lowercase
    strings = (
        "".join(parts)
        for length in (2, 3, 4)
        for parts in itertools.product("\u2581" + letters, *[letters] * (length - 1))
    )
    singles = ["\u2581", *map(chr, range(33, 127))]
    tokens = list(itertools.islice(itertools.chain(special, singles, strings), size))
    types = np.ones(size, np.int32)
    types[:3] = 2, 3, 3
    types[3 : len(special)] = 6
    return tokens, types


def main() -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        description="Write a GGUF model of a well-known shape with random weights."
    )
    parser.add_argument("--shape", choices=SHAPES, required=True)
    blocks = [name for name, format_ in FORMATS.items() if format_.block > 1]
    kinds = {**presets(), **dict.fromkeys(blocks)}
    parser.add_argument("--type", choices=kinds, default="F16", help="default: F16")
    parser.add_argument("--random-blocks", action="store_true", help=f"of {', '.join(blocks)}")
    parser.add_argument("-o", "--output", type=Path, help="default: SHAPE-TYPE.gguf, here")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.seed < 0:
        parser.error(f"argument --seed: expected 0 or more, found {options.seed}")
    known = blocks if options.random_blocks else presets()
    if options.type not in known:
        parser.error(f"argument --type: expected one of {', '.join(known)}, found {options.type}")
    output = options.output or Path(f"{options.shape}-{options.type.lower()}.gguf")
    try:
        make_model(output, options.shape, options.type, options.seed, options.random_blocks)
    except HalfbyteError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\n{parser.prog}: interrupted; nothing was written", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
