"""Where a model's file goes in a browser: to the memory that its threads share, if it has several.

Elsewhere, and on one thread, it stays where it is: that is Python's own memory.
"""

from __future__ import annotations

from typing import Any

from halfbyte.core.backends import available
from halfbyte.core.backends.cores import usable_threads
from halfbyte.core.backends.libraries import library_for
from halfbyte.onnx.session.options import SessionOptions


def backend_of(options: SessionOptions) -> str:
    """The backend of such a session: "numpy" in place of "native" where there are no kernels."""
    wanted = options.backend
    return "numpy" if (wanted, available()[0]) == ("native", "numpy") else wanted


def memory_apart(options: SessionOptions) -> Any:
    """The memory that such a session's threads share; None if that is NumPy's."""
    if backend_of(options) == "numpy":
        return None
    memory = library_for(usable_threads(max(options.intra_op_num_threads, 0))).memory
    return memory if memory.apart else None
