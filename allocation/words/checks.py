"""The texts of checks of nodes in the reader's language. Agents have the same texts in English."""

from collections.abc import Mapping

from django.utils.translation import gettext

from allocation import wire


def check_text(code: str, facts: Mapping[str, str], stored: str) -> str:
    """Returns a text by its code; as the agent wrote it if its version is unknown here."""
    text = wire.CHECK_TEXTS.get(code)
    if text is None:
        return stored
    try:
        return gettext(text) % facts
    except KeyError:
        return stored
