"""Hugging Face's folders: config, weights and tokenizer files in GGUF's names and keys."""
