"""Conversations: chat templates, and answers that process only what is new.

`template` turns messages into a text, in the `sandbox` whose work the `meter` bounds; `control`
tells its control tokens from text that spells them; `conversation` has `Chat`.
"""

from halfbyte.text.chat.conversation import Chat, Message
from halfbyte.text.chat.template import has_template

__all__ = ["Chat", "Message", "has_template"]
