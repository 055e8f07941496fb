"""Sites of the page with some of their files changed."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from halfbyte.web.site import Site


def content(site: Site, name: str) -> bytes:
    """A file's bytes."""
    found = site.files[name]
    return found.read_bytes() if isinstance(found, Path) else found


def changed(site: Site, files: dict[str, bytes]) -> Site:
    """The site with other files, whose hashes it tells: a browser keeps only what matches them."""
    settings = json.loads(content(site, "site.json"))
    settings["files"] |= {name: sha256(data).hexdigest() for name, data in files.items()}
    return replace(site, files={**site.files, **files, "site.json": json.dumps(settings).encode()})


def beginning(site: Site, script: str, *names: str) -> Site:
    """The site with a script at the beginning of some of its modules."""
    return changed(site, {name: script.encode() + content(site, name) for name in names})
