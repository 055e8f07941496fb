r"""The splits of byte-level BPE, which come before merging, by GGUF's names for them.

A split is a list of regular expressions in the syntax of tokenizer.json (`\p{L}` is a Unicode
category). Each one isolates its matches in the pieces left by the ones before. Sources: the
tokenizer.json files of the model families; the names are those of `tokenizer.ggml.pre`.
"""

from __future__ import annotations

from dataclasses import dataclass

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# In `tokenizers`, Digits is of Unicode 17, regular expressions are of Unicode 16.
_DIGIT = r"\p{N}\U00011de0-\U00011de9\U00016ff4-\U00016ff6"
DIGIT, DIGITS = f"[{_DIGIT}]", f"[{_DIGIT}]+"

_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_OTHERS = r" ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES
_LLAMA3 = _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + _OTHERS
_QWEN2 = _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + _OTHERS
_QWEN35 = (
    _CONTRACTION
    + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
    + _SPACES
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+", rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
_CASED_OTHERS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACES
_GPT4O = (
    rf"{_CASED[0]}{_CONTRACTION}?|{_CASED[1]}{_CONTRACTION}?|\p{{N}}{{1,3}}|{_CASED_OTHERS}"
)  # fmt: skip
_TEKKEN = rf"{_CASED[0]}|{_CASED[1]}|\p{{N}}|{_CASED_OTHERS}"
_CHINESE = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|"
).replace(r"\"", '"') + _SPACES
_SEED_CODER = (
    _CONTRACTION
    + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|"
    + _SPACES
)  # fmt: skip

_DEEPSEEK_LETTERS = (  # those that have cases
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293"
    "\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c"
    "\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5"
    "\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59"
    "\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc"
    "\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"
    "\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee"
    "\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"
    "\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f"
    "\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_DEEPSEEK_MARKS = "!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002"
_EASTERN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_DEEPSEEK_LLM = (
    r"[\r\n]", rf"\s?[{_DEEPSEEK_LETTERS}]+", rf"\s?[{_DEEPSEEK_MARKS}]+", r"\s+$", _EASTERN,
    r"\p{N}+",
)  # fmt: skip
_DEEPSEEK_CODER = r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _EASTERN, r"\p{N}"
_FALCON = r"[\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"
_BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_UFAKZEKA = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + _OTHERS
_MINICPM5 = _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+|" + _OTHERS
_CHAMELEON = (
    "<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", r"[\t\n]|    |  ", r"\p{N}",
    r"[\p{P}!-/:-@\[-`{-~]", GPT2,
)  # fmt: skip


@dataclass(frozen=True)
class Split:
    """One way to split.

    Attributes
    ----------
    patterns : tuple of str
        Applied in order.
    composed : bool
        The text is normalized to NFC first.
    ignore_merges : bool
        A piece that is a token becomes that token, regardless of merges.
    add_bos : bool
        BOS goes before a text unless the file says otherwise.
    """

    patterns: tuple[str, ...]
    composed: bool = False
    ignore_merges: bool = False
    add_bos: bool = False


_FAMILIES: dict[str, Split] = {
    "gpt-2 phi-2 mpt olmo jais trillion granite-docling gigachat exaone4 a.x-4.0 mellum jina-es"
    " jina-de jina-v2-es jina-v2-de": Split((GPT2,)),
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano": Split(
        (_LLAMA3,), ignore_merges=True, add_bos=True
    ),
    "dbrx smaug-bpe glm4 chatglm-bpe": Split((_LLAMA3,)),
    "qwen2 kormo f2llmv2": Split((_QWEN2,), composed=True),
    "deepseek-r1-qwen stablelm2 megrez hunyuan solar-open grok-2": Split((_QWEN2,)),
    "qwen35": Split((_QWEN35,)),
    "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2": Split((DIGIT, GPT2)),
    "gpt-4o llama4 kanana2 talkie minimax-m2": Split((_GPT4O,)),
    "tekken": Split((_TEKKEN,), ignore_merges=True, add_bos=True),
    "deepseek-v3 hunyuan-dense joyai-llm hy_v4": Split((r"\p{N}{1,3}", _CHINESE, _DEEPSEEK3)),
    "seed-coder": Split((_SEED_CODER,)),
    "deepseek-llm": Split(_DEEPSEEK_LLM),
    "deepseek-coder": Split(_DEEPSEEK_CODER),
    "falcon": Split(_FALCON),
    "gpt-neox modern-bert": Split((GPT2,), composed=True),
    "bloom poro-chat gpt3-finnish": Split((_BLOOM,)),
    "viking": Split((_BLOOM, r"\p{N}")),
    "ufakzeka": Split((_UFAKZEKA,)),
    "minicpm5": Split((r"\p{N}{1,3}", _MINICPM5), ignore_merges=True),
    "chameleon": Split(_CHAMELEON, add_bos=True),
}
SPLITS = {name: split for names, split in _FAMILIES.items() for name in names.split()}

_CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
_OTHER_KNOWN = (
    _CLIP, r"<\|startoftext\|>|<\|endoftext\|>|" + _CLIP,
    # of normalizers that `transformers` makes
    r"\s{2,}|[\n\r\t]", r"\A +| +\z", "\\A\u2581", "^\u2581+$", " +\u2581",
)  # fmt: skip
# Regular expressions whose time is proportional to a text's length.
KNOWN = frozenset(_OTHER_KNOWN).union(*(split.patterns for split in SPLITS.values()))


def find_name(patterns: tuple[str, ...], composed: bool, ignore_merges: bool) -> str | None:
    """GGUF's name for a split, or None if it has none."""
    written = tuple(p.replace("\r", r"\r").replace("\n", r"\n") for p in patterns)
    wanted = Split(written, composed, ignore_merges)
    for name, split in SPLITS.items():
        if Split(split.patterns, split.composed, split.ignore_merges) == wanted:
            return name
    return None
