"""llama.cpp's quantizer and its logits, in an environment that has no halfbyte.

    python rounding_worker.py < JOB

The job is JSON: `quantize` lists [source, target, llama.cpp's number of the file type, a .npz file
of importance by tensor or ""], `logits` lists [model, .npy file to write], and `texts` are token
ids. Logits of all texts follow each other, float32 [tokens, vocabulary].
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

import llama_cpp
import numpy as np


def without_extra_buffers() -> None:
    """Keep llama.cpp from AMX, which some virtual machines list and deny."""
    library = llama_cpp.llama_cpp
    parameters = library.llama_model_default_params

    def changed() -> Any:
        made = parameters()
        made.use_extra_bufts = False
        return made

    library.llama_model_default_params = changed


def quantize(source: str, target: str, kind: int, importance: str) -> None:
    """As llama-quantize does."""
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype, parameters.nthread = kind, 1
    kept: list[Any] = []  # what C reads
    if importance:
        values = {
            name: np.ascontiguousarray(x, np.float32) for name, x in np.load(importance).items()
        }
        entries = (llama_cpp.llama_model_imatrix_data * (len(values) + 1))()
        pointer = ctypes.POINTER(ctypes.c_float)
        for entry, (name, x) in zip(entries, values.items()):  # noqa: B905 - the last ends the list
            entry.name, entry.size = name.encode(), x.size
            entry.data = x.ctypes.data_as(pointer)
        kept += [values, entries]
        parameters.imatrix = entries
    failed = llama_cpp.llama_model_quantize(
        source.encode(), target.encode(), ctypes.byref(parameters)
    )
    if failed:
        sys.exit(f"llama.cpp does not quantize {source}")


def logits(model: str, target: str, texts: list[list[int]]) -> None:
    """Of every token of all texts."""
    longest = max(map(len, texts))
    llama = llama_cpp.Llama(
        model, n_ctx=longest, n_batch=longest, n_threads=1, n_threads_batch=1, logits_all=True,
        verbose=False,
    )  # fmt: skip
    rows = []
    for ids in texts:
        llama.reset()
        llama.eval(ids)
        rows.append(np.array(llama.scores[: len(ids)], np.float32))
    np.save(target, np.concatenate(rows))


def main() -> None:
    """Do the job on stdin."""
    without_extra_buffers()
    job = json.load(sys.stdin)
    for entry in job["quantize"]:
        quantize(*entry)
    for model, target in job["logits"]:
        logits(model, target, job["texts"])


if __name__ == "__main__":
    main()
