r"""How byte-level BPE splits a text before it merges, under the names GGUF gives to the ways.

A way is a list of regular expressions in the syntax of tokenizer.json (`\p{L}` is a Unicode
category). Each one isolates its matches in the pieces that those before it left. Sources: the
tokenizer.json files of the model families; the names are those of `tokenizer.ggml.pre`.
"""

from __future__ import annotations

from dataclasses import dataclass

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DIGIT = r"\p{N}"
DIGITS = r"\p{N}+"

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


@dataclass(frozen=True)
class Split:
    """One way to split.

    Attributes
    ----------
    patterns : tuple of str
        Applied in turn.
    composed : bool
        The text is brought into Unicode's normal form C first.
    ignore_merges : bool
        A piece that is a token is that token, whatever the merges would make of it.
    add_bos : bool
        BOS goes before a text where the file does not say.
    """

    patterns: tuple[str, ...]
    composed: bool = False
    ignore_merges: bool = False
    add_bos: bool = False


_FAMILIES: dict[str, Split] = {
    "gpt-2 phi-2 mpt olmo jais trillion granite-docling gigachat exaone4 a.x-4.0 mellum": Split(
        (GPT2,)
    ),
    "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2": Split(
        (_LLAMA3,), ignore_merges=True, add_bos=True
    ),
    "dbrx smaug-bpe glm4 chatglm-bpe": Split((_LLAMA3,)),
    "qwen2": Split((_QWEN2,), composed=True),
    "deepseek-r1-qwen stablelm2 megrez hunyuan solar-open grok-2": Split((_QWEN2,)),
    "qwen35": Split((_QWEN35,), composed=True),
    "smollm starcoder refact command-r codeshell exaone minerva-7b": Split((DIGIT, GPT2)),
    "gpt-4o llama4": Split((_GPT4O,)),
    "tekken": Split((_TEKKEN,), ignore_merges=True, add_bos=True),
    "deepseek-v3 hunyuan-dense": Split((r"\p{N}{1,3}", _CHINESE, _DEEPSEEK3)),
    "seed-coder": Split((_SEED_CODER,)),
}
SPLITS = {name: split for names, split in _FAMILIES.items() for name in names.split()}


def find_name(patterns: tuple[str, ...], composed: bool, ignore_merges: bool) -> str | None:
    """GGUF's name for a way to split, or None where there is none."""
    written = tuple(p.replace("\r", r"\r").replace("\n", r"\n") for p in patterns)
    wanted = Split(written, composed, ignore_merges)
    for name, split in SPLITS.items():
        if Split(split.patterns, split.composed, split.ignore_merges) == wanted:
            return name
    return None
