"""Lowering: rules by which ONNX nodes become operators of programs, in a file for each family.

`registry` says what a rule is. Convolutions and pools compute with channels last. QDQ graphs and
the QLinear operators become products of integers; MatMulNBits gets the block formats of language
models, and their kernels.

Importing this package imports all of its modules, which declares their rules.
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
