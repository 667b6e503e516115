"""Sentences about operators' acts on chosen bookings: what happens to one, and why nothing does."""

from django.utils.translation import gettext_lazy

_EFFECTS = {
    "message": gettext_lazy("%(owner)s gets the message."),
    "release_running": gettext_lazy(
        "%(owner)s is asked to release it. It keeps running until they do."
    ),
    "release_waiting": gettext_lazy(
        "%(owner)s is asked to cancel it. It keeps its place until they do."
    ),
    "pause": gettext_lazy(
        "%(owner)s gets notice now. It is paused after %(grace)s, and can resume %(length)s later."
    ),
    "pause_window": gettext_lazy(
        "%(owner)s gets notice now. It is paused after %(grace)s. What is left of its window when "
        "the pause is over is used, and the rest is not charged."
    ),
}
_WHY_NOT = {
    "booking_over": gettext_lazy("It is over."),
    "booking_ending": gettext_lazy("Its GPUs are being cleared already."),
    "paused_already": gettext_lazy("It is paused already, or has the notice of a pause."),
    "not_running": gettext_lazy("It does not run. To keep it from starting, stop new work."),
    "tier_never_paused": gettext_lazy("The tier %(tier)s is never paused. Ask to release it."),
    "paused_enough": gettext_lazy(
        "It was paused %(count)s times, the most that the tier %(tier)s allows. Ask to release it."
    ),
    "ends_before_pause": gettext_lazy("It ends before the notice of %(grace)s would be over."),
    "protected": gettext_lazy("The tier %(tier)s protects the first %(protected)s of a run."),
}


def bulk_effect(code: str, /, **facts: object) -> str:
    """Returns what happens to a booking. KeyError: no such effect, or a fact is missing."""
    return str(_EFFECTS[code]) % facts


def bulk_refusal(code: str, /, **facts: object) -> str:
    """Returns why nothing happens to a booking. KeyError as `bulk_effect`."""
    return str(_WHY_NOT[code]) % facts
