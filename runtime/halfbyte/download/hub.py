"""Models from the Hugging Face hub, by the hub's own library, with its cache, progress and tokens.

A repository may hold a model in several formats, and pictures; only files that `load` reads are
fetched. The library is the extra ``[hub]``; it takes the token from HF_TOKEN or its own login, and
the server from HF_ENDPOINT.
"""

from __future__ import annotations

import glob
import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

from halfbyte.download.response import DownloadError
from halfbyte.errors import HalfbyteError

# Files of a folder beside weights; a chat template may have its own file
_BESIDE = frozenset({
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer.model", "spiece.model",
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja", "chat_template.json",
})  # fmt: skip
_WEIGHTS = (  # the first kind that exists
    re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?"),
    re.compile(r"[^/]+\.safetensors"),
    re.compile(r"pytorch_model(-\d{5}-of-\d{5})?\.bin(\.index\.json)?"),
)
_PART = re.compile(r"-\d{5}-of-(\d{5})\.gguf$")
_SHOWN = 12  # names in a message


def pull(reference: str, revision: str | None = None) -> Path:
    """Fetch a model into the hub's cache, unless it is there already.

    Parameters
    ----------
    reference : str
        ``org/name`` of a repository, or ``org/name:file`` of one GGUF file in it, with all parts
        of the model if there are several.
    revision : str, optional
        A branch, a tag or a commit; by default the main branch.

    Returns
    -------
    Path
        The folder or file, for `halfbyte.load`.

    Raises
    ------
    HalfbyteError
        The library is missing.
    DownloadError
        There is no such repository, revision or file, the hub refuses, or the network fails.
    """
    hub = _library()
    repository, _, wanted = reference.partition(":")
    try:
        try:
            files = hub.HfApi().model_info(repository, revision=revision).siblings
            names = sorted(file.rfilename for file in files)
        except hub.errors.OfflineModeIsEnabled:
            names = _cached(hub, repository, revision)
        chosen = choose(reference, names, wanted)
        folder = Path(
            hub.snapshot_download(
                repository, revision=revision, allow_patterns=[glob.escape(n) for n in chosen]
            )
        )
    except HalfbyteError:
        raise
    except Exception as error:  # including those of the library's HTTP library, which changes
        raise DownloadError(f"{reference}: {_explained(hub, error)}") from error
    gguf = chosen[0].endswith(".gguf")
    return folder / chosen[0] if gguf else folder


def _library() -> ModuleType:
    try:
        hub = importlib.import_module("huggingface_hub")
        for part in ("errors", "utils"):
            importlib.import_module(f"huggingface_hub.{part}")
    except ImportError:
        raise HalfbyteError(
            "pull: the package huggingface_hub is missing: pip install 'halfbyte[hub]'"
        ) from None
    hub.utils.logging.set_verbosity_error()  # it would log every attempt
    if not sys.stderr.isatty():
        hub.utils.disable_progress_bars()
    return hub


def _cached(hub: ModuleType, repository: str, revision: str | None) -> list[str]:
    """The cached files of a repository; the library wants one of them named."""
    folder = hub.snapshot_download(
        repository, revision=revision, local_files_only=True, allow_patterns=["config.json"]
    )
    root = Path(folder)
    return sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())


def choose(reference: str, names: list[str], wanted: str = "") -> list[str]:
    """The files of a repository to fetch; of several GGUF files, the one to open comes first.

    Raises
    ------
    DownloadError
        The file does not exist, no model exists, or there are several.
    """
    files = [n for n in names if n.endswith(".gguf")]
    if wanted:
        if wanted not in names:
            near = files or names
            raise DownloadError(f"{reference}: no such file in it: there is {_listed(near)}")
        return [wanted, *_other_parts(wanted, names)]
    for kind in _WEIGHTS:
        weights = [name for name in names if kind.fullmatch(name)]
        if weights and "config.json" in names:
            return [*weights, *(name for name in names if name in _BESIDE)]
    models = [
        n for n in files if not (m := _PART.search(n)) or n.endswith(f"-00001-of-{m[1]}.gguf")
    ]
    if len(models) == 1:
        return [models[0], *_other_parts(models[0], names)]
    if models:
        raise DownloadError(
            f"{reference}: name one of its files, {reference}:FILE: {_listed(models)}"
        )
    raise DownloadError(f"{reference}: holds no model that halfbyte reads: {_listed(names)}")


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


def _explained(hub: ModuleType, error: Exception) -> str:
    """A description of an error in one line."""
    errors = hub.errors
    known: dict[type[Exception], str] = {
        errors.GatedRepoError: "its terms must be accepted on its page, and HF_TOKEN set",
        errors.RepositoryNotFoundError: "no such repository; a private one needs HF_TOKEN",
        errors.RevisionNotFoundError: "no such revision",
        errors.HFValidationError: "expected a repository such as org/name",
    }
    for kind, text in known.items():
        if isinstance(error, kind):
            return text
    text = " ".join(str(error).split()) or type(error).__name__
    return f"could not be fetched: {text[:300]}"
