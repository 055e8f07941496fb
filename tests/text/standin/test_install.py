"""halfbyte in the place of `tokenizers`: packages import it unchanged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tokenizers as judge
import tokenizers.trainers
from tests.text.standin.judge import outcome

import halfbyte
from halfbyte.errors import UnsupportedError
from halfbyte.text import standin

HIDE = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "tokenizers":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hide())
import halfbyte
assert halfbyte.install_as_tokenizers() is halfbyte.install_as_tokenizers()
"""
IMPORTS = """
import importlib.metadata, importlib.util, json
import tokenizers
from tokenizers import AddedToken, Encoding, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import NormalizedString, PreTokenizedString, pre_tokenizers, processors
from tokenizers.decoders import DecodeStream, Decoder
from tokenizers.implementations import BaseTokenizer, ByteLevelBPETokenizer
from tokenizers.models import BPE, Unigram, WordLevel, WordPiece
from tokenizers.pre_tokenizers import BertPreTokenizer, PreTokenizer
from tokenizers.tools import EncodingVisualizer
from tokenizers.trainers import BpeTrainer, UnigramTrainer, WordLevelTrainer, WordPieceTrainer
try:
    EncodingVisualizer()
except Exception as error:
    refused = str(error)
print(json.dumps([
    tokenizers.__version__, importlib.metadata.version("tokenizers"),
    importlib.util.find_spec("tokenizers").origin, refused,
]))
"""


def python(code: str) -> Any:
    """The last line that a new process prints, which is JSON."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_imports() -> None:
    version, of_distribution, origin, refused = python(HIDE + IMPORTS)
    assert version == of_distribution == judge.__version__
    assert origin == "halfbyte"
    assert refused == "tokenizers.tools.EncodingVisualizer is not in halfbyte"


TYPES = {"List", "Tuple", "Union", "Enum"}


def test_all_names_are_there() -> None:
    modules = standin.PACKAGE.modules(standin.contents())
    for name in ("", ".models", ".normalizers", ".pre_tokenizers", ".processors", ".decoders",
                 ".trainers", ".implementations"):  # fmt: skip
        theirs, ours = sys.modules[f"tokenizers{name}"], modules[f"tokenizers{name}"]
        submodules = {n for n, value in vars(theirs).items() if isinstance(value, ModuleType)}
        names = {n for n in vars(theirs) if not n.startswith("_")} - TYPES - submodules
        assert names <= vars(ours).keys(), name
        for part in names:
            kind = getattr(theirs, part)
            # whole tokenizers pass the methods of `Tokenizer` on
            passes_on = part.endswith(("Tokenizer", "Trainer")) and part != "Tokenizer"
            if isinstance(kind, type) and not passes_on:
                members = {n for n in dir(kind) if not n.startswith("_")}
                own = getattr(ours, part)
                assert members <= {
                    *dir(own),
                    *(n for c in own.__mro__ for n in vars(c).get("__annotations__", ())),
                }, part


def test_the_real_package_is_only_replaced_by_force() -> None:
    with pytest.raises(UnsupportedError, match="force=True"):
        halfbyte.install_as_tokenizers()
    assert sys.modules["tokenizers"] is judge
    code = """
import json, tokenizers, halfbyte
halfbyte.install_as_tokenizers(force=True)
from tokenizers import Tokenizer
print(json.dumps(Tokenizer.__module__))
"""
    assert python(code) == "halfbyte.text.standin.tokenizer"


def test_graphs_are_not_imported() -> None:
    names = "[n for n in sys.modules if n.startswith('halfbyte.onnx')]"
    code = f"import json, sys; print(json.dumps({names}))"
    assert python(HIDE + "import tokenizers\n" + code) == []


def whole(module: Any, folder: Path, vocab: dict[str, int], merges: Any) -> Any:
    """Each kind of whole tokenizer."""
    kinds = module.implementations
    pieces = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3, "##b": 4}
    model = module.models.BPE(vocab, merges)
    files = [Path(path).name for path in model.save(str(folder))]
    (folder / "vocab.txt").write_text("".join(f"{p}\n" for p in pieces), encoding="utf-8")
    paths = str(folder / "vocab.json"), str(folder / "merges.txt")
    return files, [
        kinds.BertWordPieceTokenizer(pieces, lowercase=False),
        kinds.BertWordPieceTokenizer.from_file(str(folder / "vocab.txt")),
        kinds.ByteLevelBPETokenizer(vocab, merges, lowercase=True, unicode_normalizer="nfkc"),
        kinds.ByteLevelBPETokenizer.from_file(*paths, add_prefix_space=True, trim_offsets=True),
        kinds.CharBPETokenizer.from_file(*paths, lowercase=True, unk_token="<unk>"),  # noqa: S106
        kinds.SentencePieceBPETokenizer(vocab, merges),
    ]


def test_whole_tokenizers(tmp_path: Path) -> None:
    vocab = {"a": 0, "b": 1, "ab": 2, "<unk>": 3, "\u0120": 4, "</w>": 5, "b</w>": 6}
    results = []
    modules = standin.PACKAGE.modules(standin.contents())
    for name, module in (("theirs", judge), ("ours", modules["tokenizers"])):
        folder = tmp_path / name
        folder.mkdir()
        files, made = whole(module, folder, vocab, [("a", "b")])
        described = []
        for tokenizer in made:
            encoding = tokenizer.encode("ab a b")
            described.append((
                json.loads(tokenizer.to_str()), encoding.ids, encoding.offsets,
                tokenizer.decode(encoding.ids), tokenizer.get_vocab_size(),
                outcome(tokenizer.normalize, "A"),
                tokenizer.num_special_tokens_to_add(False),
            ))  # fmt: skip
        unigram = module.implementations.SentencePieceUnigramTokenizer([("a", -1.0), ("b", -3.5)])
        described.append(json.loads(unigram.to_str()))
        contents = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
        results.append((files, described, contents))
    assert results[0] == results[1]
