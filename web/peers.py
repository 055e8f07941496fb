"""Downloads the engines that race with halfbyte in a tab (`page/race/`) into a cache folder.

They are packages of npm. Sources are a CDN of npm's files, then ``npm pack``. Every file must have
the sha256 given here. halfbyte ships none of them; an exported site has them with their licences.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
import tempfile
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from halfbyte.errors import OutputError
from halfbyte.web.pyodide import Reader, checked, matches, write

CDN = "https://cdn.jsdelivr.net/npm/"
SECONDS = 15.0  # without an answer
NPM_SECONDS = 300.0  # for a whole package


@dataclass(frozen=True)
class Peer:
    """A package of npm, and the sha256 of the files that a tab needs of it."""

    package: str
    version: str
    files: Mapping[str, str]


PEERS = {
    "wllama-2": Peer("@wllama/wllama", "2.4.0", {
        "LICENCE": "5866e3bd7e3cbd3f7c8bea6efd8a1e7fa7cc8de68c30f428aff7c6584a0fb720",
        "esm/index.js": "08e0fad5c9efdf4414ca2e27d0d8d5bdfa54d91a8054b40d9d9c90c9ce870b9d",
        "esm/single-thread/wllama.wasm":
            "aced0c759f668e17d618114b8688bf55b32289dbdbd08b6e3254b0bc75838ad5",
        "esm/multi-thread/wllama.wasm":
            "f69f292f06d9c5c63ac447aac768c3d508fe7a56f0a7926bd12cc33370bc627d",
    }),
    "wllama-3": Peer("@wllama/wllama", "3.8.1", {
        "LICENCE": "5866e3bd7e3cbd3f7c8bea6efd8a1e7fa7cc8de68c30f428aff7c6584a0fb720",
        "esm/index.js": "e5506753e41a59c11f61f2c52422045be9fc76e32a7e47f037aaad5df4ec723e",
        "esm/wasm/wllama.wasm": "551f13439366eff11e057b1b91fe46a7fdac29d56d67372d4c5f19a549dfe70c",
    }),
    "onnxruntime-web": Peer("onnxruntime-web", "1.30.0", {
        "README.md": "3089f92ffb02d63365f05d870df5c6ac9bbaed096943b5b4fe55afd9b7a624f8",  # licence
        "dist/ort.wasm.min.mjs": "219e6a1fc8a9938268d18efca3c91d310bd2f4a59bbd13744df5b2b7fc6cee3b",
        "dist/ort-wasm-simd-threaded.mjs":
            "e13f7f94fc51b4ca72b12faeb1ee95f4ace6dfbc8939bc718aabdc0a27c4299b",
        "dist/ort-wasm-simd-threaded.wasm":
            "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
    }),
    "transformers.js": Peer("@huggingface/transformers", "4.3.1", {
        "LICENSE": "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30",
        "dist/transformers.min.js":
            "8d6716d9086f57c30a4bf367dba61b887593573c770c454465e8019b2703e743",
    }),
}  # fmt: skip


def cache_folder() -> Path:
    """The folder of all packages: $HALFBYTE_PEERS, or the user's cache."""
    if chosen := os.environ.get("HALFBYTE_PEERS"):
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "halfbyte" / "peers"


def from_cdn(peer: Peer) -> Reader:
    """Reads single files from the CDN."""

    def read(name: str) -> bytes:
        address = f"{CDN}{peer.package}@{peer.version}/{name}"
        with urllib.request.urlopen(address, timeout=SECONDS) as response:  # noqa: S310 - https
            data: bytes = response.read()
            return data

    return read


def from_npm(peer: Peer) -> Reader:
    """Reads files of the package that npm downloads from its configured registry."""
    files: dict[str, bytes] = {}

    def read(name: str) -> bytes:
        if not files:
            files.update(_packed(peer))
        return files[name]

    return read


def _packed(peer: Peer) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as work:
        command = ["npm", "pack", "--silent", "--fetch-retries=0", "--pack-destination", work]
        done = subprocess.run(  # noqa: S603 - a pinned package, its files checked below
            [*command, f"{peer.package}@{peer.version}"],
            capture_output=True, text=True, check=False, timeout=NPM_SECONDS,
        )  # fmt: skip
        if done.returncode:
            raise OSError(f"npm: {(done.stderr.strip().splitlines() or ['no answer'])[-1]}")
        with tarfile.open(next(Path(work).glob("*.tgz"))) as archive:
            parts = {name: archive.extractfile(f"package/{name}") for name in peer.files}
            return {name: part.read() for name, part in parts.items() if part}


SOURCES: tuple[Callable[[Peer], Reader], ...] = (from_cdn, from_npm)


def complete(peer: Peer, folder: Path) -> bool:
    """Whether a folder has all files of the package, with the right sha256."""
    paths = {folder / name: sha256 for name, sha256 in peer.files.items()}
    return all(path.is_file() and matches(path.read_bytes(), h) for path, h in paths.items())


def get_peers() -> dict[str, tuple[Path, str]]:
    """The folder of each package, filled first if necessary, and "" or why it is incomplete.

    A source that cannot be reached is not asked again for the next package.
    """
    unreachable: dict[str, str] = {}
    return {name: _get_peer(name, unreachable) for name in PEERS}


def _get_peer(name: str, unreachable: dict[str, str]) -> tuple[Path, str]:
    peer = PEERS[name]
    folder = cache_folder() / f"{name}-{peer.version}"
    problems = []
    for source in SOURCES:
        if complete(peer, folder):
            return folder, ""
        if source.__name__ in unreachable:
            problems.append(unreachable[source.__name__])
            continue
        read = source(peer)
        try:
            for path, sha256 in peer.files.items():
                data = checked(read, path, sha256)
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                write(folder / path, data)
        except (OSError, subprocess.SubprocessError) as error:
            unreachable[source.__name__] = f"{source.__name__}: {error}"
            problems.append(unreachable[source.__name__])
        except (OutputError, ValueError, KeyError, tarfile.TarError) as error:
            problems.append(f"{source.__name__}: {error}")
    return folder, "" if complete(peer, folder) else "; ".join(problems)
