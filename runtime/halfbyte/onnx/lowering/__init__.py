"""From ONNX nodes to the operators of programs: a file a family; `registry` says how.

Importing this package imports every module in it, which declares its rules.
"""

import pkgutil
from importlib import import_module

from halfbyte.onnx.capture import Lowering
from halfbyte.onnx.lowering.move import permuted
from halfbyte.onnx.lowering.registry import lower, lowered, rule_of

__all__ = ["LOWERING", "lower", "lowered", "rule_of"]

LOWERING = Lowering(rule_of, permuted)

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
