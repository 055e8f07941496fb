"""ONNX Runtime's own operators, of the domain com.microsoft, a file a family."""
