"""Definitions of ONNX's operators in NumPy: a function per operator and version, a file per family.

ONNX Runtime's own operators are in `contrib`, those of ONNX's machine learning domain in `ml`, and
those that only fused graphs have in `own`. `registry` declares and finds definitions. A function's
signature is the rule for its inputs and attributes (`signatures`), which sessions check before
anything runs; the element types are those of ONNX's schemas (`type_table`, written by
`tools/make_type_table.py`). A node's inputs are checked before its definition or its lowering rule
sees them, and types are checked from node to node before nodes are fused (`types`).

docs/operators.md lists all operators, and which of them have kernels. Importing this package
imports every module in it, which declares its operators.
"""

import pkgutil
from importlib import import_module

from halfbyte.onnx.reference.registry import Body, Definition, define, find, lookup, operators

__all__ = ["Body", "Definition", "define", "find", "lookup", "operators"]

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)
