"""What runs in each Pyodide: `outcome` returns what it found, as JSON."""

import asyncio
import json
import platform
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import halfbyte
from halfbyte.core.backends import workers

FILES = Path("/files")


async def outcome() -> str:
    task = json.loads((FILES / "task.json").read_text())
    started = time.perf_counter()
    texts, facts, notes = {}, {}, set()
    for name in task["models"]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = halfbyte.load(FILES / f"{name}.gguf", threads=task["threads"])
        notes |= {str(warning.message) for warning in caught}
        await asyncio.sleep(0.5)  # a return to the event loop, which starts workers
        texts[name] = model.generate(task["prompt"], max_tokens=task["tokens"], temperature=0)
        ready = sum(crew.ready for crew in workers._crews.values())
        facts = {"backend": model.executable.backend, "threads": 1 + ready}
        model.close()
    with np.load(FILES / "inputs.npz") as inputs:
        session = halfbyte.InferenceSession((FILES / "model.onnx").read_bytes())
        outputs = session.run(None, dict(inputs))
    versions = (platform.python_version(), platform.release(), np.__version__)
    result: dict[str, Any] = {
        **dict(zip(("python", "emscripten", "numpy"), versions, strict=True)),
        **facts, "texts": texts, "notes": sorted(notes),
        "outputs": [output.tolist() for output in outputs],
        "seconds": time.perf_counter() - started,
    }  # fmt: skip
    return json.dumps(result)
