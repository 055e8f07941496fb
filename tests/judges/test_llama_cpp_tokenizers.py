"""llama.cpp makes the same tokens with the vocabularies that we write."""

from __future__ import annotations

import json
import unicodedata
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import xllamacpp
from tests.text.tokenizers import hugging_face
from tests.text.tokenizers import test_rwkv as test_rwkv_lists
from tests.text.tokenizers.strings import strings

from halfbyte.formats import MetadataValue
from halfbyte.formats.huggingface.tokenizer import tokenizer_metadata
from halfbyte.formats.pretokenizers import SPLITS
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.text.opening import open_model
from halfbyte.text.tokenizers import load_tokenizer
from halfbyte.weights import F32, Tensor

# Numbers of texts
MORE = pytest.mark.parametrize("count", [600, pytest.param(1500, marks=pytest.mark.long)])

WIDTH = 32
MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


def write_model(path: Path, vocabulary: dict[str, MetadataValue]) -> None:
    """A meaningless model, because a server does not open a vocabulary without one."""
    tokens = vocabulary["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    sizes = {
        "block_count": 1, "context_length": 64, "embedding_length": WIDTH,
        "feed_forward_length": WIDTH, "attention.head_count": 1, "vocab_size": len(tokens),
        "rope.dimension_count": WIDTH,
    }  # fmt: skip
    metadata: dict[str, MetadataValue] = {
        "general.architecture": "llama",
        **{f"llama.{name}": np.uint32(size) for name, size in sizes.items()},
        "llama.attention.layer_norm_rms_epsilon": np.float32(1e-5),
        **{key: value for key, value in vocabulary.items() if key.startswith("tokenizer.")},
    }
    shapes: dict[str, tuple[int, ...]] = {"token_embd": (len(tokens), WIDTH)}
    shapes |= {"output_norm": (WIDTH,), "blk.0.attn_norm": (WIDTH,), "blk.0.ffn_norm": (WIDTH,)}
    shapes |= {f"blk.0.{name}": (WIDTH, WIDTH) for name in MATRICES}
    tensors = [
        Tensor(f"{name}.weight", F32, shape, np.ones(shape, np.float32).view(np.uint8).reshape(-1))
        for name, shape in shapes.items()
    ]
    write_gguf(path, metadata, tensors)


def differences(path: Path, texts: Sequence[str]) -> list[str]:
    """Texts with other ids in llama.cpp, with and without parsing of control tokens."""
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx, parameters.n_parallel, parameters.n_gpu_layers = 64, 1, 0
    parameters.warmup, parameters.verbosity = False, -1
    parameters.cpuparams.n_threads = 1
    server = xllamacpp.Server(parameters)
    ours = load_tokenizer(path)
    different = []
    for index, text in enumerate(texts):
        special, parse = index % 2 == 1, index % 3 == 0
        question = {"content": text, "add_special": special, "parse_special": parse}
        request = urllib.request.Request(  # noqa: S310
            f"{server.listening_address}/tokenize", json.dumps(question).encode(),
            {"Content-Type": "application/json"},
        )  # fmt: skip
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            ids = json.load(answer)["tokens"]
        if ids != ours.encode(text, special, parse):
            different.append(text)
    return different


def composed(texts: Sequence[str]) -> list[str]:
    """Avoid what llama.cpp does not do: normal form C, and the long s of contractions."""
    return [unicodedata.normalize("NFC", text).replace("\u017f", "s") for text in texts]


@MORE
@pytest.mark.parametrize("name", ["gpt-2", "llama-bpe", "dbrx", "qwen2", "smollm"])
def test_byte_level(name: str, count: int, repository: Path, tmp_path: Path) -> None:
    judge = hugging_face.byte_level(SPLITS[name], hugging_face.lines(repository))
    judge.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<|end|>"}', encoding="utf-8")
    write_model(tmp_path / "model.gguf", tokenizer_metadata(tmp_path))
    texts = composed(strings(count, extra=hugging_face.SPECIAL))
    assert differences(tmp_path / "model.gguf", texts) == []


@MORE
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_sentencepiece(kind: str, count: int, repository: Path, tmp_path: Path) -> None:
    """With the part of SentencePiece's normalization that llama.cpp has."""
    options = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
    bytes_too = kind == "bpe"
    model = hugging_face.train_sentencepiece(
        repository, model_type=kind, byte_fallback=bytes_too, **options
    )
    (tmp_path / "tokenizer.model").write_bytes(model)
    write_model(tmp_path / "model.gguf", tokenizer_metadata(tmp_path / "tokenizer.model"))
    texts = strings(count, extra=("<s>", "</s>", "<unk>"))
    # With a unigram model, llama.cpp puts no space before a text of spaces only.
    texts = [text for text in texts if kind == "bpe" or text.strip(" ")]
    assert differences(tmp_path / "model.gguf", texts) == []


@pytest.mark.data
@pytest.mark.parametrize("count", [1000, pytest.param(4000, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", ["gpt-2", "llama-spm", "bert-bge"])
def test_real_vocabularies(name: str, count: int, data: Path, tmp_path: Path) -> None:
    metadata = open_model(data / f"gguf-vocab/ggml-vocab-{name}.gguf").metadata
    write_model(tmp_path / "model.gguf", metadata)
    texts = strings(count)
    if name == "bert-bge":  # llama.cpp's tables of accents and of control characters are simpler
        texts = [
            "".join(c for c in text if c in " \n" or (c.isprintable() and c < "\u0300")
                    or "\u0410" <= c < "\u0450" or "\u4e00" <= c < "\u9fa0")
            for text in texts
        ]  # fmt: skip
    assert differences(tmp_path / "model.gguf", texts) == []


@MORE
def test_rwkv(count: int, repository: Path, tmp_path: Path) -> None:
    """But for control tokens, which llama.cpp finds in every text."""
    listed = [token for token in test_rwkv_lists.contents(repository) if len(token) <= 40]
    metadata = tokenizer_metadata(test_rwkv_lists.write_list(tmp_path, listed))
    write_model(tmp_path / "model.gguf", metadata)
    texts = [text for text in strings(count) if "<s>" not in text]
    assert differences(tmp_path / "model.gguf", texts) == []
