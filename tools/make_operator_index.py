"""Write the list of modules that define ONNX's operators.

    python tools/make_operator_index.py

Modules of definitions are imported when an operator of theirs is first looked up: importing all of
them takes longer than opening a small model.
"""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from halfbyte.onnx import reference
from halfbyte.onnx.reference import registry

TARGET = Path(__file__).parents[1] / "runtime/halfbyte/onnx/reference/operator_index.py"
HEAD = '''"""The operators of each module of definitions; made by tools/make_operator_index.py.

Operators of other domains than ONNX's own are written as domain:name.
"""

OPERATORS = {
'''


def found() -> dict[str, set[str]]:
    """The operators of each module; it has to be called before any module is imported."""
    modules: dict[str, set[str]] = {}
    declare = registry.define

    def define(name: str, *, domain: str = "", **traits: Any) -> Any:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_name != "<module>":
            frame = frame.f_back
        module = frame.f_globals["__name__"].removeprefix(f"{reference.__name__}.")
        modules.setdefault(module, set()).add(f"{domain}:{name}" if domain else name)
        return declare(name, domain=domain, **traits)

    registry.define = define
    for module in pkgutil.walk_packages(reference.__path__, f"{reference.__name__}."):
        import_module(module.name)
    return modules


def text(modules: dict[str, set[str]]) -> str:
    """The text of a module that lists them."""
    lines = [HEAD]
    for module, names in sorted(modules.items()):
        lines.append(f'    "{module}": (\n')
        line = ""
        for name in sorted(names):
            if len(line) + len(name) > 85:
                lines.append(f'        "{line} "\n')
                line = ""
            line += f" {name}" if line else name
        lines += [f'        "{line}"\n', "    ),\n"]
    return "".join([*lines, "}  # fmt: skip\n"])


if __name__ == "__main__":
    TARGET.write_text(text(found()), encoding="utf-8")
    print(f"wrote {TARGET}")
