"""Making trained models small: Q4_0, Q8_0, F16 or BF16, from a file to a GGUF file."""

from halfbyte.quantize.quantizer import quantize_file
from halfbyte.quantize.report import Report

__all__ = ["Report", "quantize_file"]
