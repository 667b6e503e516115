"""What chat channels add to the core: sentences and words of the log."""

from tenants.rules.audit_words import ACTIONS
from tenants.words import sentences_add

sentences_add(
    {
        "too_many_channels": "At most %(most)s channels are possible. Delete one first.",
        "unknown_chat_event": "There is no event %(event)s. Choose from: %(known)s.",
        "chat_url_incomplete": "The address is not complete. Example: %(example)s",
    }
)
ACTIONS["chat_channel.created"] = "added the chat channel {object}"
ACTIONS["chat_channel.deleted"] = "deleted the chat channel {object}"
