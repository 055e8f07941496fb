"""Models from the Hugging Face hub, by the hub's own library, with its cache, progress and tokens.

A repository may hold a model in several formats, and pictures; only files that `load` reads are
fetched. The library is the extra ``[hub]``; it takes the token from HF_TOKEN or its own login, and
the server from HF_ENDPOINT.
"""

from __future__ import annotations

import glob
import hashlib
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from halfbyte.download.choice import choose, parse
from halfbyte.download.response import DownloadError
from halfbyte.errors import HalfbyteError

_CHUNK = 1 << 22  # bytes hashed at once


def pull(
    text: str, revision: str | None = None, note: Callable[[str], object] = lambda text: None
) -> Path:
    """Fetch a model into the hub's cache, unless it is there already.

    A transfer that was interrupted, even in another process, continues where it stopped. The
    SHA-256 of new weights is compared with the hub's.

    Parameters
    ----------
    text : str
        The model, as in :func:`halfbyte.download.choice.parse`.
    revision : str, optional
        A branch, a tag or a commit; by default the main branch.
    note : callable, optional
        Called with what the user should know: which of several files was chosen.

    Returns
    -------
    Path
        The folder or file, for `halfbyte.load`.

    Raises
    ------
    HalfbyteError
        The library is missing.
    DownloadError
        There is no such repository, revision or file, the hub refuses, the network fails, or the
        bytes that arrived are not the hub's.
    """
    hub = _library()
    reference = parse(text)
    revision = revision or reference.revision
    try:
        names, hashes = _files(hub, reference.repository, revision)
        chosen = choose(text, names, reference.wanted)
        for line in chosen.notes:
            note(line)
        patterns = [glob.escape(name) for name in chosen.files]
        folder = Path(
            hub.snapshot_download(reference.repository, revision=revision, allow_patterns=patterns)
        )
    except HalfbyteError:
        raise
    except Exception as error:  # including those of the library's HTTP library, which changes
        raise DownloadError(f"{text}: {_explained(hub, error)}") from error
    for name in chosen.files:
        if name in hashes:
            _verify(text, folder / name, hashes[name])
    return folder / chosen.files[0] if chosen.files[0].endswith(".gguf") else folder


def pull_file(repository: str, name: str, revision: str, token: str | None = None) -> Path:
    """Fetch one file of a repository into the hub's cache, unless it is there already.

    Raises
    ------
    HalfbyteError
        The library is missing.
    DownloadError
        As for `pull`.
    """
    hub = _library()
    try:
        return Path(hub.hf_hub_download(repository, name, revision=revision, token=token))
    except Exception as error:  # including those of the library's HTTP library, which changes
        raise DownloadError(f"{repository}: {name}: {_explained(hub, error)}") from error


def _files(
    hub: ModuleType, repository: str, revision: str | None
) -> tuple[list[str], dict[str, str]]:
    """All files of a repository, and the SHA-256 of those that are not in the cache."""
    try:
        info = hub.HfApi().model_info(repository, revision=revision, files_metadata=True)
    except hub.errors.OfflineModeIsEnabled:
        return _cached(hub, repository, revision), {}

    def is_new(name: str) -> bool:
        kept = hub.try_to_load_from_cache(info.id, name, revision=info.sha)
        return not isinstance(kept, str)

    large = {f.rfilename: f.lfs.sha256 for f in info.siblings if f.lfs is not None}
    hashes = {name: sha256 for name, sha256 in large.items() if is_new(name)}
    return sorted(file.rfilename for file in info.siblings), hashes


def _verify(text: str, path: Path, expected: str) -> None:
    """Compare a file's SHA-256 with the hub's; remove it if it differs."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_CHUNK):
            digest.update(piece)
    if (found := digest.hexdigest()) != expected:
        path.resolve().unlink()
        path.unlink(missing_ok=True)
        raise DownloadError(
            f"{text}: {path.name}: expected the SHA-256 {expected}, found {found}: it arrived "
            "damaged and was removed, fetch it again"
        )


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
