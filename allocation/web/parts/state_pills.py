"""Template tag `state_pill`: a booking's state as a coloured word with its symbol."""

from django import template
from django.utils.safestring import SafeString

from allocation.rules.states import STATE_WORDS, State
from tenants.web.parts import pill

register = template.Library()

_LOOKS = {
    State.REQUESTED: ("wait", "search"),
    State.AWAITING_APPROVAL: ("wait", "user"),
    State.WAITLISTED: ("wait", "clock"),
    State.OFFERED: ("risk", "clock"),
    State.QUEUED: ("wait", "clock"),
    State.SCHEDULED: ("info", "cal"),
    State.STARTING: ("info", "play"),
    State.ACTIVE: ("ok", "play"),
    State.PAUSING: ("risk", "pause"),
    State.PAUSED: ("risk", "pause"),
    State.ENDING: ("info", "out"),
    State.ENDED: ("mute", "ok"),
    State.CANCELLED: ("mute", "x"),
    State.EXPIRED: ("mute", "clock"),
    State.REFUSED: ("risk", "block"),
    State.REJECTED: ("risk", "block"),
    State.FAILED: ("risk", "warn"),
}
PILLS = {state: (*look, STATE_WORDS[state]) for state, look in _LOOKS.items()}
"""The colours, the symbol and the word of every state."""


@register.simple_tag
def state_pill(state: str) -> SafeString:
    """Returns the pill of a booking's state."""
    return pill(*PILLS[State(state)])
