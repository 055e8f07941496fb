"""Conversations: a model's chat template, what of it the context holds, and the next answer."""

from halfbyte.text.chat.conversation import Chat, Message
from halfbyte.text.chat.template import has_template

__all__ = ["Chat", "Message", "has_template"]
