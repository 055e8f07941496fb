"""Which architectures there are, and how one of them is exported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

Inputs = dict[str, torch.Tensor]
Make = Callable[[], tuple[nn.Module, Inputs]]


@dataclass(frozen=True)
class Architecture:
    """A module with inputs, and the exporter: TorchDynamo's, or the older TorchScript's."""

    make: Make
    script: bool


MODELS: dict[str, Architecture] = {}


def model(name: str, *, script: bool = False) -> Callable[[Make], Make]:
    """Register the function below as an architecture of this name."""

    def register(make: Make) -> Make:
        MODELS[name] = Architecture(make, script)
        return make

    return register


class Part(nn.Module):
    """A module called with named inputs, and what is taken of its output."""

    def __init__(self, module: nn.Module, names: list[str], take: str, **options: Any) -> None:
        super().__init__()
        self.module, self.names, self.take, self.options = module, names, take, options

    def forward(self, *inputs: torch.Tensor) -> Any:
        """The output of this name, or the element of this number, of the module's."""
        result = self.module(**dict(zip(self.names, inputs, strict=True)), **self.options)
        return result[int(self.take)] if self.take.isdigit() else getattr(result, self.take)


def part(module: nn.Module, inputs: Inputs, take: str, **options: Any) -> tuple[nn.Module, Inputs]:
    """A `Part` and its inputs."""
    return Part(module, list(inputs), take, **options), inputs


def tokens(high: int, length: int = 64, rows: int = 1) -> torch.Tensor:
    """Token ids below `high`, of shape (rows, length)."""
    return torch.randint(1, high, (rows, length))


def export(name: str, folder: Path) -> None:
    """Write NAME.onnx, and NAME.npz with the inputs it was exported with."""
    torch.manual_seed(0)
    architecture = MODELS[name]
    module, inputs = architecture.make()
    partial = folder / f"partial-{name}.onnx"
    options: dict[str, Any] = {"input_names": list(inputs), "dynamo": not architecture.script}
    if architecture.script:
        options["opset_version"] = 17
    else:
        options["external_data"] = False
    with torch.inference_mode():
        torch.onnx.export(module.eval(), tuple(inputs.values()), str(partial), **options)
    arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
    np.savez(folder / f"{name}.npz", **arrays)  # type: ignore[arg-type]
    partial.replace(folder / f"{name}.onnx")
