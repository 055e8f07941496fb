"""Transformers for text, and models of their kind."""

from __future__ import annotations

import torch
import transformers
from tools.onnx_exports.registry import Inputs, model, part, tokens
from torch import nn

Made = tuple[nn.Module, Inputs]
WORDS = 1000
SMALL = {
    "vocab_size": WORDS, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
    "intermediate_size": 1024,
}  # fmt: skip


def padded(rows: int = 1, length: int = 64) -> Inputs:
    """Token ids with a mask that leaves out the last eighth."""
    mask = torch.ones(rows, length, dtype=torch.int64)
    mask[:, length - length // 8 :] = 0
    return {"input_ids": tokens(WORDS, length, rows), "attention_mask": mask}


@model("bert", script=True)
def bert() -> Made:
    """Four layers."""
    net = transformers.BertModel(transformers.BertConfig(**SMALL, attn_implementation="eager"))
    return part(net, padded(), "last_hidden_state")


@model("bert-sdpa")
def bert_sdpa() -> Made:
    """The same by torch's attention."""
    return part(transformers.BertModel(transformers.BertConfig(**SMALL)), padded(), "pooler_output")


@model("roberta")
def roberta() -> Made:
    """Positions follow from padding: a CumSum."""
    net = transformers.RobertaModel(transformers.RobertaConfig(**SMALL))
    return part(net, padded(), "last_hidden_state")


@model("albert")
def albert() -> Made:
    """One layer's weights for all."""
    net = transformers.AlbertModel(transformers.AlbertConfig(**SMALL, embedding_size=128))
    return part(net, padded(), "last_hidden_state")


@model("deberta")
def deberta() -> Made:
    """DeBERTa-v2: disentangled attention."""
    config = transformers.DebertaV2Config(
        **SMALL, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=64,
        max_position_embeddings=128, norm_rel_ebd="layer_norm", share_att_key=True,
    )  # fmt: skip
    return part(transformers.DebertaV2Model(config), padded(), "last_hidden_state")


@model("mpnet")
def mpnet() -> Made:
    """Relative positions in buckets."""
    net = transformers.MPNetModel(transformers.MPNetConfig(**SMALL))
    return part(net, padded(), "last_hidden_state")


@model("modernbert")
def modernbert() -> Made:
    """Rotated positions, gated layers, local attention."""
    config = transformers.ModernBertConfig(
        **SMALL, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2
    )
    return part(transformers.ModernBertModel(config), padded(), "last_hidden_state")


def _t5() -> transformers.T5ForConditionalGeneration:
    config = transformers.T5Config(
        vocab_size=WORDS, d_model=256, d_ff=1024, d_kv=64, num_layers=3, num_heads=4,
        decoder_start_token_id=0,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config)


@model("t5-encoder")
def t5_encoder() -> Made:
    """Three layers."""
    return part(_t5().encoder, padded(), "last_hidden_state")


class Decoder(nn.Module):
    """A decoder of an encoder's states."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, ids: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Its last hidden state."""
        return self.net(
            input_ids=ids, encoder_hidden_states=states, use_cache=False
        ).last_hidden_state


@model("t5-decoder")
def t5_decoder() -> Made:
    """The decoder with cross-attention."""
    return Decoder(_t5().decoder), {"ids": tokens(WORDS, 32), "states": torch.randn(1, 64, 256)}


@model("gpt2", script=False)
def gpt2() -> Made:
    """Four layers, without a cache."""
    config = transformers.GPT2Config(vocab_size=WORDS, n_embd=256, n_layer=4, n_head=4)
    net = transformers.GPT2LMHeadModel(config)
    return part(net, {"input_ids": tokens(WORDS)}, "logits", use_cache=False)


@model("llama")
def llama() -> Made:
    """Grouped queries, rotated positions, SwiGLU."""
    config = transformers.LlamaConfig(**SMALL, num_key_value_heads=2)
    net = transformers.LlamaForCausalLM(config)
    return part(net, {"input_ids": tokens(WORDS)}, "logits", use_cache=False)


@model("mamba")
def mamba() -> Made:
    """Two layers of a state space model, whose steps are unrolled."""
    config = transformers.MambaConfig(
        vocab_size=WORDS, hidden_size=128, num_hidden_layers=2, state_size=16
    )
    net = transformers.MambaModel(config)
    return part(net, {"input_ids": tokens(WORDS, 16)}, "last_hidden_state", use_cache=False)


@model("clip-text")
def clip_text() -> Made:
    """Four layers with a causal mask."""
    config = transformers.CLIPTextConfig(**SMALL, max_position_embeddings=77)
    net = transformers.CLIPTextModel(config)
    return part(net, {"input_ids": tokens(WORDS, 77)}, "last_hidden_state")
