"""Find or install QEMU's emulator of AArch64 programs for the tests, and print its path.

In this order: $HALFBYTE_QEMU; one on the PATH; Debian's qemu-user-static, installed as root, or
unpacked into a cache without root. Never sudo. Linux only: QEMU emulates programs nowhere else.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NAMES = ("qemu-aarch64-static", "qemu-aarch64")
PACKAGE = "qemu-user-static"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "halfbyte" / "qemu"


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Output of a command; "" where it fails or is missing."""
    try:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, check=False, timeout=600
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def starts(path: str | None) -> bool:
    """Whether this is an emulator that starts here."""
    return bool(path) and "qemu-aarch64" in run(str(path), "--version")


def chosen() -> str | None:
    """The path in the environment."""
    return os.environ.get("HALFBYTE_QEMU")


def on_path() -> str | None:
    """The first one on the PATH."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def from_debian() -> str | None:
    """Debian's package, for root."""
    if not hasattr(os, "geteuid") or os.geteuid() or not shutil.which("apt-get"):
        return None
    run("apt-get", "update", "-qq")
    run("apt-get", "install", "-y", "-qq", "--no-install-recommends", PACKAGE)
    return on_path()


def from_cache() -> str | None:
    """Debian's package, downloaded and unpacked into a cache without root."""
    path = CACHE / NAMES[0]
    if path.exists():
        return str(path)
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        work = Path(name)
        run("apt-get", "download", "-qq", PACKAGE, cwd=work)
        for package in work.glob("*.deb"):
            run("dpkg-deb", "--extract", package, work)
        unpacked = work / "usr/bin" / NAMES[0]  # one of many in the package
        return str(unpacked.replace(path)) if unpacked.exists() else None


def get_qemu() -> str:
    """Path of an emulator that starts; raises SystemExit with a list of attempts."""
    if sys.platform != "linux":
        raise SystemExit(f"get_qemu: QEMU emulates AArch64 programs on Linux, not {sys.platform}")
    tried = []
    for source in (chosen, on_path, from_debian, from_cache):
        path = source()
        if path and starts(path):
            return path
        tried.append(f"{source.__name__}: {path or 'none'}")
    raise SystemExit(
        f"get_qemu: no {NAMES[0]} that starts; tried {', '.join(tried)}; "
        f"Debian and Ubuntu have it in {PACKAGE}, others in qemu-user"
    )


if __name__ == "__main__":
    print(get_qemu())
