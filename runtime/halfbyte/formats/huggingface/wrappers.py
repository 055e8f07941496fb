"""Language models inside of larger ones, beside models of images or sound: what runs is the text.

The text model has a `model_type` of its own in ``text_config``, whose tensors have the usual names.
Older folders leave out what is the default of that type in `transformers`.
"""

from __future__ import annotations

from collections.abc import Mapping

from halfbyte.formats.huggingface.config import Keys

WRAPPERS = (
    "aya_vision", "cohere2_vision", "deepseek_vl", "fast_vlm", "gemma3", "gemma3n", "gemma4",
    "gemma4_unified", "got_ocr2", "hyperclovax_vision_v2", "idefics2", "idefics3", "internvl",
    "lfm2_vl", "lfm3_vl", "lighton_ocr", "llava", "llava_next", "llava_next_video",
    "llava_onevision", "mistral3", "mllama", "ovis2", "perception_lm", "qwen2_5_vl", "qwen2_audio",
    "qwen2_vl", "qwen3_5", "qwen3_5_moe", "qwen3_vl", "qwen3_vl_moe", "smolvlm", "video_llava",
    "vipllava", "voxtral",
)  # fmt: skip

_DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "llama": {
        "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "vocab_size": 32000, "max_position_embeddings": 2048,
    },
    "mistral": {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
        "max_position_embeddings": 131072, "sliding_window": None,
    },
    "qwen2": {
        "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
        "num_attention_heads": 32, "vocab_size": 151936, "max_position_embeddings": 32768,
    },
    "gemma3_text": {
        "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
        "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262208,
        "max_position_embeddings": 131072,
    },
}  # fmt: skip


def text_model(keys: Keys) -> Keys:
    """The keys of the text model, which may be those of the whole.

    Raises
    ------
    FormatError
        What describes it is not an object, or does not say its type.
    """
    kind = keys.text("model_type")
    if kind not in WRAPPERS:
        return keys
    usual = f"{kind}_text"
    if keys.get("text_config") is None:  # Qwen 2 VL's folders have the text's keys outside
        return keys.replaced(model_type=usual)
    inner = keys.inner("text_config").otherwise(model_type=usual)
    inner = inner.otherwise(**_DEFAULTS.get(inner.text("model_type"), {}))
    tied = keys.get("tie_word_embeddings")
    return inner if tied is None else inner.replaced(tie_word_embeddings=tied)
