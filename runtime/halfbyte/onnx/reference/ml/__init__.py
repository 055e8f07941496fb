"""ONNX's operators of classic machine learning, in the domain ai.onnx.ml."""
