"""Encoding and decoding text with each family of tokenizers.

The peer is the package tokenizers (Rust), with the same tokenizer.json; the storyteller's has none.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers
from benches.case import Bench
from benches.figures import Series
from benches.prepare import ROOT
from benches.turns import Contender
from benches.yardstick import clock_of
from tests.text.tokenizers import hugging_face

import halfbyte
from halfbyte.formats.pretokenizers import GPT2, Split

CHARACTERS = 10_000


def byte_level() -> tokenizers.Tokenizer:
    return hugging_face.byte_level(Split((GPT2,)), hugging_face.lines(ROOT))


def unigram() -> tokenizers.Tokenizer:
    model = hugging_face.train_sentencepiece(ROOT, model_type="unigram")
    return hugging_face.unigram(sentencepiece.SentencePieceProcessor(model_proto=model))


def word_piece() -> tokenizers.Tokenizer:
    words = sorted(set(" ".join(hugging_face.lines(ROOT)).lower().split()))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = sorted(set("".join(words)))
    pieces += [*letters, *(f"##{letter}" for letter in letters), *words]
    return hugging_face.word_piece({piece: i for i, piece in enumerate(dict.fromkeys(pieces))})


FAMILIES = {"byte-level BPE": byte_level, "unigram": unigram, "WordPiece": word_piece}


def measure(bench: Bench, name: str, ours: Any, peer: tokenizers.Tokenizer | None) -> None:
    """Both directions, each side in turn."""
    text = "\n\n".join(hugging_face.lines(ROOT))[:CHARACTERS]
    ids = ours.encode(text)
    calls: dict[str, dict[str, Callable[[], Any]]] = {
        "encode": {"halfbyte": lambda: ours.encode(text)},
        "decode": {"halfbyte": lambda: ours.decode(ids)},
    }
    if peer:
        calls["encode"]["tokenizers"] = lambda: peer.encode(text, add_special_tokens=False)
        calls["decode"]["tokenizers"] = lambda: peer.decode(ids)
        bench.figures.versions["tokenizers"] = f"tokenizers {version('tokenizers')}"
    for test, sides in calls.items():
        more = {"bytes": len(text.encode())}
        each = [
            Contender(Series(name, engine, test, more=dict(more)), call, clock=clock_of(1))
            for engine, call in sides.items()
        ]
        bench.measure(each, "clock")


@pytest.mark.parametrize("name", FAMILIES)
def bench_family(bench: Bench, name: str, tmp_path: Path) -> None:
    peer = FAMILIES[name]()
    measure(bench, name, hugging_face.ours(peer, tmp_path), peer)


@pytest.mark.short
def bench_storyteller(bench: Bench) -> None:
    with halfbyte.load(ROOT / "runtime/halfbyte/data/storyteller.bin") as model:
        measure(bench, "storyteller", model.tokenizer, None)
