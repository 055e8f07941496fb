"""A language model: text in, text out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Unpack

import numpy as np

from halfbyte import arguments
from halfbyte.errors import HalfbyteError
from halfbyte.text.beam import Beam, beam_search
from halfbyte.text.chat import Chat, Message
from halfbyte.text.generate import KEYWORDS, Generation, Options, begin
from halfbyte.text.sampling import Adjustments, Sampler
from halfbyte.text.token_model import TokenModel


class LanguageModel(TokenModel):
    """A language model with one context: tokens go in, logits and text come out.

    Any number of threads and tasks may use one model: their texts take turns, first come, first
    served, and each is the same as it would be by itself. A text that is read piece by piece keeps
    its turn between pieces. If its reader pauses for more than a second, or asks the model for
    something else, other texts continue, and its tokens are processed again when it continues.

    Attributes
    ----------
    file : ModelFile
        Metadata and tensors, as they were read.
    weights : mapping of str to Tensor
        The tensors as they are used: packed, copied or as in the file.
    notes : list of str
        Metadata that was ignored, and what is not exact.
    tokenizer : Tokenizer
        Text <-> token ids.
    program : Program
        Runs for every batch of tokens.
    room : float
        Bytes of the memory budget that the plan leaves; infinite without a budget.
    """

    def generate(self, prompt: str = "", **options: Unpack[Options]) -> str:
        """Continue a text.

        Parameters
        ----------
        prompt : str
            If it is empty, the text starts from the beginning-of-text token.
        max_tokens : int
            Maximum number of tokens to generate (256).
        stop : str or sequence of str, optional
            Strings at which the text ends; they are not part of it.
        temperature : float
            0 always takes the likeliest token; 1 samples from the model's distribution. (0.8)
        seed : int, optional
            The same seed gives the same text.
        **options
            top_k, top_p, min_p, penalties and logit_bias: see
            :class:`halfbyte.text.sampling.Sampler`.

        Returns
        -------
        str
            The continuation without the prompt.

        Raises
        ------
        HalfbyteError
            An argument is out of its range, or the model is closed.
        ArgumentTypeError
            An argument has a wrong type or name; it is a `TypeError` too.
        """
        return "".join(begin(self, prompt, options, "generate"))

    def generate_batch(self, prompts: Iterable[str], **options: Unpack[Options]) -> list[str]:
        """Continue several texts, one after the other; see :meth:`generate`.

        A beginning that a prompt shares with the one before it (instructions, examples) is
        processed once. Each text starts from the same `seed`.
        """
        arguments.check_keywords("generate_batch", options, KEYWORDS)
        return [self.generate(prompt, **options) for prompt in arguments.texts("prompts", prompts)]

    def generation(self, prompt: str = "", **options: Unpack[Options]) -> Generation:
        """A continuation to iterate, with its token ids and statistics; see :meth:`generate`.

        Parameters
        ----------
        logprobs : int, optional
            Keep the log-probabilities of each generated token and of the `logprobs` likeliest.
        """
        return begin(self, prompt, options, "generation")

    def stream(self, prompt: str = "", **options: Unpack[Options]) -> Iterator[str]:
        """Generate text piece by piece; see :meth:`generate`."""
        return iter(begin(self, prompt, options, "stream"))

    def astream(self, prompt: str = "", **options: Unpack[Options]) -> AsyncIterator[str]:
        """Generate text for ``async for``: a page, notebook or server stays responsive.

        The event loop runs after every token and at least every 50 ms of a long prompt. Leave the
        loop, or cancel the task, to stop. Texts of several tasks are generated in turn.
        """
        return aiter(begin(self, prompt, options, "astream"))

    def beam_search(
        self,
        prompt: str = "",
        num_beams: int = 4,
        length_penalty: float = 1.0,
        max_tokens: int = 256,
        **adjustments: Unpack[Adjustments],
    ) -> list[Beam]:
        """The likeliest continuations that beam search finds, the best first.

        Parameters
        ----------
        num_beams : int
            Candidates kept in each step, and texts returned at most; 1 is greedy.
        length_penalty : float
            A text's log-probability is divided by its length to this power: 0 compares sums, more
            favours long texts.
        **adjustments
            Penalties and bias; see :class:`halfbyte.text.sampling.Sampler`.

        Raises
        ------
        MemoryBudgetError
            The beams need more memory than the budget or the machine has left.
        """
        arguments.check_keywords("beam_search", adjustments, Adjustments.__optional_keys__)
        arguments.text("prompt", prompt)
        sampler = Sampler(**adjustments)
        with self.exclusive():
            return beam_search(self, prompt, sampler, num_beams, length_penalty, max_tokens)

    def chat(self, messages: Sequence[Message], **options: Unpack[Options]) -> str:
        """Answer a conversation, by the model's own chat template.

        See :class:`halfbyte.text.chat.Chat` for other templates, and for conversations that outgrow
        the context.

        Parameters
        ----------
        messages : sequence of mapping
            Each with "role" ("system", "user", "assistant") and "content", the oldest first. To
            continue, append the answer and the next question: only what is new is processed.
        **options
            As for :meth:`generate`; `max_tokens` is 1024 unless it is given.
        """
        return "".join(self._chat.answer(messages, options, "chat"))

    def stream_chat(self, messages: Sequence[Message], **options: Unpack[Options]) -> Iterator[str]:
        """Answer piece by piece; see :meth:`chat`."""
        return iter(self._chat.answer(messages, options, "stream_chat"))

    def astream_chat(
        self, messages: Sequence[Message], **options: Unpack[Options]
    ) -> AsyncIterator[str]:
        """Answer for ``async for``; see :meth:`chat` and :meth:`astream`."""
        return aiter(self._chat.answer(messages, options, "astream_chat"))

    @cached_property
    def _chat(self) -> Chat:
        return Chat(self)

    def adapter(self, name: str, scale: float = 1.0) -> LanguageModel:
        """This model with another scale of one of its adapters; 0 switches it off.

        Both share weights, memory and turns, and switching takes no time: any number of texts may
        be generated with different adapters, in turn, and each is the same as by itself. Tokens
        that were read with other scales are not reused. Only closing the loaded model frees memory.

        Parameters
        ----------
        name : str
            The name of an adapter's folder, or of its file without the ending.
        scale : float
            Multiplies what the adapter adds.

        Raises
        ------
        HalfbyteError
            The model was loaded without such an adapter, or the scale is not finite.
        """
        if arguments.text("name", name) not in self.scales:
            known = ", ".join(map(repr, self.scales)) or "none"
            raise HalfbyteError(
                f"{self.path}: adapter {name!r}: expected one of those loaded with `lora`: {known}"
            )
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        vars(other).pop("_chat", None)
        other._original = False
        other.scales = {**self.scales, name: arguments.finite("scale", scale)}
        return other

    def perplexity(self, text: str) -> float:
        """exp of a text's mean loss per token (may be infinite); see `token_losses`."""
        ids = self.tokenizer.encode(arguments.text("text", text))
        if len(ids) < 2:
            raise HalfbyteError(f"perplexity needs at least 2 tokens, found {len(ids)}")
        with np.errstate(over="ignore"):
            return float(np.exp(self.token_losses(ids).mean()))

    def __enter__(self) -> LanguageModel:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
