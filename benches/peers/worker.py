"""One engine with one model in a process of its own; all engines run the same loop.

    python worker.py halfbyte|llama.cpp|ik_llama.cpp MODEL THREADS CONTEXT

After the first token, the process prints a line of JSON with the time that it took. Then it reads
lines, such as "pp128" or "tg64", and answers each with seconds. At the end of input it prints the
peak of memory. It imports nothing of the benches, since llama.cpp's environment has no halfbyte.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import re
import resource
import sys
import time
from pathlib import Path
from typing import Any, Protocol

BOS = 1


class Engine(Protocol):
    """A loaded model."""

    about: str  # the code that runs

    def reset(self) -> None:
        """Forget all tokens."""

    def feed(self, ids: Any) -> None:
        """Process tokens as one batch, up to the logits of the last one."""

    def prepare(self, ids: list[int]) -> Any:
        """Convert tokens to the argument of `feed`."""

    def rest(self) -> None:
        """Stop threads that would spin while others are measured."""


class Halfbyte:
    """The library of this repository."""

    def __init__(self, path: str, threads: int, context: int) -> None:
        import halfbyte

        self._model = halfbyte.load(path, threads=threads, context=context)
        self.about = self._model.executable.backend

    def reset(self) -> None:
        self._model.reset()

    def prepare(self, ids: list[int]) -> list[int]:
        return ids

    def feed(self, ids: list[int]) -> None:
        self._model.feed(ids)

    def rest(self) -> None:
        pass  # helpers sleep by themselves


class _PoolParameters(ctypes.Structure):
    """ggml's `ggml_threadpool_params`."""

    _fields_ = (
        ("cpumask", ctypes.c_bool * 512), ("n_threads", ctypes.c_int), ("prio", ctypes.c_int),
        ("poll", ctypes.c_uint32), ("strict_cpu", ctypes.c_bool), ("paused", ctypes.c_bool),
    )  # fmt: skip


class LlamaCpp:
    """llama.cpp through llama-cpp-python's low-level interface, set up as llama-bench does it."""

    def __init__(self, path: str, threads: int, context: int) -> None:
        import llama_cpp  # type: ignore[import-not-found]  # in its own environment

        self._api: Any = llama_cpp
        self._log = b""
        self._callback = llama_cpp.llama_log_callback(self._keep_log)
        llama_cpp.llama_log_set(self._callback, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        model_options = llama_cpp.llama_model_default_params()
        model_options.n_gpu_layers = 0
        model = llama_cpp.llama_model_load_from_file(path.encode(), model_options)
        options = llama_cpp.llama_context_default_params()
        options.n_ctx = context
        options.n_threads = options.n_threads_batch = threads
        options.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        self._context = model and llama_cpp.llama_init_from_model(model, options)
        if not self._context:
            raise SystemExit(f"llama.cpp: {path} cannot be loaded:\n{self._log.decode()}")
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._attach(threads)
        system = llama_cpp.llama_print_system_info().decode().strip(" |\n")
        repacked = re.findall(r"REPACK model buffer size = *([\d.]+ \w+)", self._log.decode())
        self.about = f"{system} | repacked {', '.join(repacked) or 'nothing'}"

    def _keep_log(self, level: int, text: bytes, data: object) -> None:
        self._log += text

    def _attach(self, threads: int) -> None:
        """Attach a lasting thread pool; without one, each call creates threads and ends them."""
        folder = Path(self._api.__file__).parent / "lib"
        suffix = "dylib" if sys.platform == "darwin" else "so"
        base, cpu, llama = (
            ctypes.CDLL(str(folder / f"lib{name}.{suffix}"))
            for name in ("ggml-base", "ggml-cpu", "llama")
        )
        parameters = _PoolParameters()
        base.ggml_threadpool_params_init(ctypes.byref(parameters), threads)
        if parameters.n_threads != threads:
            raise SystemExit("llama.cpp: ggml_threadpool_params has another layout")
        cpu.ggml_threadpool_new.restype = ctypes.c_void_p
        self._pool = ctypes.c_void_p(cpu.ggml_threadpool_new(ctypes.byref(parameters)))
        self._pause = cpu.ggml_threadpool_pause
        context = ctypes.c_void_p(self._context)
        llama.llama_attach_threadpool(context, self._pool, self._pool)

    def reset(self) -> None:
        self._api.llama_memory_clear(self._memory, False)

    def prepare(self, ids: list[int]) -> Any:
        tokens = (self._api.llama_token * len(ids))(*ids)  # lives as long as the batch
        return self._api.llama_batch_get_one(tokens, len(ids)), tokens

    def feed(self, ids: Any) -> None:
        status = self._api.llama_decode(self._context, ids[0])
        if status:
            raise SystemExit(f"llama.cpp: llama_decode answered {status}, expected 0")

    def rest(self) -> None:
        self._pause(self._pool)


class IkLlamaCpp:
    """ik_llama.cpp through ik-llama-cpp-python's low-level interface."""

    def __init__(self, path: str, threads: int, context: int) -> None:
        from ik_llama_cpp import _ctypes_api as api  # type: ignore[import-not-found]

        self._api: Any = api
        api.llama_backend_init()
        model_options = api.llama_model_default_params()
        model_options.n_gpu_layers = 0
        model = api.llama_model_load_from_file(path.encode(), model_options)
        options = api.llama_context_default_params()
        options.n_ctx = options.n_batch = context
        options.n_threads = options.n_threads_batch = threads
        options.flash_attn = True
        self._context = model and api.llama_init_from_model(model, options)
        if not self._context:
            raise SystemExit(f"ik_llama.cpp: {path} cannot be loaded")
        self._position = 0
        self.about = "ik-llama-cpp-python's wheel"

    def reset(self) -> None:
        self._api.llama_kv_cache_clear(self._context)
        self._position = 0

    def prepare(self, ids: list[int]) -> Any:
        tokens = (self._api.llama_token * len(ids))(*ids)
        batch = self._api.llama_batch(n_tokens=len(ids), token=tokens, all_pos_1=1)
        return batch, tokens

    def feed(self, ids: Any) -> None:
        ids[0].all_pos_0 = self._position  # positions count up from here
        self._position += ids[0].n_tokens
        if status := self._api.llama_decode(self._context, ids[0]):
            raise SystemExit(f"ik_llama.cpp: llama_decode answered {status}, expected 0")

    def rest(self) -> None:
        pass  # OpenMP's threads sleep after a while


ENGINES = {
    "halfbyte": ("halfbyte", Halfbyte),
    "llama.cpp": ("llama_cpp", LlamaCpp),
    "ik_llama.cpp": ("ik_llama_cpp", IkLlamaCpp),
}


def seconds(engine: Engine, test: str, ids: list[int]) -> float:
    """One run of a test: all tokens in one batch, or one by one after BOS."""
    engine.reset()
    count = int(test[2:])
    if test.startswith("pp"):
        batches = [engine.prepare(ids[:count])]
    else:
        engine.feed(engine.prepare([BOS]))
        batches = [engine.prepare([token]) for token in ids[:count]]
    start = time.perf_counter()
    for batch in batches:
        engine.feed(batch)
    taken = time.perf_counter() - start
    engine.rest()
    return taken


def peak_bytes() -> int:
    """Peak resident memory of this process, including pages of the mapped file."""
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(status.read_text().split("VmHWM:")[1].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


def main() -> None:
    """The command line."""
    kind, path, threads, context = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # prints of an engine are not answers
    module, make = ENGINES[kind]
    __import__(module)
    start = time.perf_counter()
    engine: Engine = make(path, int(threads), int(context))
    engine.feed(engine.prepare([BOS]))
    loaded = time.perf_counter() - start
    engine.rest()
    print(json.dumps({"seconds": loaded, "about": engine.about}), file=answers)
    numbers = random.Random(0)
    ids = [numbers.randrange(300, 1000) for _ in range(int(context))]
    for line in sys.stdin:
        print(json.dumps(seconds(engine, line.strip(), ids)), file=answers)
    print(json.dumps(peak_bytes()), file=answers)


if __name__ == "__main__":
    main()
