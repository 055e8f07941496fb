"""The next answer of a conversation, processing as few tokens again as possible."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, Unpack

import numpy as np

from halfbyte import arguments
from halfbyte.errors import HalfbyteError
from halfbyte.text.chat.control_tokens import ControlTokens
from halfbyte.text.chat.template import find_template
from halfbyte.text.generate import KEYWORDS, Generation, Options, begin
from halfbyte.text.token_model import TokenModel

Message: TypeAlias = Mapping[str, Any]  # "role", "content", and other keys that a template reads

MAX_TOKENS = 1024  # of an answer, unless the caller says otherwise
_INSTRUCTIONS = ("system", "developer")  # roles that stay when a conversation outgrows the context
_SPECIAL = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}


class Chat:
    """Answers conversations with one model; any number of threads may use it.

    A conversation is a list of messages that the caller keeps; each answer is to the whole list.
    The context holds the tokens processed and generated before, so that only new messages are
    processed. The model's last answer keeps the tokens that were generated: tokenizing its text
    might give others.

    A conversation that outgrows the context loses whole turns, the oldest first, until half of the
    context is free; the rest is processed again. Instructions and the last turn stay; if they do
    not fit, an error is raised.

    Parameters
    ----------
    model : LanguageModel
    template : str, optional
        Another template than the model's own: "chatml", the path of a Jinja file, or one of the
        model's templates by name.
    **variables
        Further variables of the template, such as `tools` or `enable_thinking`.

    Attributes
    ----------
    dropped : int
        Messages that were left out of the last conversation.

    Raises
    ------
    HalfbyteError
        The model has no template, or an invalid one.
    """

    def __init__(self, model: TokenModel, template: str | None = None, **variables: Any) -> None:
        self._model = model
        self._control = ControlTokens(model.tokenizer)
        self._template = find_template(model.file, template)
        self._variables = {
            **self._special_tokens(), "add_generation_prompt": True,
            **self._control.protect(variables),
        }  # fmt: skip
        self._lock = threading.Lock()  # for the following, and the template's meter
        self._dropped: list[Message] = []
        self._last: tuple[str, Generation] | None = None  # the text up to an answer, and the answer

    @property
    def dropped(self) -> int:
        """Messages that were left out of the last conversation."""
        return len(self._dropped)

    def begin(self, messages: Sequence[Message], **options: Unpack[Options]) -> Generation:
        """The next answer, generated when it is iterated; for options see `generate`.

        Raises
        ------
        HalfbyteError
            The template refuses the messages or fails, or the last of them do not fit the context.
        """
        return self.answer(messages, options, "begin")

    def answer(self, messages: Sequence[Message], options: Options, function: str) -> Generation:
        """See `begin`; `function` is the name of the public function, for error messages."""
        arguments.check_keywords(function, options, KEYWORDS)
        options.setdefault("max_tokens", MAX_TOKENS)
        limit = arguments.integer("max_tokens", options["max_tokens"])
        with self._lock:
            text, ids = self._fit(messages, min(limit, self._model.context // 4))
            generation = begin(self._model, ids, options, function)
            self._last = text, generation
        return generation

    def render(self, messages: Sequence[Message]) -> str:
        """The text of a conversation up to the answer, as the template writes it."""
        _check(messages)
        with self._lock:
            return self._control.plain(self._text(messages))

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """The token ids of that text; control tokens that a message spells are text."""
        _check(messages)
        with self._lock:
            return self._ids(self._text(messages))

    def _special_tokens(self) -> dict[str, str]:
        """The variables `bos_token` and so on of templates, as text."""
        model, tokenizer = self._model, self._model.tokenizer
        tokens = {"bos_token": tokenizer.bos, "eos_token": tokenizer.eos}
        for name, variable in _SPECIAL.items():
            token = model.file.metadata.get(f"tokenizer.ggml.{name}_token_id")
            if isinstance(token, np.integer):
                tokens[variable] = int(token)
        return {variable: self._control.text(token) for variable, token in tokens.items()}

    def _text(self, messages: Sequence[Message]) -> str:
        return self._template.render(self._control.protect(list(messages)), **self._variables)

    def _ids(self, text: str) -> list[int]:
        """Token ids; the last question and answer keep their tokens in the context."""
        known, ids = self._known()
        rest = text[len(known) :]
        if text.startswith(known) and self._control.begins(rest):
            return ids + self._control.encode(rest)
        return self._control.encode(text)

    def _known(self) -> tuple[str, list[int]]:
        """Text and tokens of the last question and of the part of its answer that was passed on."""
        if self._last is None:
            return "", []
        question, generation = self._last
        answer, decoder = "", self._model.tokenizer.stream(generation.prompt_ids)
        ids = list(generation.prompt_ids)
        for token in generation.ids:
            ids.append(token)
            answer += decoder.push(token)
            if answer == generation.text:
                break
        else:
            answer += decoder.flush()  # it may have ended inside a character
        if answer != generation.text:
            return "", []
        return question + self._control.protect(answer), ids

    def _fit(self, messages: Sequence[Message], reserve: int) -> tuple[str, list[int]]:
        """Text and token ids of the conversation, shortened to leave `reserve` for the answer."""
        _check(messages)
        model, limit = self._model, self._model.context - reserve
        lead = next((i for i, m in enumerate(messages) if m.get("role") not in _INSTRUCTIONS), 0)
        turns = [i for i, m in enumerate(messages) if i > lead and m.get("role") == "user"]

        def from_turn(start: int) -> tuple[str, list[int]]:
            text = self._text([*messages[:lead], *messages[start:]])
            return text, self._ids(text)

        before = lead + len(self._dropped)  # where the conversation started the last time
        start = before if before in turns and messages[lead:before] == self._dropped else lead
        text, ids = from_turn(start)
        if len(ids) > limit:
            later = [turn for turn in turns if turn > start]
            half = model.context // 2
            index = bisect_left(later, True, key=lambda turn: len(from_turn(turn)[1]) <= half)
            start = later[min(index, len(later) - 1)] if later else start
            text, ids = from_turn(start)
        if len(ids) > limit:
            raise HalfbyteError(
                f"{model.path}: the last message and the instructions have {len(ids)} "
                f"tokens: expected at most {limit}, of a context of {model.context} tokens"
            )
        self._dropped = list(messages[lead:start])
        return text, ids


def _check(messages: Sequence[Any]) -> None:
    arguments.messages("messages", messages)
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise HalfbyteError(f"message {number}: expected a role and a content")
