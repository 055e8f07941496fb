"""Prepare models and peers for the benches, once, in a folder below the system's temporary one.

    python -m benches.prepare [--large] [--also ik_llama.cpp openvino pytorch litert]

Models are SmolLM2-135M's shape with random weights in Q4_0, Q8_0 and F16 (with --large also Llama
3.2 1B's in Q4_0 and Q4_K_M). Peers are llama.cpp as llama-cpp-python, built here for this machine's
processor (some minutes), and wllama 2 and 3, onnxruntime-web and transformers.js as npm packs them;
optional ones get environments of their own from PyPI (PyTorch and LiteRT: gigabytes). Delete the
folder to prepare everything again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from benches.peers import amx
from benches.peers.errors import PeerError, reason

ROOT = Path(__file__).resolve().parents[1]
MODELS = {
    "135M Q4_0": ("smollm2-135m", "Q4_0"),
    "135M Q8_0": ("smollm2-135m", "Q8_0"),
    "135M F16": ("smollm2-135m", "F16"),
}
# Any that halfbyte reads, in one shape, whose rows are whole blocks of 256; blocks are random
TYPES = (
    "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S",
    "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS", "MXFP4", "NVFP4", "TQ1_0", "TQ2_0",
)  # fmt: skip
BLOCKS = {f"138M {kind}": ("llama-160m", kind) for kind in TYPES}
LARGE = {"1B Q4_0": ("llama-1b", "Q4_0"), "1B Q4_K_M": ("llama-1b", "Q4_K_M")}
WLLAMA = {"wllama-2": "2.4.0", "wllama-3": "3.8.1"}
ORT_WEB, ORT_WEB_VERSION = "onnxruntime-web", "1.30.0"
TRANSFORMERS_JS = {"@huggingface/transformers": "4.3.1", ORT_WEB: "1.31.0-dev.20260914-8d85527a0"}
LLAMA_CPP = "llama-cpp-python==0.3.36"
OPTIONAL = {  # the first is the peer's package
    "ik_llama.cpp": ["ik-llama-cpp-python==0.1.5"],
    "openvino": ["openvino==2026.4.1"],
    "pytorch": ["torch==2.13.0", "numpy", "onnx==1.23.2"],
    "litert": ["ai-edge-litert==2.3.0", "litert-torch==0.10.0", "torch==2.13.0", "onnx==1.23.2"],
    "exports": [
        "torch==2.15.0", "torchvision==0.29.2", "timm==1.0.31", "transformers==5.24.0",
        "onnx==1.23.2", "onnxscript==0.7.2",
    ],
}  # fmt: skip
VERSIONS = {
    "llama.cpp": LLAMA_CPP.replace("==", " "),
    **{engine: f"wllama {version}" for engine, version in WLLAMA.items()},
    ORT_WEB: f"{ORT_WEB} {ORT_WEB_VERSION}",
    "transformers.js": f"transformers.js {TRANSFORMERS_JS['@huggingface/transformers']}",
    **{engine: packages[0].replace("==", " ") for engine, packages in OPTIONAL.items()},
}
# Its own threads, not OpenMP's: those spin on after a run and take time from whoever has the turn.
LLAMA_CPP_CMAKE = "-DGGML_OPENMP=OFF -DLLAVA_BUILD=OFF"


def folder() -> Path:
    """The folder of all models and peers."""
    path = Path(tempfile.gettempdir()) / "halfbyte-bench"
    path.mkdir(exist_ok=True)
    return path


def model(name: str) -> Path:
    """The file of one of `MODELS`, `BLOCKS` or `LARGE`, which the first call writes."""
    shape, kind = {**MODELS, **BLOCKS, **LARGE}[name]
    path = folder() / f"{shape}-{kind}.gguf"
    if not path.exists():
        tool = [sys.executable, str(ROOT / "tools/make_model.py"), "--shape", shape]
        blocks = ["--random-blocks"] if name in BLOCKS else []
        subprocess.run([*tool, "--type", kind, "-o", str(path), *blocks], check=True)
    return path


def wllama(engine: str) -> dict[str, Path | bytes]:
    """The package's files, from npm, in a folder of the engine's name."""
    archive = _from_npm("@wllama/wllama", WLLAMA[engine])
    return _unpacked(archive, "package/esm/", engine, (".js", ".wasm"))


def onnxruntime_web() -> dict[str, Path | bytes]:
    """The files of that package which run on the processor, from npm, in a folder of its name."""
    archive = _from_npm(ORT_WEB, ORT_WEB_VERSION)
    names = ("/ort.wasm.min.mjs", "/ort-wasm-simd-threaded.mjs", "/ort-wasm-simd-threaded.wasm")
    return _unpacked(archive, "package/dist/", ORT_WEB, names)


def transformers_js() -> dict[str, Path | bytes]:
    """transformers.js with the onnxruntime-web that it asks for, in a folder of its name."""
    [own, runtime] = [_from_npm(*package) for package in TRANSFORMERS_JS.items()]
    target = "transformers.js"
    return {
        **_unpacked(own, "package/dist/", target, ("/transformers.min.js",)),
        **_unpacked(
            runtime,
            "package/dist/",
            target,
            (".wasm", "threaded.mjs", ".jsep.mjs", ".asyncify.mjs"),
        ),
    }


def _from_npm(package: str, version: str) -> Path:
    """The package as npm packs it, fetched once."""
    archive = folder() / f"{package.strip('@').replace('/', '-')}-{version}.tgz"
    if not archive.exists():
        say(f"fetching {package} {version} ...")
        command = ["npm", "pack", "--silent", f"{package}@{version}", "--pack-destination"]
        try:
            subprocess.run([*command, folder()], check=True, capture_output=True, text=True)
        except FileNotFoundError:
            raise PeerError(f"{package} was not fetched: npm is missing") from None
        except subprocess.CalledProcessError as error:
            raise PeerError(f"{package} was not fetched:\n{error.stderr.strip()}") from None
    return archive


def or_reason(fetch: Callable[[], dict[str, Path | bytes]], module: str) -> dict[str, Path | bytes]:
    """The files of a peer in a tab; where they cannot be had, a module that says why."""
    try:
        return fetch()
    except PeerError as error:
        return {module: f"throw new Error({json.dumps(reason(error))});".encode()}


def _unpacked(
    archive: Path, prefix: str, target: str, endings: tuple[str, ...]
) -> dict[str, Path | bytes]:
    """Files below a folder of an archive that end so, by their names on the site."""
    files: dict[str, Path | bytes] = {}
    with tarfile.open(archive) as content:
        for member in content.getmembers():
            file = content.extractfile(member)
            if file and member.name.startswith(prefix) and member.name.endswith(endings):
                files[f"{target}/{member.name.removeprefix(prefix)}"] = file.read()
    return files


def wllama_threads() -> int:
    """How many threads wllama takes by default: half of the cores."""
    return max(1, (os.cpu_count() or 1) // 2)


def python_of(engine: str) -> Path:
    """The interpreter that has an engine; PeerError says how to get it."""
    if engine == "halfbyte":
        return Path(sys.executable)
    if not installed(engine):
        options = f" ARGS='--also {engine}'" if engine in OPTIONAL else ""
        raise PeerError(f"not installed: make peers{options}")
    return _environment(engine) / "bin/python"


def installed(engine: str) -> bool:
    """Whether a peer with an environment of its own is there."""
    return (_environment(engine) / "done").exists()


def install(engine: str) -> None:
    """Install an optional peer into an environment of its own."""
    home = _environment(engine)
    if installed(engine):
        return
    say(f"installing {VERSIONS[engine]} ...")
    shutil.rmtree(home, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    pip = [str(home / "bin/python"), "-m", "pip", "install", "--quiet"]
    if subprocess.run([*pip, *OPTIONAL[engine]], check=False).returncode:
        raise PeerError(f"{VERSIONS[engine]} was not installed: see pip's words above")
    (home / "done").touch()


def _environment(engine: str) -> Path:
    package = OPTIONAL[engine][0] if engine in OPTIONAL else LLAMA_CPP
    return folder() / package.replace("==", "-")


def build_llama_cpp() -> None:
    """Build it for this processor."""
    home = _environment("llama.cpp")
    if installed("llama.cpp"):
        return
    log = home.with_name(f"{home.name}.log")
    say(f"building {LLAMA_CPP} for this processor, some minutes; the log is {log} ...")
    shutil.rmtree(home, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    name = LLAMA_CPP.split("==")[0]
    # no cache: pip's does not know what a wheel was built with
    pip = [str(home / "bin/python"), "-m", "pip", "install", "--verbose", "--no-cache-dir"]
    flags = {
        "CMAKE_ARGS": f"{LLAMA_CPP_CMAKE} {amx.cmake_options()}",
        "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count() or 1),
        "CXXFLAGS": f"{os.environ.get('CXXFLAGS', '')} {amx.compiler_flags()}",
    }
    with log.open("w") as file:
        done = subprocess.run(
            [*pip, "--no-binary", name, LLAMA_CPP],
            env={**os.environ, **flags}, stdout=file, stderr=file, check=False,
        )  # fmt: skip
    if done.returncode:
        raise PeerError(f"{LLAMA_CPP} was not built: see {log}")
    (home / "done").touch()


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """The command line; exit code 1 if a peer cannot be had."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--large", action="store_true", help="also the models of one billion")
    parser.add_argument(
        "--also", nargs="*", choices=OPTIONAL, default=[], metavar="PEER",
        help=f"install optional peers: {', '.join(OPTIONAL)}",
    )  # fmt: skip
    options = parser.parse_args()
    for name in [*MODELS, *(LARGE if options.large else [])]:
        say(f"{name}: {model(name)}")
    steps: dict[str, Callable[[], object]] = {
        **{engine: partial(wllama, engine) for engine in WLLAMA},
        ORT_WEB: onnxruntime_web,
        "transformers.js": transformers_js,
        "llama.cpp": build_llama_cpp,
        **{engine: partial(install, engine) for engine in options.also},
    }
    return 1 if failures(steps) else 0


def failures(steps: Mapping[str, Callable[[], object]]) -> list[str]:
    """Do all steps, although some fail; the names of those."""
    failed = []
    for engine, step in steps.items():
        try:
            step()
        except PeerError as error:
            failed.append(engine)
            say(f"{engine}: {error}")
        else:
            say(f"{engine}: {VERSIONS.get(engine, engine)}")
    if failed:
        say(f"without {', '.join(failed)}: the benches run, and say why a figure is missing")
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
