"""Write a folder as a hub has it, with random weights at a published model's sizes.

    .venv-judge/bin/python -m benches.popular.folder "Qwen3-0.6B" DIR

`transformers` initializes and saves the weights, in BF16. The tokenizer is byte-level BPE with one
token for each byte and otherwise unused ones, up to the size of the vocabulary.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import transformers
from benches.popular.configs import CONFIGS


def byte_characters() -> list[str]:
    """The character that stands for each byte in byte-level BPE, as GPT-2 defined it."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in shown]
    return [chr(byte if byte in shown else 256 + others.index(byte)) for byte in range(256)]


def tokenizer(size: int) -> dict[str, object]:
    """A tokenizer.json with this many tokens."""
    tokens = [*byte_characters(), *(f"unused{i}" for i in range(size - 257)), "<|end|>"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    end = {"id": size - 1, "content": "<|end|>", "special": True, "single_word": False,
           "lstrip": False, "rstrip": False, "normalized": False}  # fmt: skip
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [end],
        "normalizer": None, "pre_tokenizer": {**level, "use_regex": True},
        "post_processor": None, "decoder": {**level, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "vocab": vocabulary,
                  "merges": []},
    }  # fmt: skip


def write_folder(name: str, folder: Path) -> None:
    """Weights, config.json and tokenizer.json."""
    torch.manual_seed(0)
    own = CONFIGS[name]
    end = own["vocab_size"] - 1
    config = transformers.AutoConfig.for_model(**own, bos_token_id=end, eos_token_id=end)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(own["vocab_size"])))


if __name__ == "__main__":
    write_folder(sys.argv[1], Path(sys.argv[2]))
