"""SentencePiece's unigram model: the tokenizer that GGUF calls "t5".

Of all sequences of tokens that spell a word, the Viterbi algorithm finds the one with the highest
sum of scores. Sums are in float64, as in llama.cpp and `tokenizers`; for a tokenizer.model they are
in float32 from the beginning of the text, as in SentencePiece. A character without a token scores
ten less than the worst token; it becomes byte tokens if there are any, otherwise unknown.
User-defined tokens score 0, more than others, so that they are nearly always taken.
"""

from __future__ import annotations

from halfbyte.formats.model_file import ModelFile
from halfbyte.formats.tokens import NARROW, NORMAL
from halfbyte.text.tokenizers.base import Piece
from halfbyte.text.tokenizers.sentencepiece import SentencePieceBase
from halfbyte.text.tokenizers.viterbi import Viterbi


class UnigramTokenizer(SentencePieceBase):
    """See the module."""

    kind = "t5"
    add_eos = True

    def __init__(self, file: ModelFile) -> None:
        super().__init__(file)
        scores = self.vocabulary.scores.tolist()
        normal = self.vocabulary.of_type(NORMAL)
        tokens = {token: (i, scores[i]) for token, i in normal.items()}
        worst = min((score for _, score in tokens.values()), default=0.0)
        self._narrow = self.vocabulary.file.metadata.get(NARROW) is True
        for token, i in self._user_ids.items():
            tokens[token] = i, 0.0
        self._viterbi = Viterbi(tokens, worst, self._narrow)

    def _words(self, text: str) -> list[str]:
        if self._narrow:  # a sum depends on everything before it
            return [text] if text else []
        return self._plain_words(text)

    def _pieces(self, word: str) -> list[Piece]:
        pieces: list[Piece] = []
        for token, start, end in self._viterbi(word):
            if token is None:
                pieces += self._unknown_piece(word[start:end], start)
            else:
                pieces.append((token, start, end))
        return pieces
