"""marimo from its registries: its command exports a notebook, which runs in Pyodide.

The export takes Pyodide and a lock of its packages from addresses of their makers. `serve` answers
these in a browser's context, with npm's Pyodide and wheels from PyPI.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import indent
from typing import Any

from playwright.sync_api import BrowserContext, Route
from tests.notebooks.products import below, folder, run
from tests.support.packages import npm_pack

MARIMO, PYODIDE = "0.25.2", "314.0.0"
EXPORTER = (f"marimo=={MARIMO}", "uv==0.13.9")
WHEELS = (
    f"marimo-base=={MARIMO}", "docutils==0.23", "itsdangerous==2.2.0", "jedi==0.20.1",
    "markdown==3.11.3", "msgspec==0.22.0", "narwhals==2.29.0", "packaging==26.4", "parso==0.8.7",
    "pygments==2.21.0", "pymdown-extensions==11.0.2", "pyodide-http==0.2.2",
    "python-multipart==0.0.34", "tomlkit==0.15.2",
)  # fmt: skip
BUILT = "pyyaml==6.0.4"  # whose wheels are compiled; without libyaml its sources make a pure one
BROWSER = ("--python-version", "3.14", "--platform", "pyemscripten_2026_0_wasm32")
CORE, LOCK = "https://cdn.jsdelivr.net/pyodide/**", "https://wasm.marimo.app/pyodide-lock.json*"
HEADERS = {"Access-Control-Allow-Origin": "*", "Cross-Origin-Resource-Policy": "cross-origin"}
TYPES = {".wasm": "application/wasm", ".mjs": "text/javascript"}


def notebook(cells: Sequence[str]) -> str:
    """A notebook's file; cells are functions whose last line may return names for others."""
    functions = [f"@app.cell\nasync def _():\n{indent(cell.strip(), '    ')}\n" for cell in cells]
    return "\n\n".join(["import marimo\n\napp = marimo.App()", *functions])


def prepare() -> tuple[Path, Path, Path]:
    """The folders of the exporter, of Pyodide's core and of wheels, fetched once."""
    home = folder() / f"marimo-{MARIMO}"
    exporter, core, wheels = home / "exporter", home / "package", home / "wheels"
    if not (home / "done").exists():
        shutil.rmtree(home, ignore_errors=True)
        run(sys.executable, "-m", "venv", exporter)
        pip = (exporter / "bin/python", "-m", "pip", "--quiet")
        run(*pip, "install", *EXPORTER)
        options = ("--only-binary", ":all:", "--no-deps", "--dest", wheels)
        run(*pip, "download", *BROWSER, *options, *WHEELS)
        os.environ["PYYAML_FORCE_LIBYAML"] = "0"
        run(*pip, "wheel", "--no-deps", "--no-binary", ":all:", "--wheel-dir", wheels, BUILT)
        with tarfile.open(npm_pack("pyodide", PYODIDE)) as archive:
            archive.extractall(home, filter="data")
        (home / "done").touch()
    return exporter, core, wheels


def export(cells: Sequence[str], public: Iterable[Path], work: Path) -> dict[str, Path | bytes]:
    """The site of a notebook, with files in its folder `public`."""
    exporter, _, _ = prepare()
    source = Path(tempfile.mkdtemp(dir=work))
    (source / "public").mkdir()
    for path in public:
        shutil.copyfile(path, source / "public" / path.name)
    (source / "notebook.py").write_text(notebook(cells))
    command = [exporter / "bin/marimo", "export", "html-wasm", source / "notebook.py"]
    bin_path = f"{exporter / 'bin'}{os.pathsep}{os.environ['PATH']}"
    run("env", f"PATH={bin_path}", *command, "--output", work / "marimo", "--mode", "run")
    return below(work / "marimo", "marimo/")


def lock(core: Path, wheels: Iterable[Path]) -> bytes:
    """Pyodide's lock file with these wheels as its packages; marimo's own needs all others."""
    content = json.loads((core / "pyodide-lock.json").read_bytes())
    packages = {path.name.split("-")[0].lower().replace("_", "-"): path for path in wheels}
    base, loaded_anyway = "marimo-base", {"marimo-base", "numpy", "micropip"}
    depends = {base: sorted(set(packages) - loaded_anyway)}
    content["packages"] = {
        name: {**entry(name, path), "depends": depends.get(name, [])}
        for name, path in packages.items()
    }
    return json.dumps(content).encode()


def entry(name: str, path: Path) -> dict[str, Any]:
    """A wheel's entry in a lock file, as far as it does not concern other packages."""
    with zipfile.ZipFile(path) as wheel:
        tops = {item.split("/")[0].removesuffix(".py") for item in wheel.namelist()}
    return {
        "name": name, "version": path.name.split("-")[1], "file_name": path.name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "install_dir": "site",
        "package_type": "package", "unvendored_tests": False,
        "imports": sorted(top for top in tops if top.isidentifier()),
    }  # fmt: skip


def serve(context: BrowserContext, more: Iterable[Path]) -> None:
    """Answer what an export asks of other servers; `more` are wheels of the core's release."""
    _, core, folder_of_wheels = prepare()
    wheels = [*folder_of_wheels.glob("*.whl"), *more]
    files = {path.name: path for path in (*core.iterdir(), *wheels)}

    def answer(route: Route) -> None:
        path = files[route.request.url.split("?")[0].rsplit("/", 1)[1]]
        kind = TYPES.get(path.suffix, "application/octet-stream")
        route.fulfill(body=path.read_bytes(), headers=HEADERS, content_type=kind)

    context.route(CORE, answer)
    body = lock(core, wheels)
    context.route(LOCK, lambda route: route.fulfill(body=body, headers=HEADERS))
