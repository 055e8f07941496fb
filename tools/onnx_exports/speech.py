"""Networks for sound."""

from __future__ import annotations

import torch
import transformers
from tools.onnx_exports.registry import Inputs, model, part, tokens
from tools.onnx_exports.text import Decoder
from torch import nn

Made = tuple[nn.Module, Inputs]
SMALL = {"hidden_size": 192, "num_attention_heads": 4, "intermediate_size": 768}


def _whisper() -> transformers.WhisperModel:
    config = transformers.WhisperConfig(
        vocab_size=1000, d_model=192, encoder_layers=3, decoder_layers=3,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=768,
        decoder_ffn_dim=768, max_source_positions=300, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    return transformers.WhisperModel(config)


@model("whisper-encoder")
def whisper_encoder() -> Made:
    """Six seconds of sound."""
    features = torch.randn(1, 80, 600)
    return part(_whisper().encoder, {"input_features": features}, "last_hidden_state")


@model("whisper-decoder")
def whisper_decoder() -> Made:
    """Sixteen tokens beside six seconds."""
    return Decoder(_whisper().decoder), {
        "ids": tokens(1000, 16), "states": torch.randn(1, 300, 192)
    }  # fmt: skip


WAV2VEC2 = {
    **SMALL, "num_hidden_layers": 4, "conv_dim": (128,) * 7, "num_conv_pos_embeddings": 64,
    "num_conv_pos_embedding_groups": 16, "vocab_size": 32,
}  # fmt: skip


@model("wav2vec2", script=True)
def wav2vec2() -> Made:
    """A second: convolutions over samples with a group norm, and grouped positions."""
    config = transformers.Wav2Vec2Config(**WAV2VEC2, attn_implementation="eager")
    return part(
        transformers.Wav2Vec2ForCTC(config), {"input_values": torch.randn(1, 16000)}, "logits"
    )


@model("hubert")
def hubert() -> Made:
    """Layer norms between the convolutions."""
    config = transformers.HubertConfig(
        **WAV2VEC2, feat_extract_norm="layer", do_stable_layer_norm=True, conv_bias=True
    )
    net = transformers.HubertModel(config)
    return part(net, {"input_values": torch.randn(1, 16000)}, "last_hidden_state")


@model("conformer")
def conformer() -> Made:
    """Relative positions and depthwise convolutions over time."""
    config = transformers.Wav2Vec2ConformerConfig(**WAV2VEC2)
    net = transformers.Wav2Vec2ConformerModel(config)
    return part(net, {"input_values": torch.randn(1, 16000)}, "last_hidden_state")


@model("vits", script=True)
def vits() -> Made:
    """Text to sound: flows, splines, a stochastic duration predictor and a vocoder."""
    config = transformers.VitsConfig(
        vocab_size=40, hidden_size=96, num_hidden_layers=2, ffn_dim=192, flow_size=96,
        spectrogram_bins=257, upsample_initial_channel=128, noise_scale=0.0,
        noise_scale_duration=0.0, wavenet_dropout=0.0,
    )  # fmt: skip
    return part(transformers.VitsModel(config), {"input_ids": tokens(40, 20)}, "waveform")


@model("hifigan")
def hifigan() -> Made:
    """A vocoder: transposed and dilated convolutions over time."""
    config = transformers.SpeechT5HifiGanConfig(
        upsample_initial_channel=128, normalize_before=False
    )
    return transformers.SpeechT5HifiGan(config), {"spectrogram": torch.randn(40, 80)}


class Codec(nn.Module):
    """EnCodec's encoder: convolutions over samples, and an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.EncodecConfig(num_filters=16, hidden_size=64)
        self.net = transformers.EncodecModel(config).encoder

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Embeddings of frames."""
        return self.net(x)


@model("encodec", script=True)
def encodec() -> Made:
    """Half a second."""
    return Codec(), {"x": torch.randn(1, 1, 12000)}


@model("moonshine-encoder")
def moonshine_encoder() -> Made:
    """A second of samples into rotated attention."""
    config = transformers.MoonshineConfig(
        vocab_size=1000, hidden_size=160, intermediate_size=640, encoder_num_hidden_layers=3,
        decoder_num_hidden_layers=1, encoder_num_attention_heads=4, decoder_num_attention_heads=4,
    )  # fmt: skip
    net = transformers.MoonshineModel(config).encoder
    return part(net, {"input_values": torch.randn(1, 16000)}, "last_hidden_state")
