"""ONNX Runtime's execution providers: here, the processor only."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from halfbyte.onnx.session.errors import TypeProblem, ValueProblem

PROVIDER = "CPUExecutionProvider"


def check_providers(
    providers: Sequence[Any] | None, options: Sequence[Mapping[str, Any]] | None
) -> None:
    """Warn of providers that do not exist here; the processor is used instead.

    Parameters
    ----------
    providers : sequence of str or (str, dict), optional
    options : sequence of dict, optional
        One for each of `providers`, which must be names then.

    Raises
    ------
    ValueProblem, TypeProblem
        They have another form.
    """
    if providers is None:
        return
    if isinstance(providers, str) or not isinstance(providers, Sequence):
        raise TypeProblem(f"providers {providers!r}: expected a sequence of names")
    names = [p[0] if isinstance(p, tuple) and _is_pair(p) else p for p in providers]
    if not all(isinstance(name, str) for name in names):
        raise ValueProblem(f"providers {providers!r}: expected names or (name, dict) pairs")
    if options is not None:
        fits = isinstance(options, list | tuple) and len(options) == len(providers)
        if not fits or not all(isinstance(o, dict) for o in options) or names != list(providers):
            raise ValueProblem(
                "provider_options: expected a dict for each of the providers, which are names"
            )
    for name in names:
        if name != PROVIDER:
            warnings.warn(
                f"provider {name!r} is not available: {PROVIDER} runs the model", stacklevel=4
            )


def _is_pair(value: tuple[Any, ...]) -> bool:
    return len(value) == 2 and isinstance(value[1], dict)
