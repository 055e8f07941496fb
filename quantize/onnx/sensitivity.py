"""Which layers cost a quantized model its accuracy, and which of them to raise.

Layers are rounded while all others are exact, and their loss measured: 1 - cosine of the worst
output. They are measured in groups, of which those with the largest losses are split first, while
there is time. Then the fewest groups are raised, in the order of loss by cost, that bring the loss
of all others together below the bound; that is measured too, for losses do not just add up.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from halfbyte.quantize.onnx.gates import Gates, Layer
from halfbyte.quantize.onnx.samples import Feeds
from halfbyte.quantize.report import LayerRow

MAX_LOSS = {"int8": 0.002, "made-up": 0.001, "int4": 0.03}
"""1 - cosine of the worst output, above which layers are raised; int8 on made-up inputs, whose
losses are often smaller than those on real ones, and for files with int4 weights."""
SECONDS = 20.0  # of measuring groups
_GROUP = 4  # layers that are measured together at first
TOGETHER = 16  # samples at most on which choices are measured; groups are on the worst of them
_RUNS = 20  # of a sample, in choosing; fewer samples are taken where this lasts longer
_SAFETY = 0.7  # of the bound: raised layers leave some loss, and other inputs more
_NEGLIGIBLE = 0.05  # of the bound: a loss below which a group is not split

Progress = Callable[[int, int], None]
Group = tuple[float, tuple[Layer, ...]]  # its loss


@dataclass(frozen=True)
class Search:
    """What was found.

    Attributes
    ----------
    raised : tuple of str
        Values, and others within the same layers, to be computed more precisely.
    rows : tuple of LayerRow
        All layers, the most sensitive first.
    seconds : float
        What it took.
    """

    raised: tuple[str, ...]
    rows: tuple[LayerRow, ...]
    seconds: float


def search(gates: Gates, samples: Sequence[Feeds], bound: float, progress: Progress) -> Search:
    """Measure layers, and choose those to raise."""
    everything = {layer.value for layer in gates.layers}
    begin = time.perf_counter()
    gates.run(samples[0], ())  # prepares
    start = time.perf_counter()
    pairs = [(samples[0], gates.run(samples[0], ()))]
    possible = SECONDS / max(time.perf_counter() - start, 1e-6)  # runs
    count = min(TOGETHER, int(possible / _RUNS))
    pairs += [(feeds, gates.run(feeds, ())) for feeds in samples[1:count]]
    losses = {id(pair): _worst(gates.losses([pair], everything)) for pair in pairs}
    worst = sorted(pairs, key=lambda pair: -losses[id(pair)])
    worst = worst[: max(1, int(possible / (2 * len(gates.layers) or 1)))]

    def loss(layers: Sequence[Layer]) -> float:
        return _worst(gates.losses(worst, {layer.value for layer in layers}))

    groups = _split(gates.layers, loss, _NEGLIGIBLE * bound, progress)
    weights = sum(layer.weights for layer in gates.layers)
    groups.sort(key=lambda group: -group[0] / _cost(group[1], weights, len(gates.layers)))

    def remaining(count: int) -> float:
        """The loss with the first `count` groups raised."""
        raised = {layer.value for _, group in groups[:count] for layer in group}
        return _worst(gates.losses(pairs, everything - raised))

    low, high = -1, len(groups)  # too few, enough
    bound *= _SAFETY
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if remaining(middle) <= bound else (middle, high)
    chosen = [layer for _, group in groups[:high] for layer in group]
    rows = [
        LayerRow(layer.label, value / len(group), len(group), layer in chosen)
        for value, group in sorted(groups, key=lambda group: -group[0] / len(group[1]))
        for layer in group
    ]
    raised = tuple(name for layer in chosen for name in layer.covered)
    return Search(raised, tuple(rows), time.perf_counter() - begin)


def _split(
    layers: Sequence[Layer],
    loss: Callable[[Sequence[Layer]], float],
    negligible: float,
    progress: Progress,
) -> list[Group]:
    """Groups with their losses; those with large ones are single layers, as far as time allows."""
    start, count = time.perf_counter(), 0
    done: list[Group] = []
    pending: list[tuple[float, int, tuple[Layer, ...]]] = []

    def measure(group: Sequence[Layer]) -> None:
        nonlocal count
        count += 1
        heapq.heappush(pending, (-loss(group), count, tuple(group)))
        progress(min(int(time.perf_counter() - start), int(SECONDS)), int(SECONDS))

    size = _GROUP
    for first in range(0, len(layers), size):
        measure(layers[first : first + size])
    while pending:
        value, _, group = heapq.heappop(pending)
        if len(group) == 1 or -value <= negligible or time.perf_counter() - start > SECONDS:
            done.append((-value, group))
            continue
        measure(group[: len(group) // 2])
        measure(group[len(group) // 2 :])
    return done


def _cost(group: Sequence[Layer], weights: int, layers: int) -> float:
    """Of raising layers: their shares of all weights (bytes) and of all layers (time)."""
    return sum(layer.weights for layer in group) / max(weights, 1) + len(group) / layers


def _worst(losses: Mapping[str, float]) -> float:
    return max(losses.values(), default=0.0)
