"""Conversations: chat templates, and answers that process only what is new.

`template` turns messages into a text, in the `sandbox` whose work the `meter` bounds; `control`
tells its control tokens from text that spells them; `conversation` has `Chat`; `recommended` has
what a file recommends.
"""

from halfbyte.text.chat.conversation import Chat, Message
from halfbyte.text.chat.recommended import recommended_temperature
from halfbyte.text.chat.template import has_template

__all__ = ["Chat", "Message", "has_template", "recommended_temperature"]
