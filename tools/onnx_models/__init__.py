"""Well-known models in ONNX, as exporters write them, for tests and benchmarks.

`make(name)` returns a model; ``python -m tools.onnx_models NAME -o FILE`` writes one; ``python -m
tools.onnx_models.validate`` compares those of full size with ONNX Runtime. MiniLM has its trained
weights, all others seeded random ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import onnx
from tools.onnx_models import bert, gpt2, minilm, mobilenet, resnet
from tools.onnx_models.builder import save

__all__ = ["CONFIGS", "make", "save"]

_FAMILIES: list[tuple[dict[str, Any], Callable[[Any], onnx.ModelProto]]] = [
    ({"minilm": minilm.CONFIG}, minilm.build),
    (bert.SIZES, bert.build),
    (mobilenet.SIZES, mobilenet.build),
    (resnet.SIZES, resnet.build),
    (gpt2.SIZES, gpt2.build),
]
CONFIGS: dict[str, Any] = {name: c for configs, _ in _FAMILIES for name, c in configs.items()}


def make(name: str, **options: Any) -> onnx.ModelProto:
    """A model by name; options replace fields of its configuration, such as ``opset=13``.

    Raises
    ------
    ValueError
        There is no model of this name, or its configuration has no such field.
    """
    for configs, build in _FAMILIES:
        if name in configs:
            config = configs[name]
            known = {field.name for field in dataclasses.fields(config)}
            if wrong := sorted(set(options) - known):
                raise ValueError(
                    f"{name}: expected options out of {', '.join(sorted(known))}; "
                    f"found {', '.join(wrong)}"
                )
            return build(dataclasses.replace(config, **options))
    raise ValueError(f"expected a model out of {', '.join(CONFIGS)}; found {name!r}")
