"""A model of any kind that the user opened, with its labels and its tokenizer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from halfbyte.text.tokenizers import Tokenizer
from halfbyte.web.graphs import display, feeds
from halfbyte.web.graphs.graph_model import GraphModel
from halfbyte.web.graphs.naming import IMAGENET, for_classes

RUN_SECONDS, RUNS = 0.5, 20  # a model is run repeatedly up to this time and number


class Opened:
    """One model; `names` are those of ImageNet's classes, or none."""

    def __init__(self, model: GraphModel) -> None:
        self.model = model
        self.names: Sequence[str] = ()
        self._labels: list[str] = []
        self._tokenizer: Tokenizer | None = None

    def take(self, side: list[str] | Tokenizer) -> None:
        """Use these labels, or this tokenizer."""
        if isinstance(side, list):
            self._labels = side
        else:
            self._tokenizer = side

    @property
    def is_imagenet(self) -> bool:
        """Whether an output has as many classes as ImageNet."""
        return any(
            output.shape[-1:] and output.shape[-1] in IMAGENET for output in self.model.outputs
        )

    def facts(self) -> dict[str, Any]:
        """What the page shows of it, and from what it builds the form."""
        outputs = [
            {"name": o.name, "type": o.type, "declared": ["?" if d is None else d for d in o.shape]}
            for o in self.model.outputs
        ]
        return {
            **self.model.facts(),
            "inputs": [feeds.describe(arg, self.is_imagenet) for arg in self.model.inputs],
            "outputs": outputs,
            "labels": len(self._labels),
            "tokenizer": self._tokenizer is not None,
        }

    async def run(
        self, asked: Mapping[str, Any], pixels: Mapping[str, Any], stopped: Callable[[], bool]
    ) -> dict[str, Any]:
        """Run it several times: the outputs of the first run, and the times.

        For `asked` and `pixels` see `feeds`.
        """
        encode = self._tokenizer.encode if self._tokenizer is not None else None
        arrays = feeds.feeds(self.model.inputs, asked, pixels, encode)
        results, first, _ = self.model.timed(arrays)
        seconds: list[float] = []
        kernels, start = 0.0, time.perf_counter()
        while len(seconds) < RUNS and time.perf_counter() - start < RUN_SECONDS:
            await asyncio.sleep(0)
            if stopped() and seconds:
                break
            _, taken, in_kernels = self.model.timed(arrays)
            seconds.append(taken)
            kernels += in_kernels
        outputs = zip(self.model.outputs, results, strict=True)
        return {
            "outputs": [
                display.describe(o.name, value, self._named(value)) for o, value in outputs
            ],
            "first": first,
            "seconds": seconds,
            "kernels": kernels / max(sum(seconds), 1e-9),
            "fed": [f"{name} {list(value.shape)}" for name, value in arrays.items()],
            **self.model.facts(),
        }

    def _named(self, value: Any) -> Sequence[str]:
        return self._labels or for_classes(self.names, getattr(value, "size", 0))
