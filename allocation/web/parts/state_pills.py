"""Template tag `state_pill`: a booking's state as a coloured word with its symbol."""

from django import template
from django.utils.safestring import SafeString

from allocation.rules.states import State
from tenants.web.parts import pill

register = template.Library()

PILLS: dict[str, tuple[str, str, str]] = {
    State.REQUESTED: ("wait", "search", "Being placed"),
    State.AWAITING_APPROVAL: ("wait", "user", "Needs approval"),
    State.WAITLISTED: ("wait", "clock", "On the waiting list"),
    State.OFFERED: ("risk", "clock", "Offered to you"),
    State.QUEUED: ("wait", "clock", "Waiting"),
    State.SCHEDULED: ("info", "cal", "Scheduled"),
    State.STARTING: ("info", "play", "Starting"),
    State.ACTIVE: ("ok", "play", "Running"),
    State.PAUSING: ("risk", "pause", "Pausing"),
    State.PAUSED: ("risk", "pause", "Paused"),
    State.ENDING: ("info", "out", "Ending"),
    State.ENDED: ("mute", "ok", "Ended"),
    State.CANCELLED: ("mute", "x", "Cancelled"),
    State.EXPIRED: ("mute", "clock", "Deadline passed"),
    State.REFUSED: ("risk", "block", "Refused"),
    State.REJECTED: ("risk", "block", "Not approved"),
    State.FAILED: ("risk", "warn", "Failed"),
}
"""The colours, the symbol and the word of every state."""


@register.simple_tag
def state_pill(state: str) -> SafeString:
    """Returns the pill of a booking's state."""
    return pill(*PILLS[state])
