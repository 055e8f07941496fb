"""From logits to a token."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from halfbyte.errors import HalfbyteError


class Sampler:
    """Chooses the next token; temperature, then top-k, then top-p (nucleus) sampling.

    Parameters
    ----------
    temperature : float
        0 is greedy: the likeliest token, the lowest id among equals.
    top_k : int
        Keep the k likeliest tokens; 0 keeps all.
    top_p : float
        Keep the smallest set of likeliest tokens whose probability reaches p; 1 keeps all.
        Source: Holtzman et al. 2020.
    seed : int or None
        Of NumPy's PCG64; None takes one from the system.
    """

    def __init__(
        self,
        temperature: float = 0.8,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int | None = None,
    ) -> None:
        if not (math.isfinite(temperature) and temperature >= 0):
            raise HalfbyteError(f"temperature {temperature}: expected 0 or more")
        if top_k < 0:
            raise HalfbyteError(f"top_k {top_k}: expected 0 (all) or more")
        if not 0 < top_p <= 1:
            raise HalfbyteError(f"top_p {top_p}: expected more than 0, at most 1")
        self.temperature, self.top_k, self.top_p = temperature, top_k, top_p
        self._random = np.random.default_rng(seed)

    def sample(self, logits: npt.NDArray[np.float32]) -> int:
        """The next token of logits [vocabulary]."""
        if self.temperature == 0:
            return int(logits.argmax())
        ids = None
        if 0 < self.top_k < len(logits):
            ids = np.argpartition(-logits, self.top_k - 1)[: self.top_k]
            logits = logits[ids]
        scaled = (logits.astype(np.float64) - float(logits.max())) / self.temperature
        p = np.exp(scaled)
        if self.top_p < 1:
            order = np.argsort(-p, kind="stable")
            cumulative = np.cumsum(p[order])
            keep = int(np.searchsorted(cumulative, self.top_p * cumulative[-1])) + 1
            chosen = order[:keep]
            ids, p = chosen if ids is None else ids[chosen], p[chosen]
        cumulative = np.cumsum(p)
        pick = int(np.searchsorted(cumulative, self._random.random() * cumulative[-1], "right"))
        pick = min(pick, len(p) - 1)
        return pick if ids is None else int(ids[pick])
