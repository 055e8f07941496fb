"""The site: every file of the page by its path, for a server or a folder of static files."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import halfbyte
from halfbyte.errors import OutputError
from halfbyte.quantize import quantize_file
from halfbyte.text.opening import open_model
from halfbyte.web import pyodide
from halfbyte.web.peers import PEERS, get_peers
from halfbyte.web.wheel import file_name, make_kernels, make_wheel, repack

PAGE = Path(__file__).parent / "page"
STORYTELLER = "storyteller-int4.gguf"
# In models/ of a checkout, not in the wheel, which is to stay small
CHAT_MODEL = Path(__file__).resolve().parents[1] / "models" / "crumb-int4.gguf"
ENCODER = ("all-MiniLM-L6-v2-int8.onnx", "tokenizer.json")
FETCHED = ("pyodide/pyodide.asm.wasm", "pyodide/python_stdlib.zip")
KEPT_BYTES = 1 << 26  # of the largest file that the page keeps for visits without its server
PACKAGES = {"jinja2": ("markupsafe",), "markdown-it-py": ("mdurl",), "pypdf": ()}  # and needs
CHAT = ("jinja2", "markdown-it-py")
SENSES = {  # of the tab "See and hear": what each does, and its file
    "namer": "efficientnet-lite0-int8.onnx",
    "names": "imagenet-names.json",
    "finder": "ppocr-v4-finder.onnx",
    "reader": "ppocr-v4-reader.onnx",
    "listener": "silero-vad-6.2.onnx",
}
STARTING = ("simd128", "relaxed")  # kernels of which a page loads one as it starts
UNFRAMED = "frame-ancestors 'none'"  # which only a header may say
TEXT_PART = "halfbyte-text"  # in Pyodide's lock file: the part of halfbyte with which a page starts


@dataclass(frozen=True)
class Site:
    """The files of the page: relative paths, with their files or bytes.

    `policies` are the Content-Security-Policies that a server sends with files, by their folder,
    such as "race/"; "" is for all others.
    """

    files: dict[str, Path | bytes]
    policies: dict[str, str] = field(default_factory=dict)

    def policy_of(self, name: str) -> str:
        """The policy that is sent with a file; "" for none."""
        folders = [folder for folder in self.policies if name.startswith(folder)]
        return self.policies[max(folders, key=len)] if folders else ""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(map(_bytes, self.files.values()))

    def export(self, folder: Path) -> None:
        """Write all files to a new or empty folder, which appears once it is complete.

        Raises
        ------
        OutputError
            The folder has content, or cannot be written.
        """
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise OutputError(f"{folder}: exists already; expected a new or an empty folder")
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            work = Path(tempfile.mkdtemp(prefix=".halfbyte-", dir=folder.parent))
        except OSError as error:
            raise OutputError(f"{folder}: cannot be written: {error.strerror}") from None
        try:
            for name, content in self.files.items():
                target = work / name
                target.parent.mkdir(parents=True, exist_ok=True)
                if isinstance(content, Path):
                    shutil.copyfile(content, target)
                else:
                    target.write_bytes(content)
            work.chmod(0o755)
            work.replace(folder)
        except OSError as error:
            raise OutputError(f"{folder}: cannot be written: {error.strerror}") from None
        finally:
            shutil.rmtree(work, ignore_errors=True)


def make_site(model: Path | None = None) -> Site:
    """The page with a model, by default the storyteller in int4.

    Raises
    ------
    HalfbyteError
        The model cannot be read, Pyodide cannot be downloaded, or the kernels were not built.
    """
    name, content = _model(model)
    files: dict[str, Path | bytes] = {f"models/{name}": content}
    for path in sorted(PAGE.rglob("*")):
        if path.is_file():
            files[path.relative_to(PAGE).as_posix()] = path
    lock, python = _pyodide_files()
    files |= python
    encoder = _encoder_files()
    files |= encoder
    peers, facts = _peer_files()
    senses = _sense_files()
    files |= senses
    chat_model = f"models/{CHAT_MODEL.name}" if model is None and CHAT_MODEL.exists() else ""
    if chat_model:
        files[chat_model] = CHAT_MODEL
    policies = {folder: _policy(folder) for folder in ("", "race/")}
    settings = {
        "peers": facts,
        "policies": policies,
        "files": _hashes(files),
        "sizes": {name: _bytes(content) for name, content in files.items() if _starts(name)},
        "model": f"models/{name}",
        "chat_model": chat_model,
        "version": halfbyte.__version__,
        "wheel": f"pyodide/{file_name()}",
        "start": hashlib.sha256(lock).hexdigest()[:16],
        "chat": [name for name in CHAT if name in json.loads(lock)["packages"]],
        "encoder": dict(zip(("model", "tokenizer"), encoder, strict=False)),
        "senses": dict(zip(SENSES, senses, strict=False)),
    }
    files["site.json"] = json.dumps(settings).encode()
    headers = {folder: f"{policy}; {UNFRAMED}" for folder, policy in policies.items()}
    return Site({**files, **peers}, headers)


def _bytes(content: Path | bytes) -> int:
    return content.stat().st_size if isinstance(content, Path) else len(content)


def _hashes(files: dict[str, Path | bytes]) -> dict[str, str]:
    """The sha256 of each file that a browser may keep, by its name."""
    return {
        name: hashlib.sha256(c.read_bytes() if isinstance(c, Path) else c).hexdigest()
        for name, c in files.items()
        if name != "sw.js" and _bytes(c) <= KEPT_BYTES
    }


def _starts(name: str) -> bool:
    """Whether Python's start fetches a file, and thus counts its bytes."""
    text = name == f"pyodide/text/{file_name()}"  # of the kernels beside it only one is fetched
    return text or name in FETCHED or (name.startswith("pyodide/numpy") and name.endswith(".whl"))


def _policy(folder: str) -> str:
    """The policy of a folder's page, for headers: workers take theirs from a response's header."""
    html = (PAGE / folder / "index.html").read_text()
    [policy] = re.findall(r'"Content-Security-Policy" content="([^"]+)"', html)
    return str(policy)


def _pyodide_files() -> tuple[bytes, dict[str, Path | bytes]]:
    """A lock file that lists the wheels; and all files: it, Pyodide's core, NumPy, the wheels."""
    folder = pyodide.get_pyodide()
    wheel = make_wheel()
    parts = {TEXT_PART: (file_name(), make_wheel(graphs=False))}
    for table in STARTING:
        parts[f"halfbyte-{table}"] = file_name(f"halfbyte_{table}"), make_kernels(table)
    lock = json.loads((folder / pyodide.LOCK).read_bytes())
    lock["packages"] = {
        "numpy": lock["packages"]["numpy"],
        "halfbyte": lock_entry(wheel),
    }
    for name, (file, part) in parts.items():
        lock["packages"][name] = lock_entry(part, name, file=f"text/{file}")
    packages = _package_wheels()
    lock["packages"] |= {name: entry for name, (entry, _) in packages.items()}
    files: dict[str, Path | bytes] = {
        f"pyodide/{name}": folder / name for name in pyodide.CORE if name != pyodide.LOCK
    }
    numpy = lock["packages"]["numpy"]["file_name"]
    files[f"pyodide/{numpy}"] = folder / numpy
    files[f"pyodide/{file_name()}"] = wheel
    files |= {f"pyodide/text/{file}": part for file, part in parts.values()}
    for entry, content in packages.values():
        files[f"pyodide/{entry['file_name']}"] = content
    written = json.dumps(lock).encode()
    files[f"pyodide/{pyodide.LOCK}"] = written
    return written, files


def _package_wheels() -> dict[str, tuple[dict[str, object], bytes]]:
    """Lock entries and wheels of the packages for chats and PDF, from this installation.

    Only their Python files are used, so that they fit every Pyodide. Without Jinja the page
    continues texts, and says that it cannot chat; without markdown-it-py it shows plain answers;
    without pypdf it reads no PDF.
    """
    wheels = {}
    for package, depends in PACKAGES.items():
        try:
            for name in (package, *depends):
                wheel, release = repack(name), version(name)
                file = f"{name.replace('-', '_')}-{release}-py3-none-any.whl"
                needs = depends if name == package else ()
                wheels[name] = lock_entry(wheel, name, release, file, needs), wheel
        except PackageNotFoundError:
            continue
    return wheels


def _peer_files() -> tuple[dict[str, Path | bytes], dict[str, dict[str, str]]]:
    """The files of the engines in the race; and by engine its version, and why it is missing."""
    files: dict[str, Path | bytes] = {}
    facts = {}
    for name, (folder, problem) in get_peers().items():
        facts[name] = {"version": PEERS[name].version, "problem": problem}
        if not problem:
            files |= {f"race/{name}/{path}": folder / path for path in PEERS[name].files}
    return files, facts


def encoder_folder() -> Path:
    """The folder of a sentence encoder for the search: $HALFBYTE_MINILM, or the user's cache.

    `tools/make_encoder.py` puts one there; see `ENCODER`.
    """
    if chosen := os.environ.get("HALFBYTE_MINILM"):
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "halfbyte" / "minilm-0.1.0"


def _encoder_files() -> dict[str, Path | bytes]:
    """The encoder and its tokenizer; empty without them: the page says how to get them."""
    return _models_of(encoder_folder(), ENCODER)


def senses_folder() -> Path:
    """The folder of the models that see and hear: $HALFBYTE_SENSES, or the user's cache.

    `tools/get_senses.py` puts them there; see `SENSES`.
    """
    if chosen := os.environ.get("HALFBYTE_SENSES"):
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "halfbyte" / "senses-1"


def _sense_files() -> dict[str, Path | bytes]:
    """The models that see and hear, in the order of `SENSES`; empty without one of them."""
    return _models_of(senses_folder(), SENSES.values())


def _models_of(folder: Path, names: Iterable[str]) -> dict[str, Path | bytes]:
    """A folder's files on the site; empty without one of them."""
    paths = [folder / name for name in names]
    if not all(path.is_file() for path in paths):
        return {}
    return {f"models/{path.name}": path for path in paths}


def lock_entry(
    wheel: bytes,
    name: str = "halfbyte",
    release: str = halfbyte.__version__,
    file: str | None = None,
    depends: Sequence[str] = ("numpy",),
) -> dict[str, object]:
    """The entry of a wheel in Pyodide's lock file, with which `loadPackage(name)` finds it."""
    return {
        "name": name,
        "version": release,
        "file_name": file or file_name(),
        "install_dir": "site",
        "sha256": hashlib.sha256(wheel).hexdigest(),
        "package_type": "package",
        "imports": [name],
        "depends": list(depends),
        "unvendored_tests": False,
    }


def _model(path: Path | None) -> tuple[str, Path | bytes]:
    """Name and content of the site's model; other models than one GGUF file are converted."""
    if path is not None:
        file = open_model(path)
        if file.kind.startswith("GGUF") and len(file.parts) == 1:
            return path.name, path
        name = path.resolve().name if path.is_dir() else path.stem
        return _quantized(path, "fp16", f"{name}.gguf")
    paths = (Path(folder) / "data/storyteller.bin" for folder in halfbyte.__path__)
    storyteller = next(path for path in paths if path.exists())
    return _quantized(storyteller, "int4", STORYTELLER)


def _quantized(path: Path, preset: str, name: str) -> tuple[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / name
        quantize_file(path, preset, target)
        return name, target.read_bytes()
