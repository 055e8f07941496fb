"""From ONNX nodes to the operators of programs: a file a family; `registry` says how.

Importing this package imports every module in it, which declares its rules.
"""

import pkgutil
from importlib import import_module

from halfbyte.onnx.lowering.registry import lower, lowered, rule_of

__all__ = ["lower", "lowered", "rule_of"]

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
