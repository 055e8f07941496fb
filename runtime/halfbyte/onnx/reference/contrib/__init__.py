"""ONNX Runtime's own operators, of the domain com.microsoft, one file per family."""
