"""Hugging Face folders: config, weights and tokenizer files under GGUF's names and keys.

`folder` reads a folder with four others: ``formats.checkpoints`` finds the weights (safetensors or
PyTorch -> `Checkpoint`), `names` translates config.json, names and orders, `shapes` compares every
tensor with config.json, `tokenizer` translates the tokenizer.
"""
