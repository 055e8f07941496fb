"""tokenizer.json files of each family, written by PyPI's `tokenizers`, the judge of the tests."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sentencepiece
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from halfbyte.formats.pretokenizers import DIGIT, GPT2, Split
from halfbyte.text.tokenizers import load_tokenizer
from halfbyte.text.tokenizers.base import BaseTokenizer

MARK = "▁"
SPECIAL = ("<|begin|>", "<|end|>")
OTHERS = (
    "äöü ß é hello привет мир 你好世界 日本語 👍🙂 <s> a  b   c 123 45 6789 I'm we'll 'S ﬁ \uff21"
    "\r\n\r\n "
)


def lines(repository: Path) -> list[str]:
    """Text to train with: the held-out stories and some other scripts."""
    text = (repository / "tests/data/storyteller-heldout.txt").read_text(encoding="utf-8")
    return [*text.split("\n\n"), *[OTHERS] * 3]


def ours(judge: Tokenizer, folder: Path) -> BaseTokenizer:
    """The same tokenizer, from the judge's file."""
    path = folder / "tokenizer.json"
    judge.save(str(path))
    tokenizer = load_tokenizer(path)
    assert isinstance(tokenizer, BaseTokenizer)
    return tokenizer


def differences(judge: Tokenizer, tokenizer: BaseTokenizer, texts: Sequence[str]) -> list[str]:
    """Texts whose ids are not the judge's; the first 1000 are also tried with special tokens."""
    cases = [
        (text, special)
        for special, count in ((False, None), (True, 1000))
        for text in texts[:count]
    ]
    encodings = judge.encode_batch(texts, add_special_tokens=False)
    encodings += judge.encode_batch(texts[:1000], add_special_tokens=True)
    return [
        text
        for (text, special), expected in zip(cases, encodings, strict=True)
        if expected.ids != tokenizer.encode(text, special)
    ]


def byte_level(split: Split, text: Sequence[str], **options: Any) -> Tokenizer:
    """Trained byte-level BPE with this split."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=split.ignore_merges))
    last = split.patterns[-1] == GPT2
    steps: list[Any] = [
        pre_tokenizers.Digits(individual_digits=True)
        if pattern == DIGIT
        else pre_tokenizers.Split(Regex(pattern), "isolated")
        for pattern in (split.patterns[:-1] if last else split.patterns)
    ]
    options = {"add_prefix_space": False, "use_regex": last} | options
    steps.append(pre_tokenizers.ByteLevel(**options))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    if split.composed:
        tokenizer.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=list(SPECIAL), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(text, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin|> $A", special_tokens=[("<|begin|>", 0)]
    )
    return tokenizer


def word_piece(vocab: dict[str, int], **options: Any) -> Tokenizer:
    """WordPiece with this vocabulary."""
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))  # noqa: S106
    tokenizer.normalizer = normalizers.BertNormalizer(**options)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(name, vocab[name]) for name in ("[CLS]", "[SEP]")],
    )
    tokenizer.add_special_tokens(["[UNK]", "[CLS]", "[SEP]"])
    return tokenizer


def train_sentencepiece(repository: Path, **options: Any) -> bytes:
    """A SentencePiece model."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines(repository) * 2), model_writer=model, vocab_size=700,
        character_coverage=0.999, minloglevel=2, hard_vocab_limit=False, **options,
    )  # fmt: skip
    return model.getvalue()


def unigram(judge: sentencepiece.SentencePieceProcessor) -> Tokenizer:
    """A SentencePiece vocabulary in the form of tokenizer.json."""
    count = judge.get_piece_size()
    vocab = [(judge.id_to_piece(i), judge.get_score(i)) for i in range(count)]
    fallback = any(judge.is_byte(i) for i in range(count))
    tokenizer = Tokenizer(models.Unigram(vocab, judge.unk_id(), fallback))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(MARK, "always")]
    )
    return tokenizer


def sentencepiece_bpe(pieces: Sequence[str], scores: Sequence[float]) -> Tokenizer:
    """A SentencePiece vocabulary in the form of tokenizer.json: all merges, the best first."""
    ids = {piece: index for index, piece in enumerate(pieces)}
    merges = [
        (-scores[index], piece[:at], piece[at:])
        for piece, index in ids.items()
        for at in range(1, len(piece))
        if piece[:at] in ids and piece[at:] in ids
    ]
    model = models.BPE(
        ids, [(left, right) for _, left, right in sorted(merges)], byte_fallback=True,
        unk_token="<unk>", fuse_unk=True,  # noqa: S106
    )  # fmt: skip
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer
