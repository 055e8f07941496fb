"""Crumb's files: tokens, chat template, a Hugging Face folder; and what they are worth."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import halfbyte
from halfbyte.text.chat import Chat

if TYPE_CHECKING:
    from chat_grammar import Conversation
    from storyteller_model import Llama
    from torch import Tensor

BOS, USER, ASSISTANT, END = 1, 3, 4, 5
TOKENS = {USER: "<|user|>", ASSISTANT: "<|assistant|>", END: "<|end|>"}
TEMPERATURE = 0.3  # at more, it often makes up words
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] != 'system' %}"
    "<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def write_folder(model: Llama, tokenizer: Path, out: Path) -> None:
    """Write the model as a Hugging Face folder, which `halfbyte quantize` reads."""
    from safetensors.torch import save_file

    c = model.config
    out.mkdir(parents=True, exist_ok=True)
    (out / "tokenizer.model").write_bytes(tokenizer.read_bytes())
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": c.dim,
        "intermediate_size": c.hidden, "num_hidden_layers": c.layers, "vocab_size": c.vocabulary,
        "num_attention_heads": c.heads, "num_key_value_heads": c.kv_heads,
        "max_position_embeddings": c.context, "rms_norm_eps": c.epsilon, "rope_theta": c.theta,
        "bos_token_id": BOS, "eos_token_id": END, "tie_word_embeddings": True,
    }  # fmt: skip
    (out / "config.json").write_text(json.dumps(config))
    (out / "generation_config.json").write_text(json.dumps({"temperature": TEMPERATURE}))
    tokens = {str(i): {"content": text, "special": True} for i, text in TOKENS.items()}
    settings = {
        "tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": TOKENS[END],
        "unk_token": "<unk>", "add_bos_token": False, "add_eos_token": False,
        "added_tokens_decoder": tokens, "chat_template": TEMPLATE,
    }  # fmt: skip
    (out / "tokenizer_config.json").write_text(json.dumps(settings))
    save_file(dict(_tensors(model)), str(out / "model.safetensors"))


def _tensors(model: Llama) -> Iterator[tuple[str, Tensor]]:
    """The tensors by Hugging Face's names; rotated pairs lie half a head apart there."""
    places = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj",
              "o": "self_attn.o_proj", "gate": "mlp.gate_proj", "up": "mlp.up_proj",
              "down": "mlp.down_proj", "attention_norm": "input_layernorm",
              "ffn_norm": "post_attention_layernorm"}  # fmt: skip
    yield "model.embed_tokens.weight", model.embedding.weight.detach()
    yield "model.norm.weight", model.norm.weight.detach()
    for number, block in enumerate(model.blocks):
        for name, place in places.items():
            weight = getattr(block, name).weight.detach()
            if name in ("q", "k"):
                pairs = weight.view(-1, model.config.head_dim // 2, 2, weight.shape[1])
                weight = pairs.transpose(1, 2).reshape(weight.shape)
            yield f"model.layers.{number}.{place}.weight", weight.contiguous()


def heldout_loss(path: Path, heldout: Sequence[Conversation]) -> tuple[float, int]:
    """Mean -log p (nats) per token of an answer, its end included; and how many tokens."""
    losses = []
    with halfbyte.load(path) as model:
        chat = Chat(model)
        for turns in heldout:
            roles = itertools.cycle(("user", "assistant"))
            texts = [text for turn in turns for text in turn]
            ids = chat.encode(
                [{"role": r, "content": t} for r, t in zip(roles, texts, strict=False)]
            )
            ids = ids[:-1][: model.context]  # without the beginning of the next answer
            losses.append(model.token_losses(ids)[_of_answers(ids)[1:]])
    together = np.concatenate(losses)
    return float(together.mean()), len(together)


def _of_answers(ids: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Which tokens belong to an answer; its end does."""
    speaks = np.zeros(len(ids), np.bool_)
    for start in np.flatnonzero(np.equal(ids, ASSISTANT)):
        length = np.argmax(np.equal([*ids[start:], END], END))
        speaks[start + 1 : start + length + 1] = True
    return speaks


def talk(path: Path, questions: Sequence[str]) -> list[tuple[str, str]]:
    """A conversation at temperature 0."""
    messages: list[dict[str, Any]] = []
    with halfbyte.load(path) as model:
        for question in questions:
            messages.append({"role": "user", "content": question})
            answer = model.chat(messages, temperature=0)
            messages.append({"role": "assistant", "content": answer})
    return [
        (q["content"], a["content"]) for q, a in zip(messages[::2], messages[1::2], strict=True)
    ]
