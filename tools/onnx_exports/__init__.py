"""Architectures with random weights, as torch exports them to ONNX, for the benchmark of a zoo.

``python -m tools.onnx_exports NAME ... -o FOLDER`` runs in an environment with torch, torchvision,
timm, transformers and onnxscript (`benches.prepare` makes one) and imports nothing of halfbyte.
Sizes are reduced so that one run takes at most some 0.3 s.
"""
