"""What the operator's policy says of bookings that nobody uses. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PresencePolicy:
    """A booking in which nobody is seen for `no_show_after` seconds ends (0: never), and pays
    `no_show_share` percent of the time left. See `charging.no_show_after`."""

    no_show_after: int = 1_800
    no_show_share: int = 25


# The most that each may be; all are whole numbers from zero.
PRESENCE_POLICY_MAX = {"no_show_after": 86_400, "no_show_share": 100}
LAST_WARNING = 300
"""Owners are warned at half the time, and so many seconds before its end."""


def presence_policy_of(document: Mapping[str, object]) -> PresencePolicy:
    """What a policy document says; what it leaves out, or says badly, has its default."""
    values = ((name, document.get(name), most) for name, most in PRESENCE_POLICY_MAX.items())
    return PresencePolicy(
        **{name: each for name, each, most in values if type(each) is int and 0 <= each <= most}
    )


def warnings_expected(absent: int, limit: int) -> int:
    """How many warnings its owner should have had: at half of the limit, and before its end."""
    return (absent * 2 >= limit) + (absent >= limit - LAST_WARNING)
