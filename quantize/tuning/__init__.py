"""Tuning: a quantized model whose logits match the float model's.

`gradients` has the gradient of each operator, and `reverse` is the pass that makes a program of
gradients from a captured one. `pieces` cuts a model into layers, `shape` has the programs of layers
that do the same, `learned` is what is learned of a tensor, and `tuner` learns it, from a float
model, a quantized one and tokens.
"""
