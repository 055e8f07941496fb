"""The site with the bench's page, its models and its peers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from benches import prepare

from halfbyte.web.site import STORYTELLER, Site, make_site

PAGE = Path(__file__).parent / "page"


def make_bench_site(models: Iterable[str]) -> tuple[Site, dict[str, str]]:
    """The site, and the models' addresses by name."""
    files = {**make_site().files, **{f"bench/{path.name}": path for path in PAGE.iterdir()}}
    addresses = {}
    for name in models:
        if name == "storyteller":
            addresses[name] = f"/models/{STORYTELLER}"
            continue
        path = prepare.model(name)
        addresses[name] = f"/models/{path.name}"
        files[f"models/{path.name}"] = path
    for engine in prepare.WLLAMA:
        files |= prepare.or_reason(partial(prepare.wllama, engine), f"{engine}/index.js")
    return Site(files), addresses
