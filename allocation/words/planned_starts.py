"""What a planned start is worth, in words. A sentence names no clock time, because each page knows
its reader's zone."""

from django.utils.translation import gettext_lazy

_MOVERS = {
    "firm": gettext_lazy("No other booking could delay this."),
    "guaranteed": gettext_lazy("Only bookings of your own organisation could delay this."),
    "expected": gettext_lazy("On borrowed GPUs: bookings of their owners go first."),
}


def mover_text(strength: str | None) -> str:
    """Returns whose bookings can make a start of this strength later; unknown is expected."""
    return str(_MOVERS[strength or "expected"])
