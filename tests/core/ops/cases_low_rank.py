"""Cases of products with matrices of few columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tests.core.ops.case import Case, activations

from halfbyte.core import ops
from halfbyte.core.ops.panels import pack_panels


def _add_low_rank() -> Iterator[Case]:
    """Parts of the columns of t; the last panel may have fewer outputs."""
    for n, m, r, c, offset in (
        (1, 1, 1, 1, 0), (1, 16, 16, 16, 0), (1, 576, 16, 48, 16), (3, 33, 5, 7, 2),
        (4, 64, 8, 8, 0), (9, 50, 17, 40, 23), (70, 96, 16, 32, 16),
    ):  # fmt: skip
        y, t, b = activations(n, m), activations(n, c), activations(m, r, spread=r**-0.5)
        scale = np.array([0.75], np.float32)
        integers = np.clip(np.rint(b * 40), -128, 127)
        panels = pack_panels(integers).astype(np.int8)
        d = activations(1, len(panels))[0] * np.float32(0.01) + np.float32(0.01)
        operands = {"y": y, "t": t, "b": panels, "d": d, "scale": scale}
        where = {"offset": offset}
        yield Case(f"{n}x{m}-{r}of{c}", ops.add_low_rank, operands, where)


FAMILIES = (_add_low_rank,)
