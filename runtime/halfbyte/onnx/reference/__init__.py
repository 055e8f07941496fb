"""Definitions of ONNX's operators in NumPy: a function per operator and version, a file per family.

ONNX Runtime's own operators are in `contrib`, those of ONNX's machine learning domain in `ml`, and
those that only fused graphs have in `own`. `registry` declares and finds definitions. A function's
signature is the rule for its inputs and attributes (`signatures`), which sessions check before
anything runs; the element types are those of ONNX's schemas (`type_table`, written by
`tools/make_type_table.py`). A node's inputs are checked before its definition or its lowering rule
sees them, and types are checked from node to node before nodes are fused (`types`).

docs/operators.md lists all operators, and which of them have kernels. A module of definitions is
imported when an operator of it is first looked up (`operator_index`, written by
`tools/make_operator_index.py`).
"""

from halfbyte.onnx.reference.registry import Body, Definition, define, find, lookup, operators

__all__ = ["Body", "Definition", "define", "find", "lookup", "operators"]
