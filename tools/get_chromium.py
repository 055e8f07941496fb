"""Find or install a Chromium for the tests, and print its path.

In this order: $HALFBYTE_CHROMIUM; one on the PATH; Playwright's own; npm's @sparticuz/chromium
(needs npm, not root); Debian's chromium-headless-shell (as root). Never sudo.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-headless-shell", "google-chrome", "chromium-browser")
NPM = "@sparticuz/chromium@141.0.0"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "halfbyte" / "chromium"


def run(*command: str | Path) -> str:
    """Output of a command; "" where it fails or is missing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def starts(path: str | None) -> bool:
    """Whether this is a browser that starts here."""
    return bool(path) and "Chrom" in run(str(path), "--version", "--no-sandbox")


def chosen() -> str | None:
    """The path in the environment."""
    return os.environ.get("HALFBYTE_CHROMIUM")


def on_path() -> str | None:
    """The first one on the PATH."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def from_playwright() -> str | None:
    """Playwright's headless shell, downloaded where its host is reachable."""
    run(sys.executable, "-m", "playwright", "install", "--only-shell", "chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        return playwright.chromium.executable_path


def from_npm() -> str | None:
    """npm's Chromium, unpacked into a cache."""
    if not shutil.which("npm"):
        return None
    CACHE.mkdir(parents=True, exist_ok=True)
    run("npm", "install", "--silent", "--prefix", CACHE, NPM)
    script = (
        "const chromium = await import('@sparticuz/chromium');"
        "console.log(await chromium.default.executablePath());"
    )
    done = subprocess.run(
        ["node", "--input-type=module", "-e", script],
        cwd=CACHE, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip() or None


def from_debian() -> str | None:
    """Debian's package, for root."""
    if not hasattr(os, "geteuid") or os.geteuid() or not shutil.which("apt-get"):
        return None
    run("apt-get", "update", "-qq")
    run("apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium-headless-shell")
    return on_path()


def get_chromium() -> str:
    """Path of a browser that starts; raises SystemExit with a list of attempts."""
    tried = []
    for source in (chosen, on_path, from_playwright, from_npm, from_debian):
        path = source()
        if path and starts(path):
            return path
        tried.append(f"{source.__name__}: {path or 'none'}")
    raise SystemExit("get_chromium: no browser that starts; tried " + ", ".join(tried))


if __name__ == "__main__":
    print(get_chromium())
