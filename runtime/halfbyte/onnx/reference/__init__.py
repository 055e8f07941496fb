"""What each ONNX operator means, in NumPy: one function an operator, a file a family.

`registry` says how they are declared and found. Importing this package imports every module in it,
which declares its operators.
"""

import pkgutil
from importlib import import_module

from halfbyte.onnx.reference.registry import Body, Definition, define, find, lookup, operators

__all__ = ["Body", "Definition", "define", "find", "lookup", "operators"]

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)
