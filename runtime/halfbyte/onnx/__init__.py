"""ONNX graphs: files, what their operators mean, and how graphs become programs."""
