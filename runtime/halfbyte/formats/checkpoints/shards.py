"""The tensors of a Hugging Face folder: in one file, or in several with an index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from halfbyte.errors import FormatError, UnsupportedError
from halfbyte.formats.checkpoints import Checkpoint, pytorch, safetensors
from halfbyte.formats.json_file import read_json
from halfbyte.formats.mapped import Pages, map_file

WHOLE = ("model.safetensors", "pytorch_model.bin")  # in this order, each before its index
_MAX_SHARDS = 1 << 10
_MAX_NAME_BYTES = 255  # the limit of file systems


def is_weights(start: bytes) -> bool:
    """Whether a file that begins with `start` may hold only tensors, without a model's metadata."""
    return pytorch.is_pytorch(start) or safetensors.has_json_header(start)


def read_weights(path: Path, pages: Pages) -> Checkpoint:
    """The tensors of one file, safetensors or PyTorch by its content."""
    start = bytes(pages[:16])
    if safetensors.has_json_header(start):  # whose length may begin as a pickle does
        return safetensors.read_safetensors(path, pages, *safetensors.read_json_header(path, pages))
    if pytorch.is_pytorch(start):
        return pytorch.read_pytorch(path, pages)
    raise FormatError(
        f"{path}: expected safetensors or a PyTorch file, found {len(pages)} bytes that begin "
        f"with {start[:8]!r}{pointer_hint(start)}"
    )


def pointer_hint(start: bytes) -> str:
    """A hint about the pointer file that Git LFS leaves in place of a large file."""
    if start.startswith(b"version https://"):
        return ": a pointer of Git LFS; `git lfs pull` fetches the file itself"
    return ""


def read_folder_weights(folder: Path) -> Checkpoint:
    """All tensors of a folder.

    Raises
    ------
    FormatError
        There are no weights, or a file of the index is missing or lacks a tensor.
    """
    for name in WHOLE:
        path, index = folder / name, folder / f"{name}.index.json"
        if path.is_file():
            return read_weights(path, map_file(path))
        if index.is_file():
            return read_shards(index)
    others = sorted(path for path in folder.glob("*.safetensors") if path.is_file())
    if len(others) == 1:
        return read_weights(others[0], map_file(others[0]))
    raise FormatError(
        f"{folder}: expected weights in {' or '.join(WHOLE)}, or their index.json, found "
        f"{len(others)} other safetensors files"
    )


def index_of(path: Path) -> Path | None:
    """The index beside a file that names it."""
    for name in WHOLE:
        index = path.with_name(f"{name}.index.json")
        if index.is_file() and path.name in _weight_map(index).values():
            return index
    return None


def names_of_index(index: Path) -> list[str]:
    """The names of the tensors in the files that an index names."""
    return list(_weight_map(index))


def _weight_map(index: Path) -> dict[str, str]:
    """The index's map from names of tensors to names of files."""
    files: Any = read_json(index).get("weight_map")
    if not isinstance(files, dict) or not files:
        raise FormatError(f"{index}: key 'weight_map': expected names of tensors and files")
    for name in files.values():
        if not isinstance(name, str) or name in ("", ".", "..") or set("/\\\0") & set(name):
            raise FormatError(f"{index}: file {name!r:.80}: expected a name in the same folder")
        if len(name.encode(errors="surrogatepass")) > _MAX_NAME_BYTES:
            raise FormatError(
                f"{index}: file {name!r:.80}: expected at most {_MAX_NAME_BYTES} bytes"
            )
    return files


def read_shards(index: Path) -> Checkpoint:
    """All tensors of the files that an index names; raises `FormatError`."""
    wanted = _weight_map(index)
    paths = [index.with_name(name) for name in sorted(set(wanted.values()))]
    if len(paths) > _MAX_SHARDS:
        raise UnsupportedError(f"{index}: {len(paths)} files, expected at most {_MAX_SHARDS}")
    if missing := [path.name for path in paths if not path.is_file()]:
        raise FormatError(
            f"{index}: {len(missing)} of {len(paths)} files are missing: "
            f"{', '.join(missing[:3])}{', ...' if len(missing) > 3 else ''}"
        )
    whole = Checkpoint("")
    for path in paths:
        part = read_weights(path, map_file(path))
        names = part.tensors.keys() | part.unusable.keys()
        if lost := [n for n, file in wanted.items() if file == path.name and n not in names]:
            raise FormatError(
                f"{path}: tensor {lost[0][:80]!r}: expected here by {index.name}, found nothing"
            )
        if twice := names & (whole.tensors.keys() | whole.unusable.keys()):
            raise FormatError(f"{path}: tensor {min(twice)!r}: is in an earlier file too")
        whole.kind = f"{part.kind} in {len(paths)} files" if len(paths) > 1 else part.kind
        whole.tensors |= part.tensors
        whole.unusable |= part.unusable
        whole.raw |= part.raw
        whole.parts |= part.parts
    return whole
