"""ONNX graphs: what their operators mean, and how graphs become programs."""

import sys

from halfbyte.formats.onnx import dtypes

__all__ = ["dtypes"]

sys.modules[f"{__name__}.dtypes"] = dtypes  # the types are the reader's; here by their second name
