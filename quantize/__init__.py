"""Making trained models small: `quantize_file` writes GGUF, `quantize_onnx` writes ONNX."""

from halfbyte.quantize.onnx import Options, quantize_onnx
from halfbyte.quantize.quantizer import quantize_file
from halfbyte.quantize.report import Report

__all__ = ["Options", "Report", "quantize_file", "quantize_onnx"]
