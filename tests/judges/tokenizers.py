"""Compares real tokenizers with their originals: `make tokenizers`.

`tokenizer_files.toml` lists files in packages of PyPI and npm. Each is fetched once into
build/tokenizers, and tokenizes texts of many kinds here and by its original: a tokenizer.json by
PyPI's `tokenizers`, a tokenizer.model by `sentencepiece`, tekken.json by `tiktoken`, GGUF by
llama.cpp, whose ids are in files beside it (*.inp and *.out). Differences are counted, and refused
files are listed with the reason.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import sentencepiece
import tiktoken
from tests.text.standin.judge import PARTS
from tests.text.tokenizers.texts import texts
from tokenizers import Tokenizer

from halfbyte.errors import HalfbyteError
from halfbyte.text.standin.tokenizer import Tokenizer as StandIn
from halfbyte.text.tokenizers import load_tokenizer
from halfbyte.text.tokenizers.base import BaseTokenizer

REPOSITORY = Path(__file__).parents[2]
CACHE = REPOSITORY / "build/tokenizers"
LIST = Path(__file__).with_name("tokenizer_files.toml")


@dataclass(frozen=True)
class File:
    """A file in a package."""

    registry: str
    package: str
    version: str
    path: str
    sha256: str

    @property
    def name(self) -> str:
        """The name in the table and in the cache."""
        return f"{self.package}/{Path(self.path).name}".replace("@", "").replace("/", "--")

    @property
    def kind(self) -> str:
        """The kind of original."""
        name = Path(self.path).name
        if "tekken" in name:
            return "tekken"
        return next((kind for kind in ("gguf", "json") if name.endswith("." + kind)), "model")


def fetch(file: File) -> Path:
    """The file in the cache; raises `ValueError` if its hash is not the listed one."""
    target = CACHE / file.name
    if not target.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        content = member(archive(file), file.path)
        if hashlib.sha256(content).hexdigest() != file.sha256:
            raise ValueError(f"{file.name}: is another file than the one listed")
        target.write_bytes(content)
        for suffix in (".inp", ".out") if file.kind == "gguf" else ():
            with suppress(KeyError):  # refused files have none
                content = member(archive(file), file.path + suffix)
                target.with_name(target.name + suffix).write_bytes(content)
    return target


def archive(file: File) -> Path:
    """The package, fetched by its registry's own client."""
    folder = CACHE / "packages" / f"{file.package}-{file.version}".replace("/", "--")
    if not folder.exists() or not any(folder.iterdir()):
        folder.mkdir(parents=True, exist_ok=True)
        requirement = f"{file.package}@{file.version}"
        command = ["npm", "pack", "--silent", requirement]
        if file.registry == "pypi":
            requirement = f"{file.package}=={file.version}"
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            if file.package == "llama-cpp-python":  # the wheels have no vocabularies
                command += ["--no-binary", ":all:", "--no-build-isolation"]
            command.append(requirement)
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return next(folder.iterdir())


def member(path: Path, name: str) -> bytes:
    """A file in a wheel or a tarball."""
    if path.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(path) as package:
            return package.read(name)
    with tarfile.open(path) as tar:
        extracted = tar.extractfile(name)
        assert extracted is not None
        return extracted.read()


Judge = tuple[Callable[[str, bool], list[int]], Callable[[list[int]], str | None], list[str]]


def hugging_face(path: Path) -> Judge:
    """PyPI's `tokenizers`: ids, with special tokens parsed or not, and text."""
    judge = Tokenizer.from_file(str(path))
    judge.no_truncation()
    judge.no_padding()

    def encode(text: str, parse_special: bool) -> list[int]:
        judge.encode_special_tokens = not parse_special
        return list(judge.encode(text).ids)

    special = [token.content for token in judge.get_added_tokens_decoder().values()]
    return encode, lambda ids: str(judge.decode(ids)), special


def sentence_piece(path: Path) -> Judge:
    """Google's `sentencepiece`, with the special tokens that ours puts around a text."""
    judge = sentencepiece.SentencePieceProcessor(model_file=str(path))
    ours = load_tokenizer(path)
    assert isinstance(ours, BaseTokenizer)
    before, after = ours.before, ours.after
    unknown = judge.unk_id()  # is decoded as a mark there, and as nothing here and in `tokenizers`

    def decode(ids: list[int]) -> str | None:
        return None if unknown in ids else str(judge.decode(ids))

    return lambda text, _: [*before, *judge.encode(text), *after], decode, []


def differences(path: Path, judge: Judge, count: int) -> tuple[list[str], list[str]]:
    """Texts with other ids, and texts whose ids are decoded differently."""
    ours = load_tokenizer(path)
    encode, decode, special = judge
    other_ids, other_texts = [], []
    for index, text in enumerate(texts(count, special[:40])):
        parse = index % 2 == 0 and bool(special)
        expected = encode(text, parse)
        ids = ours.encode(text, parse_special=parse)
        if ids != expected:
            other_ids.append(text)
        elif (decoded := decode(expected)) is not None and ours.decode(ids) != decoded:
            other_texts.append(text)
    return other_ids, other_texts


def tiktoken_ranks(path: Path) -> Judge:
    """OpenAI's `tiktoken`, which Mistral uses for tekken.json, with BOS before a text."""
    data = json.loads(path.read_text(encoding="utf-8"))
    config = data["config"]
    control = config["default_num_special_tokens"]
    ranks = {
        base64.b64decode(entry["token_bytes"]): entry["rank"]
        for entry in data["vocab"][: config["default_vocab_size"] - control]
    }
    judge = tiktoken.Encoding(
        "tekken", pat_str=config["pattern"], mergeable_ranks=ranks, special_tokens={}
    )

    def decode(ids: list[int]) -> str:
        return judge.decode([i - control for i in ids if i >= control])

    return lambda text, _: [1, *(i + control for i in judge.encode(text))], decode, []


def llama_cpp(path: Path) -> tuple[int, str]:
    """The number of texts in a GGUF file's *.inp, and the first with other ids in *.out."""
    ours = load_tokenizer(path)
    questions = path.with_name(path.name + ".inp").read_bytes().decode()
    answers = path.with_name(path.name + ".out").read_text(encoding="utf-8").split("\n")
    cases = list(zip(questions.split("\n__ggml_vocab_test__\n"), answers, strict=False))
    other = [
        text for text, ids in cases if ours.encode(text, False) != [int(i) for i in ids.split()]
    ]
    return len(cases), f"{len(other)} ids, 0 texts |" + "".join(f" {t[:60]!a}" for t in other[:1])


JUDGES: dict[str, Callable[[Path], Judge]] = {
    "json": hugging_face,
    "model": sentence_piece,
    "tekken": tiktoken_ranks,
}


def compare(path: Path, kind: str, count: int) -> str:
    """A row of the table."""
    try:
        if kind == "gguf":
            number, row = llama_cpp(path)
            return f"{number} | {row}"
        ids, decoded = differences(path, JUDGES[kind](path), count)
    except HalfbyteError as error:
        return f"{count} | refused | {str(error).removeprefix(str(path) + ': ')}"
    other = stand_in_differences(path, count) if kind == "json" else []
    shown = "".join(f" {text[:60]!a}" for text in [*ids, *decoded, *other][:1])
    row = f"{count} | {len(ids)} ids, {len(decoded)} texts"
    return f"{row}{f', {len(other)} encodings' if other else ''} |{shown}"


def stand_in_differences(path: Path, count: int) -> list[str]:
    """Texts whose encodings by the stand-in differ in ids, spans, words, masks or decoded text."""
    theirs, ours = Tokenizer.from_file(str(path)), StandIn.from_file(str(path))
    different = []
    for text in texts(count):
        try:
            expected = theirs.encode(text)
        except Exception:  # noqa: S112 - without an unknown token some texts have no ids
            continue
        actual = ours.encode(text)
        same = all(getattr(actual, part) == getattr(expected, part) for part in PARTS)
        if not same or ours.decode(expected.ids) != theirs.decode(expected.ids):
            different.append(text)
    return different


def listed() -> Iterator[File]:
    """The files of the list."""
    with LIST.open("rb") as file:
        for entry in tomllib.load(file)["file"]:
            yield File(**entry)


def main() -> int:
    """Print the table; 1 if an accepted file has differences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="texts for each file")
    parser.add_argument("--only", default="", help="files whose name contains this")
    parser.add_argument("paths", nargs="*", type=Path, help="other files instead")
    options = parser.parse_args()
    rows = [(path.name, path, None) for path in options.paths] or [
        (file.name, None, file) for file in listed() if options.only in file.name
    ]
    outcomes = []
    for name, path, file in rows:
        path = fetch(file) if file else path
        kind = file.kind if file else File("", "", "", str(path), "").kind
        outcomes.append(compare(path, kind, options.count))
        print(f"| {name} | {kind} | {outcomes[-1]} |", flush=True)
    equal = sum(" 0 ids, 0 texts |" in outcome for outcome in outcomes)
    refused = sum(" refused |" in outcome for outcome in outcomes)
    print(f"{len(outcomes)} files: {equal} equal, {refused} refused", flush=True)
    return int(equal + refused < len(outcomes))


if __name__ == "__main__":
    sys.exit(main())
