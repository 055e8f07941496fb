"""ONNX Runtime's setting for exact sums of int8 products.

On processors without a dot product of bytes it otherwise clips them to 16 bits. The setting has an
effect from the extended optimizations on, where weights are constants.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx

EXACT = ("session.x64quantprecision", "1")


def exact_sums(options: Any, path: Path | str) -> None:
    """Set it where a file has such products; without them it may fail (ONNX Runtime 1.31)."""
    nodes = onnx.load(path, load_external_data=False).graph.node
    if any(part in n.op_type for n in nodes for part in ("Quantize", "QLinear", "Integer")):
        options.add_session_config_entry(*EXACT)
