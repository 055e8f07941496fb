"""Which files of a repository on the Hugging Face hub are a model that halfbyte reads."""

from __future__ import annotations

import re
from typing import NamedTuple

from halfbyte.download.response import DownloadError

# Files of a folder beside weights; a chat template may have its own file
_BESIDE = frozenset({
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer.model", "spiece.model",
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja", "chat_template.json", "rwkv_vocab_v20230424.txt",
})  # fmt: skip
_WEIGHTS = (  # the first kind that exists
    re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?"),
    re.compile(r"[^/]+\.safetensors"),
    re.compile(r"pytorch_model(-\d{5}-of-\d{5})?\.bin(\.index\.json)?"),
)
_TYPES = ("Q4_K_M", "Q4_0", "Q8_0")  # of several GGUF files without a tag, the preferred first
_PART = re.compile(r"-\d{5}-of-(\d{5})\.gguf$")
_NOT_TEXT = re.compile(r"(?:^|[/._-])(?:mmproj|imatrix)", re.IGNORECASE)
_SHOWN = 12  # names in a message

_ADDRESS = re.compile(r"(?:https?:/{1,2})?(?:www\.)?(?:hf\.co|huggingface\.co)/")
_FILE_PAGE = re.compile(r"/(?:blob|resolve)/(?P<revision>[^/]+)/(?P<file>.+)")


class Reference(NamedTuple):
    """A model on the hub.

    Attributes
    ----------
    repository : str
        ``org/name``.
    wanted : str
        A file in it, or a tag: the type of the weights in a GGUF file's name, such as Q4_K_M.
        Empty for the one that :func:`choose` prefers.
    revision : str or None
        A branch, tag or commit, if the address names one.
    """

    repository: str
    wanted: str = ""
    revision: str | None = None


class Choice(NamedTuple):
    """Files to fetch; of several GGUF files, the one to open comes first. Notes are for people."""

    files: list[str]
    notes: list[str]


def is_address(text: str) -> bool:
    """Whether a text names the hub: ``hf.co/org/name``, with ``https://`` or without."""
    return _ADDRESS.match(text) is not None


def parse(text: str) -> Reference:
    """``org/name``, ``org/name:TAG`` or ``org/name:FILE``, also after ``hf.co/``; or the address of
    a file's page.
    """
    plain = _ADDRESS.sub("", text, count=1)
    repository, _, wanted = plain.partition(":")
    org, _, rest = repository.partition("/")
    name, slash, page = rest.partition("/")
    if is_address(text) and slash:
        if match := _FILE_PAGE.fullmatch(f"/{page}"):
            return Reference(f"{org}/{name}", match["file"], match["revision"])
        if not page or page.startswith("tree/"):
            revision = page.removeprefix("tree/").rstrip("/")
            return Reference(f"{org}/{name}", wanted, revision or None)
    return Reference(repository, wanted)


def choose(reference: str, names: list[str], wanted: str = "") -> Choice:
    """The files of a repository to fetch.

    Without a file or tag that is a folder's weights in safetensors or PyTorch's format, if there
    are any, or else one GGUF file: as llama.cpp does, Q4_K_M before others.

    Parameters
    ----------
    reference : str
        The model as the user named it, for messages.
    names : list of str
        All files, sorted.
    wanted : str
        As in :class:`Reference`.

    Raises
    ------
    DownloadError
        The file or a file with this tag does not exist, or no model does.
    """
    if wanted in names:
        return Choice([wanted, *_other_parts(wanted, names)], [])
    models = [name for name in names if _opens(name)]
    if wanted:
        return _gguf(_tagged(reference, models, wanted), names)
    for kind in _WEIGHTS:
        weights = [name for name in names if kind.fullmatch(name)]
        if weights and "config.json" in names:
            return Choice([*weights, *(name for name in names if name in _BESIDE)], [])
    if not models:
        raise DownloadError(f"{reference}: holds no model that halfbyte reads: {_listed(names)}")
    preferred = (name for tag in _TYPES for name in models if _has_tag(name, tag))
    chosen = next(preferred, models[0])
    choice = _gguf(chosen, names)
    if len(models) > 1:
        others = [name for name in models if name != chosen]
        choice.notes.append(f"{chosen} of {reference}; others: {_listed(others)}")
    return choice


def _opens(name: str) -> bool:
    """Whether a name is one of a GGUF model, or of its first part."""
    if not name.endswith(".gguf") or _NOT_TEXT.search(name):
        return False
    part = _PART.search(name)
    return part is None or name.endswith(f"-00001-of-{part[1]}.gguf")


def _has_tag(name: str, tag: str) -> bool:
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(tag)}(?=[./-])", name, re.IGNORECASE) is not None


def _tagged(reference: str, models: list[str], tag: str) -> str:
    if tag.endswith(".gguf") or not models:
        raise DownloadError(f"{reference}: no such file in it: there is {_listed(models)}")
    tagged = [name for name in models if _has_tag(name, tag)]
    if not tagged:
        raise DownloadError(f"{reference}: no GGUF file of type {tag}: there is {_listed(models)}")
    return tagged[0]


def _gguf(name: str, names: list[str]) -> Choice:
    notes = []
    if pictures := [other for other in names if "mmproj" in other.lower()]:
        notes.append(f"{_listed(pictures)}: not fetched, halfbyte reads text only")
    return Choice([name, *_other_parts(name, names)], notes)


def _other_parts(name: str, names: list[str]) -> list[str]:
    """The other files of a GGUF model in several files."""
    match = _PART.search(name)
    if match is None:
        return []
    stem, end = name[: match.start()], f"-of-{match[1]}.gguf"
    parts = re.compile(re.escape(stem) + r"-\d{5}" + re.escape(end))
    return [other for other in names if parts.fullmatch(other) and other != name]


def _listed(names: list[str]) -> str:
    more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (", ".join(names[:_SHOWN]) or "nothing") + more
