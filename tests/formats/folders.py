"""Small Hugging Face folders for tests: the model of `files`, as a trainer saves it."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tests.formats.files import (
    CONTEXT,
    DIM,
    HEADS,
    HIDDEN,
    KV_HEADS,
    LAYERS,
    VOCABULARY,
    pieces,
    weights,
)  # fmt: skip

from halfbyte.weights import F32, WeightFormat

F32Array = np.ndarray[Any, np.dtype[np.float32]]
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": DIM,
    "intermediate_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": CONTEXT,
    "vocab_size": VOCABULARY,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
}
_PARTS = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}  # fmt: skip


def trained_weights(tied: bool = True) -> dict[str, F32Array]:
    """The tensors of `files.weights` under Hugging Face's names, in Hugging Face's row order."""
    outer = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight",
    }
    tensors = {}
    for name, values in weights(tied).items():
        if name in outer:
            tensors[outer[name]] = values
            continue
        _, layer, part, _ = name.split(".")
        if part in ("attn_q", "attn_k"):
            heads = HEADS if part == "attn_q" else KV_HEADS
            pairs = values.reshape(heads, -1, 2, DIM)  # neighbours -> halves
            values = np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)
        tensors[f"model.layers.{layer}.{_PARTS[part]}.weight"] = values
    return tensors


def write_safetensors(
    path: Path, tensors: Mapping[str, F32Array], format_: type[WeightFormat] = F32
) -> Path:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    parts, end = [], 0
    for name, values in tensors.items():
        raw = format_.encode(np.ascontiguousarray(values).reshape(1, -1)).tobytes()
        header[name] = {
            "dtype": format_.name,
            "shape": list(values.shape),
            "data_offsets": [end, end + len(raw)],
        }
        parts.append(raw)
        end += len(raw)
    return write_header(path, header, b"".join(parts))


def write_header(path: Path, header: object, body: bytes = b"") -> Path:
    """A length, JSON (text as it is), and bytes."""
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


def tokenizer_json() -> dict[str, Any]:
    """A SentencePiece BPE with byte fallback, as in Llama 2."""
    vocabulary = pieces()
    return {
        "version": "1.0",
        "added_tokens": [
            {
                "id": index, "content": vocabulary[index], "special": True, "single_word": False,
                "lstrip": False, "rstrip": False, "normalized": False,
            }
            for index in range(3)
        ],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ],
        },
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0},
            ],
        },
        "model": {
            "type": "BPE", "dropout": None, "unk_token": "<unk>",
            "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": True,
            "byte_fallback": True, "ignore_merges": False,
            "vocab": {piece: index for index, piece in enumerate(vocabulary)},
            "merges": ["a b", "▁ a"],
        },
    }  # fmt: skip


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))


def write_folder(
    folder: Path,
    format_: type[WeightFormat] = F32,
    *,
    write: Callable[[Path, Mapping[str, F32Array], type[WeightFormat]], Path] = write_safetensors,
    name: str = "model.safetensors",
    shards: int = 1,
    **changes: object,
) -> Path:
    """A complete folder; `changes` are keys of config.json, None removes one."""
    folder.mkdir(exist_ok=True)
    config = {k: v for k, v in {**CONFIG, **changes}.items() if v is not None}
    write_json(folder / "config.json", config)
    write_json(folder / "tokenizer.json", tokenizer_json())
    write_json(
        folder / "tokenizer_config.json",
        {
            "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
            "add_bos_token": True, "add_eos_token": False, "tokenizer_class": "LlamaTokenizer",
            "chat_template": "{{ messages[0]['content'] }}",
        },
    )  # fmt: skip
    write_json(folder / "generation_config.json", {"eos_token_id": [2, 1], "temperature": 0.6})
    tensors = trained_weights(bool(config.get("tie_word_embeddings")))
    if shards == 1:
        write(folder / name, tensors, format_)
        return folder
    stem, end = name.split(".")
    weight_map = {}
    for index in range(shards):
        part = dict(list(tensors.items())[index::shards])
        file = f"{stem}-{index + 1:05}-of-{shards:05}.{end}"
        write(folder / file, part, format_)
        weight_map |= dict.fromkeys(part, file)
    write_json(folder / f"{name}.index.json", {"metadata": {}, "weight_map": weight_map})
    return folder
