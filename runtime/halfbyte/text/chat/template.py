"""Chat templates: from messages to the text that a model was trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from halfbyte.errors import FormatError, HalfbyteError, UnsupportedError
from halfbyte.formats.model_file import ModelFile

KEY = "tokenizer.chat_template"
MAX_CHARACTERS = 1 << 18  # characters of a template
_SHOWN = 300  # characters shown of a template's own error message

BUILT_IN = {
    "chatml": "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
}
"""Templates by name. ChatML is OpenAI's; many fine-tuned models were trained on it."""


class ChatTemplate:
    """A compiled template; see :mod:`halfbyte.text.chat.sandbox` for its limits.

    Parameters
    ----------
    source : str
        Jinja, as in Hugging Face's transformers.
    where : str
        The file and its key, for error messages.
    """

    def __init__(self, source: str, where: str) -> None:
        try:
            from halfbyte.text.chat.sandbox import Sandbox
        except ModuleNotFoundError as error:
            if error.name != "jinja2":
                raise
            raise UnsupportedError(
                "chat templates need Jinja: pip install 'halfbyte[chat]'; `halfbyte run --raw` "
                "needs none"
            ) from None
        if len(source) > MAX_CHARACTERS:
            raise FormatError(
                f"{where}: {len(source)} characters: expected at most {MAX_CHARACTERS}"
            )
        self._where, self._sandbox = where, Sandbox()
        try:
            self._template = self._sandbox.from_string(source)
        except Exception as error:
            raise self._problem(error) from None

    def render(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> str:
        """The text of a conversation.

        Parameters
        ----------
        messages : sequence of mapping
            Each with a `role` and a `content`.
        **variables
            Further variables: `add_generation_prompt`, `bos_token`, `tools` ...

        Raises
        ------
        FormatError
            The template fails: it is invalid, uses something forbidden, or runs for too long.
        HalfbyteError
            The template refuses this conversation, and says why.
        """
        from halfbyte.text.chat.sandbox import WORK, WORK_PER_CHARACTER

        characters = sum(len(str(message)) for message in messages)
        self._sandbox.meter.begin(WORK + WORK_PER_CHARACTER * characters)
        try:
            return self._template.render(messages=list(messages), **variables)
        except Exception as error:
            raise self._problem(error) from None

    def _problem(self, error: Exception) -> HalfbyteError:
        from halfbyte.text.chat.sandbox import RaisedError

        kind = HalfbyteError if isinstance(error, RaisedError) else FormatError
        message = " ".join(str(error).split()) or type(error).__name__
        message = message if len(message) <= _SHOWN else message[:_SHOWN] + "..."
        line = getattr(error, "lineno", None)
        return kind(f"{self._where}: {message}" + (f" (line {line})" if line else ""))


def has_template(file: ModelFile) -> bool:
    """Whether a model has a chat template."""
    return isinstance(file.metadata.get(KEY), str)


def find_template(file: ModelFile, name: str | None = None) -> ChatTemplate:
    """A model's template; with a name, that of the model, of `BUILT_IN`, or of a file.

    Raises
    ------
    FormatError
        There is none, or it is invalid.
    """
    key = KEY if name is None else f"{KEY}.{name}"
    source = file.metadata.get(key)
    if isinstance(source, str):
        return ChatTemplate(source, f"{file.path}: metadata '{key}'")
    if source is not None:
        raise FormatError(
            f"{file.path}: metadata '{key}': expected a string, found {type(source).__name__}"
        )
    if name is None:
        raise FormatError(
            f"{file.path}: metadata '{key}' is missing, so this model continues texts but holds no "
            f"conversation; if you know its template, name it: {', '.join(BUILT_IN)}, or a file"
        )
    if name in BUILT_IN:
        return ChatTemplate(BUILT_IN[name], f"chat template '{name}'")
    if Path(name).is_file():
        return ChatTemplate(_read(Path(name)), name)
    own = sorted(k.removeprefix(f"{KEY}.") for k in file.metadata if k.startswith(f"{KEY}."))
    raise FormatError(
        f"{file.path}: chat template {name!r}: expected one of {[*own, *BUILT_IN]}, or a file"
    )


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(4 * MAX_CHARACTERS + 1).decode()
    except UnicodeDecodeError:
        raise FormatError(f"{path}: expected a chat template in UTF-8") from None
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from None
