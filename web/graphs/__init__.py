"""ONNX models in the page: any model with any input, and search by meaning.

`desk.Desk` takes the page's requests; nothing here is imported before the first of them.
"""
