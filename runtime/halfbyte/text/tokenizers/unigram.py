"""SentencePiece's unigram model: the tokenizer that GGUF calls "t5".

Of all ways to make a word of tokens the one with the highest sum of scores is taken, found by the
algorithm of Viterbi. A character that is no token counts ten less than the worst token; it becomes
byte tokens where there are some, or else unknown. A user-defined token counts so much that it is
nearly always taken.
"""

from __future__ import annotations

from halfbyte.formats.model_file import ModelFile
from halfbyte.formats.tokens import NARROW, NORMAL
from halfbyte.text.tokenizers.base import Piece
from halfbyte.text.tokenizers.sentencepiece import SentencePieceBase
from halfbyte.text.tokenizers.viterbi import Viterbi


class UnigramTokenizer(SentencePieceBase):
    """See the module; made from metadata."""

    kind = "t5"
    add_eos = True

    def __init__(self, file: ModelFile) -> None:
        super().__init__(file)
        scores = self.vocabulary.scores
        normal = self.vocabulary.of_type(NORMAL)
        tokens = {token: (i, scores[i]) for token, i in normal.items()}
        worst = min((score for _, score in tokens.values()), default=0.0)
        self._narrow = self.vocabulary.file.metadata.get(NARROW) is True
        for token, i in self._user_ids.items():
            tokens[token] = i, 0.0
        self._viterbi = Viterbi(tokens, worst, self._narrow)

    def _words(self, text: str) -> list[str]:
        if self._narrow:  # a sum depends on all before it
            return [text] if text else []
        return self._plain_words(text)

    def _pieces(self, word: str) -> list[Piece]:
        found: list[Piece] = []
        for token, start, end in self._viterbi(word):
            if token is None:
                found += self._unknown_piece(word[start:end], start)
            else:
                found.append((token, start, end))
        return found
