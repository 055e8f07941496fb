"""Language models: files, tokens, architectures, generation, chat."""
