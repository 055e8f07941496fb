"""Backends of encoders: those of graphs, whose kernels of attention they use."""

from tests.onnx.conftest import backend

__all__ = ["backend"]
