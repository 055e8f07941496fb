"""An engine with a graph in a tab, and the site whose page loads it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benches import prepare
from benches.browser.measure import wait_for_start
from benches.onnx.measure import Array, Feeds
from playwright.sync_api import Page

from halfbyte.web.site import Site, make_site

PAGE = Path(__file__).parent / "page"


class Tab:
    """One engine with one file."""

    def __init__(self, page: Page, engine: str, threads: int, address: str) -> None:
        self.engine, self.threads, self._page = engine, threads, page
        page.goto(f"{address}&engine={engine}&threads={threads}")
        self.load_seconds = wait_for_start(page, engine)

    def output(self, feeds: Feeds) -> Array:
        """The first output, which has a row for each of the inputs'."""
        rows = len(feeds["input_ids"])
        [first] = self._run(feeds, 1)["outputs"]
        return _array(*first[1:]).reshape(rows, -1)

    def outputs(self, feeds: Feeds) -> list[Array]:
        """All outputs of one run."""
        return [_array(*one[1:]) for one in self._run(feeds, 1, every=True)["outputs"]]

    def seconds(self, feeds: Feeds, runs: int) -> list[float]:
        """The seconds of each of several runs in a row."""
        return [float(s) for s in self._run(feeds, runs)["seconds"]]

    def _run(self, feeds: Feeds, runs: int, *, every: bool = False) -> Any:
        listed = [
            [name, x.dtype.name, list(x.shape), base64.b64encode(x.tobytes()).decode()]
            for name, x in feeds.items()
        ]
        script = "(asked) => window.measure(...asked)"
        return self._page.evaluate(script, [listed, runs, every])


def _array(kind: str, shape: Sequence[int], text: str) -> Array:
    return np.frombuffer(base64.b64decode(text), np.dtype(kind)).reshape(shape)


def address(site: str, path: Path) -> str:
    """Of the page, with a file of the site of `make_onnx_site`; the engine is still to be added."""
    return f"{site}bench/onnx.html?model=/models/{path.name}"


def make_onnx_site(files: Sequence[Path]) -> Site:
    """halfbyte's site with the bench's page, its models and its peers in it."""
    pages = {f"bench/{path.name}": path for path in PAGE.iterdir()}
    models: dict[str, Path | bytes] = {}
    for path in files:
        models[f"models/{path.name}"] = models[f"models/{path.stem}/onnx/model.onnx"] = path
        models[f"models/{path.stem}/config.json"] = b'{"model_type": "bert"}'
    peers = {
        **prepare.or_reason(prepare.onnxruntime_web, f"{prepare.ORT_WEB}/ort.wasm.min.mjs"),
        **prepare.or_reason(prepare.transformers_js, "transformers.js/transformers.min.js"),
    }
    return Site({**make_site().files, **pages, **models, **peers})
