"""Names of the engines that run in a tab; importing this needs no browser."""

from __future__ import annotations

from benches.prepare import WLLAMA

ENGINES = {
    "relaxed": "halfbyte, relaxed SIMD",
    "simd128": "halfbyte, SIMD128",
    "numpy": "halfbyte, NumPy",
    **{engine: f"wllama {version}" for engine, version in WLLAMA.items()},
}
