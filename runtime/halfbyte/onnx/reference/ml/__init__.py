"""ONNX's operators of classic machine learning, of the domain ai.onnx.ml."""
