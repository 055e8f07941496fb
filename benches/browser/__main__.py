"""halfbyte in a browser tab beside wllama (llama.cpp in WebAssembly), in one run, taking turns.

    python -m benches.browser [-p 128] [-n 32] [-r 5] [--json FILE]

Models: SmolLM2-135M's shape with random weights in Q4_0 and Q8_0, and the storyteller in int4. The
engines are halfbyte on relaxed SIMD, on SIMD128 and on NumPy, and npm's @wllama/wllama 2.x and 3.x,
all on one thread. Speeds: every engine has a tab of one browser; they take turns; medians. Loading:
a fresh browser for each engine; the page is opened once cold, then from the browser's cache; peak
memory is that of the tab's process. NumPy gets a few tokens only. JSON is pytest-benchmark's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from benches.browser.measure import ENGINES, Bench, Speed, Start
from benches.browser.report import markdown, pytest_json

from halfbyte.web.site import STORYTELLER, Site, make_site

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path(__file__).parent / "page"
WLLAMA = {"wllama-2": "2.4.0", "wllama-3": "3.8.1"}


def models(cache: Path) -> dict[str, Path]:
    """135 million random weights in two types; made once."""
    made = {}
    for name in ("Q4_0", "Q8_0"):
        path = cache / f"smollm2-135m-{name}.gguf"
        if not path.exists():
            tool = [sys.executable, ROOT / "tools/make_model.py", "--shape", "smollm2-135m"]
            subprocess.run([*tool, "--type", name, "-o", path], check=True)
        made[f"135M {name}"] = path
    return made


def wllama(cache: Path, engine: str) -> dict[str, Path | bytes]:
    """The package's files, from npm."""
    version = WLLAMA[engine]
    archive = cache / f"wllama-wllama-{version}.tgz"
    if not archive.exists():
        command = ["npm", "pack", "--silent", f"@wllama/wllama@{version}"]
        subprocess.run([*command, "--pack-destination", cache], check=True, capture_output=True)
    prefix, files = "package/esm/", {}
    with tarfile.open(archive) as content:
        for member in content.getmembers():
            file = content.extractfile(member)
            if file and member.name.startswith(prefix) and member.name.endswith((".js", ".wasm")):
                files[f"{engine}/{member.name.removeprefix(prefix)}"] = file.read()
    return dict(files)


def make_bench_site(cache: Path) -> tuple[Site, dict[str, str]]:
    """The site with the bench's page in it; the models' addresses by name."""
    site = make_site()
    files = {**site.files, **{f"bench/{path.name}": path for path in PAGE.iterdir()}}
    addresses = {"storyteller": f"/models/{STORYTELLER}"}
    for name, path in models(cache).items():
        addresses[name] = f"/models/{path.name}"
        files[f"models/{path.name}"] = path
    for engine in WLLAMA:
        files |= wllama(cache, engine)
    return Site(files), addresses


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-p", type=int, default=128, help="prompt tokens")
    parser.add_argument("-n", type=int, default=32, help="tokens decoded one by one")
    parser.add_argument("-r", type=int, default=5, help="rounds")
    parser.add_argument("-e", "--engines", default=",".join(ENGINES), help="which, by commas")
    parser.add_argument("-m", "--models", help="which, by commas (default: all)")
    parser.add_argument("--json", type=Path, help="write all figures here")
    options = parser.parse_args()
    cache = Path(tempfile.gettempdir()) / "halfbyte-bench"
    cache.mkdir(exist_ok=True)
    site, addresses = make_bench_site(cache)
    if options.models:
        addresses = {name: addresses[name] for name in options.models.split(",")}
    speeds: list[Speed] = []
    starts: list[Start] = []
    with Bench(site, ROOT) as bench:
        for name, address in addresses.items():
            engines = options.engines.split(",")
            speeds += bench.speeds(name, address, engines, options.p, options.n, options.r)
        for name in ("storyteller", "135M Q4_0"):
            if name in addresses:
                starts += bench.starts(name, addresses[name], options.engines.split(","))
    print(markdown(speeds, starts))
    if options.json:
        options.json.write_text(json.dumps(pytest_json(speeds, starts), indent=1))


if __name__ == "__main__":
    main()
