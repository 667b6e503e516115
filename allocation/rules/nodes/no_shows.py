"""The policy for bookings that nobody uses (no-shows), and for idle GPUs. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PresencePolicy:
    """A booking without presence for `no_show_after` seconds ends (0: never) and is charged
    `no_show_share` percent of its remaining time. See `charging.no_show_after`.

    GPUs that are used less than `idle_below` percent for `idle_after` seconds (0: never) are idle.
    """

    no_show_after: int = 1_800
    no_show_share: int = 25
    idle_after: int = 1_800
    idle_below: int = 5


# Upper bounds. All values are whole numbers from zero.
PRESENCE_POLICY_MAX = {
    "no_show_after": 86_400,
    "no_show_share": 100,
    "idle_after": 86_400,
    "idle_below": 100,
}
LAST_WARNING = 300
"""Seconds before the limit at which the owner gets the last warning."""


def presence_policy_of(document: Mapping[str, object]) -> PresencePolicy:
    """Reads the policy document. Missing and invalid values have their defaults."""
    values = ((name, document.get(name), most) for name, most in PRESENCE_POLICY_MAX.items())
    return PresencePolicy(
        **{name: each for name, each, most in values if type(each) is int and 0 <= each <= most}
    )


def warnings_expected(absent: int, limit: int) -> int:
    """The number of warnings due: one at half of the limit and one before its end."""
    return (absent * 2 >= limit) + (absent >= limit - LAST_WARNING)
