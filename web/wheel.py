"""Packs the wheel for Pyodide from the installed package: Python and the WebAssembly kernels.

It contains no native library and no weights, which a page downloads separately. Language models
need only a part of it, with which a page starts sooner, and one of the two files of kernels.
"""

from __future__ import annotations

import ast
import base64
import functools
import hashlib
import importlib
import io
import zipfile
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import halfbyte
from halfbyte.errors import UnsupportedError

KERNELS = {
    "simd128": "kernels.wasm", "relaxed": "kernels-relaxed.wasm",
    "relaxed64": "kernels-64.wasm",  # for models beyond 4 GB
}  # fmt: skip
OTHERS = ("worker.js", "grids.bin")  # files that are no Python
PACKAGES = ("halfbyte", "halfbyte.quantize", "halfbyte.web")
# A page with a language model imports these, when it starts or when something is needed
TEXT = (
    *("web.start", "web.engine", "web.codings", "download.browser", "download.kept"),
    *("core.backends.emscripten", "core.backends.instance", "core.backends.workers"),
    *("core.backends.side_module", "weights.few_bits", "text.tokenizers", "text.architectures"),
    "formats.transforms",
)
ENCODER = "halfbyte.text.architectures._encoder"  # no page has a language model that imports it
_DATE = (1980, 1, 1, 0, 0, 0)  # constant, so that the same files give the same bytes
_MODE = 0o100644  # readable by all


def file_name(package: str = "halfbyte") -> str:
    """The name of a wheel of halfbyte's version."""
    return f"{package}-{halfbyte.__version__}-py3-none-any.whl"


def make_wheel(*, graphs: bool = True) -> bytes:
    """The wheel; without `graphs` only the part that language models in a page need.

    That part has no docstrings and comments, which nobody reads there: a quarter of the bytes.

    Raises
    ------
    UnsupportedError
        The kernels for WebAssembly were not built.
    """
    paths = _paths()
    names = paths if graphs else _text_part(paths)
    files = {name: paths[name].read_bytes() for name in names}
    if not graphs:
        files |= {n: without_docstrings(b) for n, b in files.items() if n.endswith(".py")}
    return _pack_own(files, "halfbyte", _metadata(), record=graphs)


def _text_part(paths: dict[str, Path]) -> list[str]:
    """Modules of TEXT and in packages of it, with all that these import when they are loaded."""
    modules = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): name
        for name in paths
        if name.endswith(".py")
    }

    @functools.cache
    def imported(module: str) -> list[str]:
        return [name for name in imports(paths[modules[module]].read_bytes()) if name in modules]

    chosen: set[str] = set()
    for module in modules:
        private = module.rpartition(".")[2].startswith("_")  # loaded with others
        if not private and any(f"{module}.".startswith(f"halfbyte.{one}.") for one in TEXT):
            reached = _reached(module, imported)
            chosen |= reached if ENCODER not in reached else set()
    kept = {modules[module] for module in chosen}
    return [name for name in paths if name in kept or name.endswith("worker.js")]


def _reached(module: str, imported: Callable[[str], list[str]]) -> set[str]:
    """A module and all that is loaded with it, packages included."""
    reached: set[str] = set()
    left = [module]
    while left:
        if (name := left.pop()) and name not in reached:
            reached.add(name)
            left += [*imported(name), name.rpartition(".")[0]]
    return reached


def imports(source: bytes | str) -> Iterator[str]:
    """The modules that a module imports when it is loaded, and names in them."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def make_kernels(table: str) -> bytes:
    """A wheel of one file of kernels, by a key of `KERNELS`; raises as `make_wheel`."""
    name, package = f"halfbyte/{KERNELS[table]}", f"halfbyte_{table}"
    metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: {halfbyte.__version__}\n"
    return _pack_own({name: _paths()[name].read_bytes()}, package, metadata)


def without_docstrings(source: bytes) -> bytes:
    """A module whose docstrings are dots, without comments; every line keeps its number.

    Without any, a dataclass would make one of its signature. Comments after strings stay.
    """
    lines = source.splitlines(keepends=True)
    texts: set[int] = set()  # lines of strings that go on
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr | ast.Constant) and node.end_lineno != node.lineno:
            texts |= set(range(node.lineno, (node.end_lineno or 0) + 1))
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            first, last = text.lineno - 1, text.end_lineno or text.lineno
            lines[first] = lines[first][: text.col_offset] + b'"."\n'
            lines[first + 1 : last] = [b"\n"] * (last - first - 1)
    return b"".join(
        line if number in texts else _without_comment(line) for number, line in enumerate(lines, 1)
    )


def _without_comment(line: bytes) -> bytes:
    """A line without its comment, if its beginning has no quotes."""
    code, mark, _ = line.partition(b"#")
    return code.rstrip() + b"\n" if mark and not set(b"\"'") & set(code) else line


_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _pack_own(
    files: dict[str, bytes], package: str, metadata: str, *, record: bool = True
) -> bytes:
    files[f"{package}-{halfbyte.__version__}.dist-info/METADATA"] = metadata.encode()
    return pack(files, "py3-none-any", record=record)


def repack(name: str) -> bytes:
    """A wheel of the Python files, the licence and the metadata of an installed package.

    Raises
    ------
    PackageNotFoundError
        The package is not installed.
    """
    package = distribution(name)
    info = f"{package.metadata['Name'].lower()}-{package.version}.dist-info"
    files: dict[str, bytes] = {}
    for path in package.files or ():
        folder, _, rest = path.as_posix().partition("/")
        place = Path(str(path.locate()))
        if path.suffix == ".py" and not folder.endswith(".dist-info"):
            files[path.as_posix()] = place.read_bytes()
        elif folder.endswith(".dist-info") and ("METADATA" in rest or "LICENSE" in rest.upper()):
            files[f"{info}/{rest}"] = place.read_bytes()
    return pack(files, "py3-none-any")


def pack(files: dict[str, bytes], tag: str, *, record: bool = True) -> bytes:
    """A wheel of these files, which include METADATA, with WHEEL and RECORD added.

    The same files give the same bytes. Pyodide, which unpacks a page's part, reads no `record`:
    its hashes would be a fortieth of the bytes.
    """
    [info] = {name.partition("/")[0] for name in files if name.endswith(".dist-info/METADATA")}
    purelib = str(tag.endswith("-any")).lower()
    wheel = f"Wheel-Version: 1.0\nGenerator: halfbyte\nRoot-Is-Purelib: {purelib}\nTag: {tag}\n"
    files = dict(sorted(files.items())) | {f"{info}/WHEEL": wheel.encode()}
    if record:
        lines = "".join(f"{name},{_digest(data)},{len(data)}\n" for name, data in files.items())
        files[f"{info}/RECORD"] = f"{lines}{info}/RECORD,,\n".encode()
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.create_system, entry.external_attr = 3, _MODE << 16  # on every system
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, compresslevel=9)
    return target.getvalue()


def _paths() -> dict[str, Path]:
    """Names in the wheel, sorted, and their paths; raises `UnsupportedError` without kernels."""
    paths = dict(sorted(_files()))
    missing = [name for name in KERNELS.values() if f"halfbyte/{name}" not in paths]
    if missing:
        *others, last = missing
        listed = f"{', '.join(others)} and {last}" if others else last
        raise UnsupportedError(
            f"halfbyte was installed without {listed}: build them with "
            "`python tools/build_wasm.py` in its sources"
        )
    return paths


def _files() -> Iterator[tuple[str, Path]]:
    """Names in the wheel and their paths; an editable install has a folder for each package."""
    for package in PACKAGES:
        prefix = package.replace(".", "/")
        folder = Path(str(importlib.import_module(package).__file__)).parent
        for path in folder.rglob("*"):
            if path.suffix in (".py", ".toml") or path.name in (*KERNELS.values(), *OTHERS):
                yield f"{prefix}/{path.relative_to(folder).as_posix()}", path


def _metadata() -> str:
    """The metadata that pip and importlib read, without the README after it."""
    try:
        text = distribution("halfbyte").read_text("METADATA")
    except PackageNotFoundError:
        text = None
    fallback = f"Metadata-Version: 2.1\nName: halfbyte\nVersion: {halfbyte.__version__}\n"
    return text.partition("\n\n")[0] + "\n" if text else fallback


def _digest(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return f"sha256={digest.decode().rstrip('=')}"
