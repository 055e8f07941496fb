"""Pipelines of tokenizer.json that GGUF has no exact name for, against PyPI's `tokenizers`."""

from __future__ import annotations

import base64
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import tiktoken
from tests.text.tokenizers import hugging_face
from tests.text.tokenizers.texts import texts
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from halfbyte.formats.huggingface.sentencepiece_model import read_sentencepiece
from halfbyte.formats.huggingface.tokenizer import tokenizer_metadata
from halfbyte.formats.pretokenizers import SPLITS
from halfbyte.formats.tokens import PIPELINE
from halfbyte.quantize.gguf_writer import write_gguf
from halfbyte.text.tokenizers import load_tokenizer
from halfbyte.text.tokenizers.pipeline import PipelineTokenizer

MARK = hugging_face.MARK
TEXTS = texts(1200)


def trained(tokenizer: Tokenizer, repository: Path, **options: object) -> Tokenizer:
    """The tokenizer with a trained vocabulary."""
    special = ["<unk>", "<s>", "</s>", *map(str, options.pop("special", ()))]  # type: ignore[call-overload]
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=special, show_progress=False, **options
    )
    tokenizer.train_from_iterator(hugging_face.lines(repository), trainer)
    return tokenizer


def claude(repository: Path) -> Tokenizer:
    """Byte-level BPE of composed text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return trained(tokenizer, repository, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def whisper(repository: Path) -> Tokenizer:
    """Two tokens before a text, and one after."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trained(tokenizer, repository, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> <unk> $A </s>", special_tokens=[("<unk>", 0), ("<s>", 1), ("</s>", 2)]
    )
    return tokenizer


def clip(repository: Path) -> Tokenizer:
    """Words end with a mark of their own."""
    tokenizer = Tokenizer(
        models.BPE(
            end_of_word_suffix="</w>",
            unk_token="<unk>",  # noqa: S106
            continuing_subword_prefix="",
        )
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    pattern = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.BPEDecoder("</w>")
    trained(
        tokenizer, repository, end_of_word_suffix="</w>",
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    return tokenizer


def falcon(repository: Path) -> Tokenizer:
    """Steps after the byte-level one see the characters that stand for bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Punctuation("contiguous"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
            pre_tokenizers.Digits(individual_digits=False),
            pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return trained(tokenizer, repository, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def few_bytes(repository: Path) -> Tokenizer:
    """Bytes without a token are dropped."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return trained(tokenizer, repository)


def few_bytes_unknown(repository: Path) -> Tokenizer:
    """The same with an unknown token."""
    tokenizer = few_bytes(repository)
    return with_model(tokenizer, unk_token="<unk>")  # noqa: S106


def with_model(tokenizer: Tokenizer, **changes: object) -> Tokenizer:
    """The same with other fields of the model."""
    data = json.loads(tokenizer.to_str())
    data["model"] |= changes
    return Tokenizer.from_str(json.dumps(data))


def characters(repository: Path) -> Tokenizer:
    """SentencePiece's BPE as in Llama 2's and Phi 3's files, with tokens that strip."""
    steps = [normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))  # noqa: S106
    tokenizer.normalizer = normalizers.Sequence(steps)
    trained(tokenizer, repository)
    tokenizer.add_special_tokens([AddedToken("</s>", rstrip=True, normalized=False)])
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )  # fmt: skip
    return tokenizer


def gemma(repository: Path) -> Tokenizer:
    """Runs of spaces up to a length are tokens, and bytes replace unknown characters."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))  # noqa: S106
    tokenizer.normalizer = normalizers.Replace(" ", MARK)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    trained(tokenizer, repository, special=names)
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = data["added_tokens"][:3]
    vocab, merges = data["model"]["vocab"], data["model"]["merges"]
    for count in range(2, 32):
        vocab.setdefault(MARK * count, len(vocab))
        merges.append([MARK * (count - 1), MARK])
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.add_tokens([AddedToken(MARK * n, normalized=False) for n in range(2, 32)])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


def prefixed(repository: Path) -> Tokenizer:
    """Pieces that continue a word are marked."""
    tokenizer = Tokenizer(
        models.BPE(unk_token="<unk>", continuing_subword_prefix="##")  # noqa: S106
    )
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    return trained(tokenizer, repository, continuing_subword_prefix="##")


def unigram(repository: Path) -> Tokenizer:
    """Like XLM-R's: SentencePiece's vocabulary, and its replacements of characters."""
    model = hugging_face.train_sentencepiece(repository, model_type="unigram")
    tokenizer = hugging_face.unigram(sentencepiece.SentencePieceProcessor(model_proto=model))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Precompiled(charsmap(model)), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(MARK, "always")
    tokenizer.decoder = decoders.Metaspace(MARK, "always")
    return tokenizer


def unigram_not_split(repository: Path) -> Tokenizer:
    """Whole texts, with a mark only before the first part."""
    tokenizer = unigram(repository)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(MARK, "first", split=False)
    return tokenizer


def albert(repository: Path) -> Tokenizer:
    """Quotes, accents and capitals are replaced before SentencePiece's own replacements."""
    tokenizer = unigram(repository)
    before = [
        normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(),
        normalizers.StripAccents(), normalizers.Lowercase(),
    ]  # fmt: skip
    tokenizer.normalizer = normalizers.Sequence([*before, tokenizer.normalizer])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), tokenizer.pre_tokenizer]
    )
    return tokenizer


def charsmap(model: bytes) -> bytes:
    """The replacements of characters in a SentencePiece model."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.model"
        path.write_bytes(model)
        data = read_sentencepiece(path)["tokenizer.ggml.precompiled_charsmap"]
    return np.asarray(data).tobytes()


def word_level(repository: Path) -> Tokenizer:
    """Whole words, split around punctuation; one added token is never part of a longer word."""
    text = " ".join(hugging_face.lines(repository))
    vocab = {word: i for i, word in enumerate(["<unk>", *sorted(set(text.lower().split()))])}
    tokenizer = Tokenizer(models.WordLevel(vocab, "<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Strip(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_next")]
    )
    tokenizer.add_special_tokens(["<unk>"])
    tokenizer.add_tokens([AddedToken("all", single_word=True), AddedToken("human", lstrip=True)])
    return tokenizer


def word_piece(repository: Path) -> Tokenizer:
    """WordPiece with steps other than BERT's."""
    words = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2}
    for text in hugging_face.lines(repository):
        for word in text.split():
            for piece in (word[:3], f"##{word[3:5]}", word[:1], f"##{word[1:2]}"):
                if piece != "##":
                    words.setdefault(piece, len(words))
    tokenizer = Tokenizer(models.WordPiece(words, unk_token="[UNK]"))  # noqa: S106
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(["[UNK]"])
    return tokenizer


PIPELINES: tuple[Callable[[Path], Tokenizer], ...] = (
    claude, whisper, clip, falcon, few_bytes, few_bytes_unknown, characters, gemma, prefixed,
    unigram, unigram_not_split, albert, word_level, word_piece,
)  # fmt: skip


@pytest.mark.parametrize("count", [400, pytest.param(1200, marks=pytest.mark.long)])
@pytest.mark.parametrize("make", PIPELINES, ids=lambda make: str(make.__name__))
def test_ids_texts_and_offsets(
    make: Callable[[Path], Tokenizer], count: int, repository: Path, tmp_path: Path
) -> None:
    judge = make(repository)
    ours = hugging_face.ours(judge, tmp_path)
    special = [token.content for token in judge.get_added_tokens_decoder().values()][:20]
    for index, text in enumerate(texts(count, special)):
        judge.encode_special_tokens = index % 2 == 1
        expected = judge.encode(text)
        ids, offsets = ours.encode_with_offsets(text, parse_special=index % 2 == 0)
        assert ids == expected.ids, repr(text)
        assert ids == ours.encode(text, parse_special=index % 2 == 0)
        assert all(0 <= start <= end <= len(text) for start, end in offsets)
        if ours.unknown not in ids:
            assert ours.decode(ids) == judge.decode(ids), repr(text)


def test_a_gguf_file_keeps_the_steps(repository: Path, tmp_path: Path) -> None:
    judge = clip(repository)
    ours = hugging_face.ours(judge, tmp_path)
    metadata = tokenizer_metadata(tmp_path / "tokenizer.json")
    assert PIPELINE in metadata
    write_gguf(tmp_path / "tokenizer.gguf", {"general.architecture": "llama", **metadata}, [])
    other = load_tokenizer(tmp_path / "tokenizer.gguf")
    assert isinstance(other, PipelineTokenizer)
    for text in TEXTS[:200]:
        assert other.encode(text) == ours.encode(text)


def test_pieces_with_spaces_in_merges(repository: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))  # noqa: S106
    judge = trained(tokenizer, repository)
    ours = hugging_face.ours(judge, tmp_path)
    assert any(" " in token[1:] for token in judge.get_vocab())
    for text in TEXTS[:500]:
        assert ours.encode(text) == judge.encode(text).ids, repr(text)


@pytest.mark.parametrize("listed", [True, False])
def test_tekken(listed: bool, repository: Path, tmp_path: Path) -> None:
    """Any two pieces whose union is a token are merged; ids of control tokens come first."""
    names = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
    ranks = {bytes([byte]): byte for byte in range(256)}
    for text in hugging_face.lines(repository):
        for size in (2, 3, 5):
            for at in range(0, len(text), 7):
                ranks.setdefault(text[at : at + size].encode()[:size], len(ranks))
    pattern = SPLITS["tekken"].patterns[0]
    entries = [
        {"rank": rank, "token_bytes": base64.b64encode(content).decode(), "token_str": None}
        for content, rank in ranks.items()
        if content
    ]
    config = {"pattern": pattern, "default_vocab_size": len(ranks) + 5}
    data = {"config": config | {"default_num_special_tokens": 5}, "vocab": entries}
    if listed:
        data["special_tokens"] = [{"rank": i, "token_str": name} for i, name in enumerate(names)]
    path = tmp_path / "tekken.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    ours = load_tokenizer(path)
    judge = tiktoken.Encoding("t", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    for text in TEXTS:
        expected = [i + 5 for i in judge.encode(text)]
        assert ours.encode(text) == [1, *expected], repr(text)
        assert ours.decode(expected) == text
    assert ours.encode("[INST]a", parse_special=True)[:2] == [1, 3]


@pytest.mark.parametrize("kind", ["unigram", "bpe", "word piece", "added"])
def test_many_tokens_that_begin_alike(kind: str, tmp_path: Path) -> None:
    """Trying each of 1,500 lengths at each of 20,000 places would take many seconds."""
    runs = ["a" * count for count in range(1, 1501)]
    if kind == "unigram":
        judge = Tokenizer(
            models.Unigram([("<unk>", 0.0), *((r, -1.0 - len(r) % 7) for r in runs)], 0)
        )
    elif kind == "bpe":
        vocab = {run: index for index, run in enumerate(runs)}
        judge = Tokenizer(models.BPE(vocab, [(run, "a") for run in runs[:-1]]))
    elif kind == "word piece":
        words = {"[UNK]": 0} | {f"##{run}": i for i, run in enumerate(runs, 1)}
        judge = Tokenizer(models.WordPiece(words, unk_token="[UNK]"))  # noqa: S106
    else:
        judge = Tokenizer(models.WordLevel({"<unk>": 0}, "<unk>"))
        judge.add_tokens([f"{run}b" for run in runs])
    ours = hugging_face.ours(judge, tmp_path)
    text = ("a" * 1400 + "c" if kind == "added" else "a" * 5000) * 15
    start = time.process_time()
    ours.encode(text[:20_000])
    assert time.process_time() - start < 7
    assert ours.encode(text[-3000:]) == judge.encode(text[-3000:]).ids


def test_a_text_of_a_megabyte(repository: Path, tmp_path: Path) -> None:
    """Quadratic time would be hours."""
    ours = hugging_face.ours(gemma(repository), tmp_path)
    text = "".join(np.random.default_rng(0).choice(list("ab \u4f60"), 200_000))
    start = time.process_time()
    assert ours.decode(ours.encode(text)) == text
    assert time.process_time() - start < 30
