"""Small models that hold conversations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from tests.formats.folders import write_json, write_safetensors
from tests.text.architectures.models import values
from tests.text.chat.templates import CHATML
from tests.text.tokenizers.hugging_face import byte_level, lines

from halfbyte.formats.model_file import MetadataValue
from halfbyte.formats.pretokenizers import SPLITS
from halfbyte.quantize import quantize_file
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.text.opening import open_model

REPOSITORY = Path(__file__).parents[3]
STORYTELLER = REPOSITORY / "runtime/halfbyte/data/storyteller.bin"


def sentencepiece(path: Path, model: Path = STORYTELLER, **metadata: MetadataValue) -> Path:
    """The storyteller (or another model) with ChatML's tokens as its last two."""
    file = open_model(model)
    changed = dict(file.metadata)
    tokens, types = changed["tokenizer.ggml.tokens"], changed["tokenizer.ggml.token_type"]
    assert isinstance(tokens, list)
    assert isinstance(types, np.ndarray)
    changed["tokenizer.ggml.tokens"] = [*tokens[:-2], "<|im_start|>", "<|im_end|>"]
    changed["tokenizer.ggml.token_type"] = np.array([*types[:-2], 3, 3], np.int32)
    changed["tokenizer.ggml.eot_token_id"] = np.uint32(len(tokens) - 1)
    changed["tokenizer.chat_template"] = CHATML
    changed |= {key.replace("__", "."): value for key, value in metadata.items()}
    write_gguf(path, changed, list(file.tensors.values()))
    return path


def qwen(path: Path, recipe: str = "int8", width: int = 64) -> Path:
    """A model like Qwen with random weights and a byte-level tokenizer, from a folder.

    It recommends the temperature 0.3.
    """
    folder = path.with_suffix("")
    folder.mkdir()
    tokenizer = byte_level(SPLITS["qwen2"], lines(REPOSITORY))
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>", "<|endoftext|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    ends = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "add_bos_token": False}
    write_json(folder / "tokenizer_config.json", {**ends, "chat_template": CHATML})
    kv, inner, vocabulary = width // 2, 2 * width, tokenizer.get_vocab_size()
    sizes = {
        "hidden_size": width, "intermediate_size": inner, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": vocabulary,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
    }  # fmt: skip
    config = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", **sizes}
    write_json(folder / "generation_config.json", {"temperature": 0.3})
    write_json(folder / "config.json", {**config, "tie_word_embeddings": True})
    shapes = {"model.embed_tokens.weight": (vocabulary, width), "model.norm.weight": (width,)}
    for layer in range(2):
        block = f"model.layers.{layer}."
        for name, rows in (("q", width), ("k", kv), ("v", kv)):
            shapes[f"{block}self_attn.{name}_proj.weight"] = (rows, width)
            shapes[f"{block}self_attn.{name}_proj.bias"] = (rows,)
        shapes[f"{block}self_attn.o_proj.weight"] = (width, width)
        for name in ("gate", "up"):
            shapes[f"{block}mlp.{name}_proj.weight"] = (inner, width)
        shapes[f"{block}mlp.down_proj.weight"] = (width, inner)
        for name in ("input", "post_attention"):
            shapes[f"{block}{name}_layernorm.weight"] = (width,)
    tensors = {name: values(f"qwen/{name}", shape) for name, shape in shapes.items()}
    write_safetensors(folder / "model.safetensors", tensors)
    quantize_file(folder, recipe, path)
    return path


def qwen_k(path: Path) -> Path:
    """The same in llama.cpp's Q4_K_M, whose super-blocks are 256 wide."""
    return qwen(path, "Q4_K_M", 256)


MODELS: dict[str, Callable[[Path], Path]] = {
    "sentencepiece": sentencepiece, "qwen": qwen, "qwen-Q4_K_M": qwen_k,
}  # fmt: skip
