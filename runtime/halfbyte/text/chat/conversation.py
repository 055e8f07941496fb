"""The next answer of a conversation, with as little processed anew as possible."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, Unpack

import numpy as np

from halfbyte import arguments
from halfbyte.errors import HalfbyteError
from halfbyte.text.chat.control import ControlTokens
from halfbyte.text.chat.template import find_template
from halfbyte.text.generate import KEYWORDS, Generation, Options, begin
from halfbyte.text.token_model import TokenModel

Message: TypeAlias = Mapping[str, Any]  # "role", "content", and what else a template knows

MAX_TOKENS = 1024  # of an answer, unless the caller says otherwise
_INSTRUCTIONS = ("system", "developer")  # roles that stay when a conversation outgrows the context
_SPECIAL = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}


class Chat:
    """Answers conversations with one model; any number of threads may use it.

    A conversation is a list of messages that the caller keeps; each answer is to the whole list.
    The context holds what was processed and generated before, so that only what is new is
    processed: the model's own answer is not tokenized again, but taken as it was generated.

    A conversation that outgrows the context loses whole turns, the oldest first, until half of the
    context is free; what is left is processed anew. Instructions and the last turn stay; where
    these do not fit, the answer is refused.

    Parameters
    ----------
    model : LanguageModel
    template : str, optional
        Another template than the usual one: "chatml", the path of a file of Jinja, or a name, where
        the model has several.
    **variables
        What else the template may use, such as `tools` or `enable_thinking`.

    Attributes
    ----------
    dropped : int
        Messages that the last conversation has lost.

    Raises
    ------
    HalfbyteError
        The model has no template, or a wrong one.
    """

    def __init__(self, model: TokenModel, template: str | None = None, **variables: Any) -> None:
        self._model = model
        self._control = ControlTokens(model.tokenizer)
        self._template = find_template(model.file, template)
        self._variables = {
            **self._special_tokens(), "add_generation_prompt": True,
            **self._control.protect(variables),
        }  # fmt: skip
        self._lock = threading.Lock()  # for what follows, and the template's meter
        self._gone: list[Message] = []  # messages that were dropped
        self._last: tuple[str, Generation] | None = None  # what was asked, and the answer

    @property
    def dropped(self) -> int:
        """Messages that the last conversation has lost."""
        return len(self._gone)

    def begin(self, messages: Sequence[Message], **options: Unpack[Options]) -> Generation:
        """The next answer, which starts when it is iterated; for options see `generate`.

        Raises
        ------
        HalfbyteError
            The template refuses the messages or fails, or the last of them do not fit.
        """
        return self.answer(messages, options, "begin")

    def answer(self, messages: Sequence[Message], options: Options, function: str) -> Generation:
        """The same; `function` is what a caller knows the options from, for messages."""
        arguments.check_keywords(function, options, KEYWORDS)
        options.setdefault("max_tokens", MAX_TOKENS)
        most = arguments.integer("max_tokens", options["max_tokens"])
        with self._lock:
            text, ids = self._fit(messages, min(most, self._model.context // 4))
            generation = begin(self._model, ids, options, function)
            self._last = text, generation
        return generation

    def render(self, messages: Sequence[Message]) -> str:
        """The text of a conversation up to where the answer begins, as the template writes it."""
        _check(messages)
        with self._lock:
            return self._control.plain(self._text(messages))

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Its token ids; the spelling of a control token in a message is text."""
        _check(messages)
        with self._lock:
            return self._ids(self._text(messages))

    def _special_tokens(self) -> dict[str, str]:
        """What templates call `bos_token` and so on, as text."""
        model, found = self._model, {}
        for name, shown in _SPECIAL.items():
            token = model.file.metadata.get(f"tokenizer.ggml.{name}_token_id")
            if isinstance(token, np.integer):
                found[shown] = self._control.text(int(token))
        tokenizer = model.tokenizer
        usual = {"bos_token": tokenizer.bos, "eos_token": tokenizer.eos}
        return {name: self._control.text(token) for name, token in usual.items()} | found

    def _text(self, messages: Sequence[Message]) -> str:
        return self._template.render(self._control.protect(list(messages)), **self._variables)

    def _ids(self, text: str) -> list[int]:
        """Token ids; the last question and answer keep the tokens that they have in the context."""
        known, ids = self._known()
        rest = text[len(known) :]
        if text.startswith(known) and self._control.begins(rest):
            return ids + self._control.encode(rest)
        return self._control.encode(text)

    def _known(self) -> tuple[str, list[int]]:
        """Text and tokens of the last question and as much of its answer as has a text."""
        if self._last is None:
            return "", []
        asked, generation = self._last
        said, decoder = "", self._model.tokenizer.stream(generation.prompt_ids)
        ids = list(generation.prompt_ids)
        for token in generation.ids:
            ids.append(token)
            said += decoder.push(token)
            if said == generation.text:
                break
        else:
            said += decoder.flush()  # it may have ended inside a character
        if said != generation.text:
            return "", []
        return asked + self._control.protect(said), ids

    def _fit(self, messages: Sequence[Message], room: int) -> tuple[str, list[int]]:
        """Text and token ids of as much of a conversation as leaves room for the answer."""
        _check(messages)
        model, most = self._model, self._model.context - room
        lead = next((i for i, m in enumerate(messages) if m.get("role") not in _INSTRUCTIONS), 0)
        turns = [i for i, m in enumerate(messages) if i > lead and m.get("role") == "user"]

        def left(start: int) -> tuple[str, list[int]]:
            text = self._text([*messages[:lead], *messages[start:]])
            return text, self._ids(text)

        gone = lead + len(self._gone)
        start = gone if gone in turns and messages[lead:gone] == self._gone else lead
        text, ids = left(start)
        if len(ids) > most:
            later = [turn for turn in turns if turn > start]
            index = bisect_left(later, True, key=lambda s: len(left(s)[1]) <= model.context // 2)
            start = later[min(index, len(later) - 1)] if later else start
            text, ids = left(start)
        if len(ids) > most:
            raise HalfbyteError(
                f"{model.path}: the last message, with what must stand beside it, has {len(ids)} "
                f"tokens: expected at most {most}, of a context of {model.context} tokens"
            )
        self._gone = list(messages[lead:start])
        return text, ids


def _check(messages: Sequence[Any]) -> None:
    arguments.messages("messages", messages)
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise HalfbyteError(f"message {number}: expected a role and a content")
