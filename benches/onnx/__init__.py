"""halfbyte's `InferenceSession` beside ONNX Runtime's."""
