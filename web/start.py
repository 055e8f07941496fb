"""What a tab's start asks: do the kernels work, and which data does it keep for the next start?"""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Collection
from pathlib import Path

import halfbyte
from halfbyte.core.backends.libraries import library
from halfbyte.errors import UnsupportedError

# A .pyc begins with a magic number, flags, and 8 bytes that identify the source. These flags say
# that the source is not checked: the archive is kept under a hash of all packages.
_UNCHECKED = b"\x01\0\0\0" + bytes(8)


def kernels_work() -> bool:
    """Whether the kernels that are here compute, and correctly, in this browser."""
    try:
        library()
    except UnsupportedError:
        return False
    return True


def standard_modules() -> list[str]:
    """The modules of the standard library that have been imported."""
    names = sys.stdlib_module_names
    return sorted(
        name
        for name, module in sys.modules.items()
        if name.split(".")[0] in names and getattr(module, "__spec__", None) and name != "__main__"
    )


def bytecode(but: Collection[str] = ()) -> bytes:
    """A zip archive of the compiled modules of all packages, to be unpacked over them.

    Modules with names in `but`, which another archive has, are left out.
    """
    site = Path(halfbyte.__path__[0]).parent
    target = io.BytesIO()
    modules = [module for name, module in sys.modules.items() if name not in but]
    paths = {Path(getattr(module, "__cached__", None) or "") for module in modules}
    with zipfile.ZipFile(target, "w") as archive:
        for path in sorted(paths):
            if path.is_relative_to(site) and path.is_file():
                data = path.read_bytes()
                name = path.relative_to(site).as_posix()
                archive.writestr(zipfile.ZipInfo(name), data[:4] + _UNCHECKED + data[16:])
    return target.getvalue()
