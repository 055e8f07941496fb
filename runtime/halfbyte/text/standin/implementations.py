"""`tokenizers.implementations`: whole tokenizers of the usual kinds."""

from __future__ import annotations

from typing import Any

from halfbyte.errors import UnsupportedError
from halfbyte.text.standin import decoders, normalizers, pre_tokenizers, processors
from halfbyte.text.standin.components import WHERE, Regex
from halfbyte.text.standin.models import BPE, Unigram, WordPiece
from halfbyte.text.standin.normalizers import Normalizer, unicode_normalizer_from_str
from halfbyte.text.standin.tokenizer import Tokenizer

MARK = "\u2581"
_UNKNOWN, _UNK, _SEP, _CLS, _PAD, _MASK = "<unk>", "[UNK]", "[SEP]", "[CLS]", "[PAD]", "[MASK]"


class BaseTokenizer:
    """A tokenizer and the parameters it was made with; has all methods of `Tokenizer`."""

    def __init__(self, tokenizer: Tokenizer, parameters: dict[str, Any] | None = None) -> None:
        self._tokenizer = tokenizer
        self._parameters = parameters or {}

    def __repr__(self) -> str:
        shown = (f"{name}={value}" for name, value in self._parameters.items())
        size = self._tokenizer.get_vocab_size()
        return f"Tokenizer(vocabulary_size={size}, {', '.join(shown)})"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_tokenizer":
            raise AttributeError(name)
        return getattr(self._tokenizer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("normalizer", "pre_tokenizer", "post_processor", "decoder", "model"):
            setattr(self._tokenizer, name, value)
        else:
            super().__setattr__(name, value)

    def save_model(self, directory: str, prefix: str | None = None) -> list[str]:
        """Write the vocabulary's files into a folder, and return their paths."""
        return self._tokenizer.model.save(directory, prefix)

    def normalize(self, sequence: str) -> str:
        """The normalized text; raises AttributeError without a normalizer."""
        return self._tokenizer.normalizer.normalize_str(sequence)  # type: ignore[union-attr]

    def to_str(self, pretty: bool = False) -> str:
        """The content of a tokenizer.json."""
        return self._tokenizer.to_str(pretty)

    def train(self, *arguments: Any, **keywords: Any) -> None:
        """Refused."""
        raise UnsupportedError(f"{WHERE}: training is not in halfbyte")

    train_from_iterator = train


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments that are no vocabulary."""
    hidden = ("self", "vocab", "merges", "__class__")
    return {name: value for name, value in given.items() if name not in hidden}


def _normalize(tokenizer: Tokenizer, steps: list[Normalizer]) -> None:
    if steps:
        tokenizer.normalizer = steps[0] if len(steps) == 1 else normalizers.Sequence(steps)


def _add_known(tokenizer: Tokenizer, *tokens: str) -> None:
    for token in tokens:
        if tokenizer.token_to_id(token) is not None:
            tokenizer.add_special_tokens([token])


class BertWordPieceTokenizer(BaseTokenizer):
    """BERT's."""

    def __init__(
        self, vocab: dict[str, int] | None = None, unk_token: Any = _UNK,
        sep_token: Any = _SEP, cls_token: Any = _CLS, pad_token: Any = _PAD,
        mask_token: Any = _MASK,
        clean_text: bool = True, handle_chinese_chars: bool = True,
        strip_accents: bool | None = None, lowercase: bool = True, wordpieces_prefix: str = "##",
    ) -> None:  # fmt: skip
        parameters = {"model": "BertWordPiece"} | _options(locals())
        tokenizer = Tokenizer(WordPiece(vocab, unk_token=str(unk_token)))
        special = (unk_token, sep_token, cls_token, pad_token, mask_token)
        _add_known(tokenizer, *map(str, special))
        tokenizer.normalizer = normalizers.BertNormalizer(
            clean_text, handle_chinese_chars, strip_accents, lowercase
        )
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        if vocab is not None:
            pairs = []
            for name, token in (("sep_token", sep_token), ("cls_token", cls_token)):
                number = tokenizer.token_to_id(str(token))
                if number is None:
                    raise TypeError(f"{name} not found in the vocabulary")
                pairs.append((str(token), number))
            tokenizer.post_processor = processors.BertProcessing(*pairs)
        tokenizer.decoder = decoders.WordPiece(prefix=wordpieces_prefix)
        super().__init__(tokenizer, parameters)

    @staticmethod
    def from_file(vocab: str, **kwargs: Any) -> BertWordPieceTokenizer:
        """One with the vocabulary of a vocab.txt."""
        return BertWordPieceTokenizer(WordPiece.read_file(vocab), **kwargs)


class ByteLevelBPETokenizer(BaseTokenizer):
    """GPT-2's."""

    def __init__(
        self, vocab: Any = None, merges: Any = None, add_prefix_space: bool = False,
        lowercase: bool = False, dropout: float | None = None,
        unicode_normalizer: str | None = None, continuing_subword_prefix: str | None = None,
        end_of_word_suffix: str | None = None, trim_offsets: bool = False,
    ) -> None:  # fmt: skip
        parameters = {"model": "ByteLevelBPE"} | _options(locals())
        model = BPE() if vocab is None or merges is None else BPE(
            vocab, merges, dropout=dropout,
            continuing_subword_prefix=continuing_subword_prefix or "",
            end_of_word_suffix=end_of_word_suffix or "",
        )  # fmt: skip
        tokenizer = Tokenizer(model)
        steps = [unicode_normalizer_from_str(unicode_normalizer)] if unicode_normalizer else []
        _normalize(tokenizer, [*steps, *([normalizers.Lowercase()] if lowercase else [])])
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=trim_offsets)
        super().__init__(tokenizer, parameters)

    @staticmethod
    def from_file(
        vocab_filename: str, merges_filename: str, **kwargs: Any
    ) -> ByteLevelBPETokenizer:
        """One with the vocabulary of a vocab.json and a merges.txt."""
        return ByteLevelBPETokenizer(*BPE.read_file(vocab_filename, merges_filename), **kwargs)


class CharBPETokenizer(BaseTokenizer):
    """Byte-pair encoding of characters, as by Sennrich and in OpenAI's GPT."""

    def __init__(
        self, vocab: Any = None, merges: Any = None, unk_token: Any = _UNKNOWN,
        suffix: str = "</w>", dropout: float | None = None, lowercase: bool = False,
        unicode_normalizer: str | None = None, bert_normalizer: bool = True,
        split_on_whitespace_only: bool = False,
    ) -> None:  # fmt: skip
        parameters = {"model": "BPE"} | _options(locals())
        options = {"dropout": dropout, "unk_token": str(unk_token), "end_of_word_suffix": suffix}
        given = () if vocab is None or merges is None else (vocab, merges)
        tokenizer = Tokenizer(BPE(*given, **options))
        _add_known(tokenizer, str(unk_token))
        steps = [unicode_normalizer_from_str(unicode_normalizer)] if unicode_normalizer else []
        steps += [normalizers.BertNormalizer(lowercase=False)] if bert_normalizer else []
        _normalize(tokenizer, [*steps, *([normalizers.Lowercase()] if lowercase else [])])
        tokenizer.pre_tokenizer = (
            pre_tokenizers.WhitespaceSplit()
            if split_on_whitespace_only
            else pre_tokenizers.BertPreTokenizer()
        )
        tokenizer.decoder = decoders.BPEDecoder(suffix=suffix)
        super().__init__(tokenizer, parameters)

    @staticmethod
    def from_file(vocab_filename: str, merges_filename: str, **kwargs: Any) -> CharBPETokenizer:
        """One with the vocabulary of a vocab.json and a merges.txt."""
        return CharBPETokenizer(*BPE.read_file(vocab_filename, merges_filename), **kwargs)


class SentencePieceBPETokenizer(BaseTokenizer):
    """Byte-pair encoding of words with marked spaces."""

    def __init__(
        self, vocab: Any = None, merges: Any = None, unk_token: Any = _UNKNOWN,
        replacement: str = MARK, add_prefix_space: bool = True, dropout: float | None = None,
        fuse_unk: bool | None = False,
    ) -> None:  # fmt: skip
        options = {"dropout": dropout, "unk_token": str(unk_token), "fuse_unk": bool(fuse_unk)}
        given = () if vocab is None or merges is None else (vocab, merges)
        tokenizer = Tokenizer(BPE(*given, **options))
        _add_known(tokenizer, str(unk_token))
        tokenizer.normalizer = normalizers.NFKC()
        _metaspace(tokenizer, replacement, add_prefix_space)
        super().__init__(tokenizer, {
            "model": "SentencePieceBPE", "unk_token": unk_token, "replacement": replacement,
            "add_prefix_space": add_prefix_space, "dropout": dropout,
        })  # fmt: skip

    @staticmethod
    def from_file(
        vocab_filename: str, merges_filename: str, **kwargs: Any
    ) -> SentencePieceBPETokenizer:
        """One with the vocabulary of a vocab.json and a merges.txt."""
        return SentencePieceBPETokenizer(*BPE.read_file(vocab_filename, merges_filename), **kwargs)


class SentencePieceUnigramTokenizer(BaseTokenizer):
    """SentencePiece's unigram model."""

    def __init__(
        self, vocab: Any = None, replacement: str = MARK, add_prefix_space: bool = True
    ) -> None:
        tokenizer = Tokenizer(Unigram(vocab))
        steps = [normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
        tokenizer.normalizer = normalizers.Sequence(steps)
        _metaspace(tokenizer, replacement, add_prefix_space)
        super().__init__(tokenizer, {
            "model": "SentencePieceUnigram", "replacement": replacement,
            "add_prefix_space": add_prefix_space,
        })  # fmt: skip

    @staticmethod
    def from_spm(filename: str) -> SentencePieceUnigramTokenizer:
        """Refused: `halfbyte.load_tokenizer` reads such a file."""
        raise UnsupportedError(
            f"{filename}: from_spm is not in halfbyte: halfbyte.load_tokenizer reads a "
            "tokenizer.model"
        )


def _metaspace(tokenizer: Tokenizer, mark: str, prefix: bool) -> None:
    scheme = "always" if prefix else "never"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(mark, scheme)
    tokenizer.decoder = decoders.Metaspace(mark, scheme)
