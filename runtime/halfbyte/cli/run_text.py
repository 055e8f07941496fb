"""``halfbyte run`` of a language model: a prompt goes in, text comes out."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

from halfbyte.cli import prompts
from halfbyte.cli.common import (
    SAMPLING,
    adjustments,
    generation_options,
    harmless,
    load_model,
    max_tokens,
)
from halfbyte.cli.pace import Pace, check_pace
from halfbyte.cli.run_graph import refuse_graph_options
from halfbyte.core.profiling import Profile
from halfbyte.errors import HalfbyteError
from halfbyte.text.beam import beam_search
from halfbyte.text.chat import Chat, has_template
from halfbyte.text.generate import Generation
from halfbyte.text.model import LanguageModel
from halfbyte.text.sampling import Sampler


def run(options: argparse.Namespace) -> int:
    """Generate a text; returns the exit code."""
    refuse_graph_options(options)
    _check(options)
    prompt = prompts.given_text(options) or ""
    start = time.perf_counter()
    with load_model(options) as model:
        text = _Run(model, options, prompt, time.perf_counter() - start)
        return text.search() if options.beams is not None else text.generate()


def _check(options: argparse.Namespace) -> None:
    """Refuse options that exclude each other."""
    check_pace(options)
    if options.raw and options.template is not None:
        raise HalfbyteError(
            f"--template {options.template}: --raw uses no template: expected one of the two"
        )
    if options.beams is None:
        if options.length_penalty is not None:
            raise HalfbyteError("--length-penalty: expected --beams too")
        return
    used = [name for name in (*SAMPLING, "stop") if getattr(options, name) not in (None, [])]
    if used:
        option = f"--{used[0].replace('_', '-')}"
        raise HalfbyteError(
            f"{option}: --beams takes the likeliest text and does not sample: expected one of the "
            "two"
        )


class _Run:
    """One text of `halfbyte run`."""

    def __init__(
        self, model: LanguageModel, options: argparse.Namespace, prompt: str, load_seconds: float
    ) -> None:
        self._model, self._options, self._prompt = model, options, prompt
        self._load_seconds = load_seconds
        self._is_chat = bool(prompt) and not options.raw and (
            options.template is not None or has_template(model.file)
        )  # fmt: skip
        if options.profile:
            model.profile = Profile()

    def generate(self) -> int:
        """Sample a text, and print it as it is generated."""
        pace = Pace(self._options, self._model)
        generation = self._begin()
        pieces = pace(generation)
        if self._options.json:
            for _ in pieces:
                pass
            print(json.dumps(self._as_json(generation)))
        else:
            self._print(pieces)
        self._notes(generation)
        if pace.note:
            _say(pace.note)
        return 0

    def search(self) -> int:
        """Find a text by beam search, and print it."""
        model, options = self._model, self._options
        ids = self._encoded()
        self._check_room(ids)
        penalty = 1.0 if options.length_penalty is None else options.length_penalty
        beams = beam_search(
            model, ids, Sampler(**adjustments(options)), options.beams, penalty,
            max_tokens(options),
        )  # fmt: skip
        best = beams[0]
        if options.json:
            texts = [{"text": b.text, "ids": b.ids, "score": b.score} for b in beams]
            print(json.dumps({**self._asked(ids), "texts": texts}))
        else:
            print(harmless(("" if self._is_chat else self._prompt) + best.text))
        print(f"generated {len(best.ids)} tokens, score {best.score:.4f}", file=sys.stderr)
        return 0

    # ---- the prompt ------------------------------------------------------------------------------

    def _begin(self) -> Generation:
        options = generation_options(self._options)
        if self._options.json:
            options["logprobs"] = 0
        if self._is_chat:
            self._check_room(self._encoded())
            return self._chat().begin(self._messages, **options)
        generation = self._model.generation(self._prompt, **options)
        self._check_room(generation.prompt_ids)
        return generation

    @property
    def _messages(self) -> list[dict[str, str]]:
        return [{"role": "user", "content": self._prompt}]

    def _chat(self) -> Chat:
        return Chat(self._model, self._options.template)

    def _encoded(self) -> list[int]:
        if self._is_chat:
            return self._chat().encode(self._messages)
        return self._model.tokenizer.encode(self._prompt)

    def _check_room(self, ids: Sequence[int]) -> None:
        """Refuse a prompt that is longer than the context, before any of it is printed."""
        model = self._model
        if len(ids) > model.context:
            raise HalfbyteError(
                f"{model.path}: the prompt has {len(ids)} tokens: expected at most "
                f"{model.context}, which the context holds{self._more_context()}"
            )

    def _more_context(self) -> str:
        metadata = self._model.file.metadata
        limit = metadata.get(f"{metadata.get('general.architecture')}.context_length")
        try:
            larger = int(limit) > self._model.context  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return ""
        return f"; --context takes up to {limit}" if larger else ", the model's maximum"

    # ---- output ----------------------------------------------------------------------------------

    def _print(self, pieces: Iterable[str]) -> None:
        if not self._is_chat:
            sys.stdout.write(harmless(self._prompt))
        try:
            for piece in pieces:
                sys.stdout.write(harmless(piece))
                sys.stdout.flush()
        finally:  # the following output, also an error, begins on a new line
            sys.stdout.write("\n")
            sys.stdout.flush()

    def _notes(self, generation: Generation) -> None:
        """Print statistics to stderr."""
        model = self._model
        if self._is_chat:
            _say("the chat template was applied to the prompt; --raw continues it as it is")
        if generation.finish_reason == "context":
            _say(f"the context of {model.context} tokens is full{self._more_context()}")
        _say(
            f"prompt {len(generation.prompt_ids)} tokens, {generation.prompt_speed:.0f} tokens/s; "
            f"generated {len(generation.ids)} tokens, {generation.decode_speed:.0f} tokens/s "
            f"({model.executable.backend}, {model.executable.threads} threads)"
        )
        if model.profile:
            _say(model.profile.table())

    def _asked(self, ids: Sequence[int]) -> dict[str, Any]:
        return {
            "model": str(self._model.path), "backend": self._model.executable.backend,
            "threads": self._model.executable.threads, "prompt": self._prompt,
            "chat_template": self._is_chat, "prompt_ids": list(ids),
        }  # fmt: skip

    def _as_json(self, generation: Generation) -> dict[str, Any]:
        decoder = self._model.tokenizer.stream(generation.prompt_ids)
        tokens = [
            {"id": token, "text": decoder.push(token), "logprob": known.logprob}
            for token, known in zip(generation.ids, generation.logprobs, strict=True)
        ]
        return {
            **self._asked(generation.prompt_ids), "text": generation.text, "tokens": tokens,
            "finish_reason": generation.finish_reason,
            "load_seconds": self._load_seconds, "prompt_seconds": generation.prompt_seconds,
            "decode_seconds": generation.decode_seconds,
            "prompt_tokens_per_second": generation.prompt_speed,
            "decode_tokens_per_second": generation.decode_speed,
        }  # fmt: skip


def _say(text: str) -> None:
    print(text, file=sys.stderr)
