"""Numbers of threads that earlier visits found to be fastest, kept in the browser's storage.

They are kept by shapes of the program, kernels, and number of cores. Where nothing can be kept,
each visit measures anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from halfbyte.core.backends.tuning import Tuner

FOLDER, FILE = "halfbyte-threads", "answers.json"
MAX_ANSWERS = 256  # that are kept, the newest ones

Answers = dict[str, Any]  # by key, of a file that may hold anything


def remember(executable: Any) -> None:
    """Let the tuner of a program begin with the answers of an earlier visit, and keep its own.

    They arrive when the event loop runs; until then it measures. Only programs with a number of
    threads that a browser's user did not choose have a tuner.
    """
    tuner = getattr(executable, "tuner", None)
    if tuner is not None:
        import asyncio  # only where there is an event loop: it takes 20 ms

        asyncio.ensure_future(_connect(tuner, key_of(executable)))  # noqa: RUF006 - it only adds


def key_of(executable: Any) -> str:
    """A hash of what an answer depends on."""
    from halfbyte.download.browser import js

    steps = [
        [i.operator.name, *((b.dtype, *map(str, b.shape)) for b in (*i.inputs, *i.outputs))]
        for i in executable.program.instructions
    ]
    cores = getattr(js.navigator, "hardwareConcurrency", 0)
    text = json.dumps([steps, executable.backend, executable.threads, cores])
    return hashlib.sha256(text.encode()).hexdigest()


async def forget() -> None:
    """Forget all answers."""
    from halfbyte.download.storage import ABSENT, open_folder

    with suppress(*ABSENT):
        await (await open_folder(FOLDER)).remove(FILE)


async def _connect(tuner: Tuner, key: str) -> None:
    import asyncio

    answers = (await _read()).get(key)
    if isinstance(answers, dict):
        tuner.adopt(answers)
    tuner.on_answer = lambda fastest: asyncio.ensure_future(_keep(key, fastest))


async def _read() -> Answers:
    from halfbyte.download.browser import call
    from halfbyte.download.storage import ABSENT, open_folder

    try:
        file = await (await open_folder(FOLDER)).file(FILE)
        answers = json.loads(await call(file, "text"))
    except (*ABSENT, ValueError):
        return {}
    return answers if isinstance(answers, dict) else {}


async def _keep(key: str, fastest: Mapping[str, int]) -> None:
    from halfbyte.download.storage import ABSENT, open_folder

    answers = await _read()
    answers.pop(key, None)
    newest = [*answers.items(), (key, dict(fastest))][-MAX_ANSWERS:]
    with suppress(*ABSENT):
        text = json.dumps(dict(newest)).encode()
        await (await open_folder(FOLDER)).write(FILE, np.frombuffer(text, np.uint8))
