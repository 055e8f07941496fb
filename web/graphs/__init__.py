"""ONNX models in the page: any model with any input, and search by meaning.

`handler.Handler` handles the page's requests; nothing here is imported before the first request.
"""
