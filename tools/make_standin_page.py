"""Write docs/standins.md: the members of `onnxruntime`, and whether halfbyte has them.

python tools/make_standin_page.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import onnxruntime

from halfbyte.onnx.interface.functions import do_nothing
from halfbyte.onnx.standin import PACKAGE, VERSION, contents

TARGET = Path(__file__).parents[1] / "docs/standins.md"
START = "<!-- Members: written by tools/make_standin_page.py -->"
CLASSES = (
    "InferenceSession", "IOBinding", "OrtValue", "SessionOptions", "RunOptions", "NodeArg",
    "ModelMetadata", "OrtDevice", "OrtMemoryInfo", "SparseTensor", "OrtEpDevice",
)  # fmt: skip
THERE, IGNORED, REFUSED, MISSING = "there", "accepted, without effect", "refused", "missing"
WIDTH = 120
INTERNAL = ("import_capi_exception",)
TABLE = """
### {title}

| {where} | members |
|---|---|
{rows}
"""


def members(thing: Any) -> list[str]:
    """The public members of a module or a class that are not modules."""
    return [
        name
        for name in dir(thing)
        if not name.startswith("_")
        and name not in INTERNAL
        and not isinstance(getattr(thing, name), ModuleType)
    ]


def state(ours: Any, name: str) -> str:
    """What halfbyte does about a member, as its description says."""
    if not hasattr(ours, name) and name not in getattr(ours, "__annotations__", ()):
        return MISSING
    member = getattr(ours, name, None)
    text = str(getattr(member, "__doc__", None) or "")
    if member is do_nothing or text.startswith("Do nothing"):
        return IGNORED
    return REFUSED if text.startswith("Refuse") else THERE


def wrapped(first: str, names: list[str]) -> Iterator[str]:
    """Rows of at most `WIDTH` characters."""
    row = f"| {first} |"
    for name in names:
        if len(row) + len(name) + 4 > WIDTH:
            yield row.rstrip(",") + " |"
            row = "| |"
        row += f" {name},"
    if names:
        yield row.rstrip(",") + " |"


def table(title: str, theirs: Any, ours: Any) -> str:
    """The members of a module or a class, by what halfbyte does about them."""
    groups: dict[str, list[str]] = {}
    for name in members(theirs):
        groups.setdefault(state(ours, name), []).append(f"`{name}`")
    kinds = (kind for kind in (THERE, IGNORED, REFUSED, MISSING) if kind in groups)
    rows = [row for kind in kinds for row in wrapped(kind, groups[kind])]
    return TABLE.format(title=title, where="in halfbyte", rows="\n".join(rows))


def tables() -> Iterator[str]:
    """All tables."""
    modules = PACKAGE.modules(contents())
    ours = modules["onnxruntime"]
    yield table("`onnxruntime`", onnxruntime, ours)
    for name in CLASSES:
        yield table(f"`{name}`", getattr(onnxruntime, name), getattr(ours, name))
    rows = [
        row
        for name, module in modules.items()
        if name.count(".") and ".capi" not in name
        for row in wrapped(f"`{name.removeprefix('onnxruntime.')}`", [
            f"`{member}`" for member in members(module)
        ])
    ]  # fmt: skip
    yield TABLE.format(title="Submodules", where="submodule", rows="\n".join(rows))


def page(text: str) -> str:
    """The page with the tables after its mark."""
    head = text[: text.index(START) + len(START)]
    intro = f"\n\nNames of ONNX Runtime {VERSION}, without those that begin with an underscore:\n"
    return head + intro + "".join(tables())


if __name__ == "__main__":
    TARGET.write_text(page(TARGET.read_text("utf-8")), "utf-8")
