"""Bookings ahead in the queue by each key of the order, what would change that, and bookings that
make room for a start, in words.
"""

from allocation.words.amounts import Facts
from tenants.platform.nouns import Sentence, plural, unit_text

# By the key of the order, and whether the bookings ahead are the own organisation's.
_KEYS: dict[tuple[str, bool], Sentence] = {
    ("guarantee", True): "inside your organisation's guarantee",
    ("guarantee", False): "inside their organisation's guarantee",
    ("tier", True): "a higher tier",
    ("tier", False): "a higher tier",
    ("part", True): "their project has less than its part of the idle GPUs",
    ("part", False): "their organisation has less than its part of the idle GPUs",
    ("share", True): "their project or person has used less recently",
    ("share", False): "their organisation has used less recently",
    ("age", True): "they have waited longer",
    ("age", False): "they have waited longer",
    ("firm", True): "booked for a fixed time",
    ("firm", False): "booked for a fixed time",
}
# By the criterion that puts another booking ahead, and whether it is of the own organisation.
_OVERTAKEN = {
    ("guarantee", False): "A booking inside another organisation's guarantee goes first.",
    ("guarantee", True): "A booking inside your organisation's guarantee goes first.",
    ("tier", False): "A booking of a higher tier goes first.",
    ("tier", True): "A booking of a higher tier in your organisation goes first.",
    ("part", False): "A booking of an organisation that has less than its part of the idle GPUs goes first.",
    ("part", True): "A booking of a project of your organisation that has less than its part goes first.",
    ("share", False): "Another organisation has used less recently and goes first.",
    ("share", True): "Another project or person of your organisation has used less recently and goes first.",
    ("age", False): "A booking that has waited longer goes first.",
    ("age", True): "A booking of your organisation that has waited longer goes first.",
    ("firm", False): "Another organisation has booked the GPUs for a fixed time.",
    ("firm", True): "Your organisation has booked the GPUs for a fixed time.",
}
_CHANGES: dict[str, Sentence] = {
    "own": "Cancel or shorten a booking of your organisation that is ahead, if it is not needed.",
    "higher_tier": "A higher tier goes first: %(tiers)s.",
    "guarantee": (
        "It goes first once it fits in your organisation's guarantee of %(gpu_class)s, which other "
        "bookings use now."
    ),
    "no_guarantee": "Your organisation has no guarantee of %(gpu_class)s; bookings inside one go first.",
    "share": (
        "Past use counts half after %(days)s days, so its place gets better while your "
        "organisation, project or account uses less."
    ),
    "aged": "From then on it goes ahead of all who borrow, if it still waits.",
    "early_end": "It can start earlier if a booking that has its GPUs ends early.",
}


def ahead_text(rule: str, count: int, *, is_own: bool) -> str:
    """Returns who goes first and why: `3 bookings of other organisations: a higher tier.`"""
    if is_own:
        who = plural(
            "%(count)s booking of your organisation",
            "%(count)s bookings of your organisation",
            count,
        )
    else:
        who = plural(
            "%(count)s booking of another organisation",
            "%(count)s bookings of other organisations",
            count,
        )
    text = {"who": who % {"count": count}, "why": str(_KEYS[rule, is_own])}
    return "%(who)s: %(why)s." % text


def overtaken_text(rule: str, *, is_own: bool) -> str:
    """Returns why another booking goes first now. KeyError: no such key of the order."""
    return str(_OVERTAKEN[rule, is_own])


def change_text(code: str, /, **facts: str | int) -> str:
    """Returns what would let a booking start earlier. KeyError: no such code, or fact."""
    return str(_CHANGES[code] % Facts(facts))


_MOVERS = {
    "firm": "No other booking could delay this.",
    "guaranteed": "Only bookings of your own organisation could delay this.",
    "expected": "On borrowed GPUs: bookings of their owners go first.",
}


def mover_text(strength: str | None, gpu_class: str) -> str:
    """Returns whose bookings can make a start of this strength on a class later; unknown is expected."""
    return unit_text(str(_MOVERS[strength or "expected"]), gpu_class)


def makes_room_text(facts: Facts) -> str:
    """Returns what a start with victims waits for: their pause, their notice or their protection."""
    if "unnotified" not in facts:
        text = plural(
            "It starts when %(pauses)s paused booking has made room.",
            "It starts when %(pauses)s paused bookings have made room.",
            int(facts["pauses"]),
        )
    elif "until" in facts:
        text = plural(
            "Its planned start needs the GPUs of %(pauses)s running booking, which is protected for some "
            "time after its start or resume. It gets notice when that is over, if nothing else makes room.",
            "Its planned start needs the GPUs of %(pauses)s bookings, of which some are protected for some "
            "time after their start or resume. They get notice when that is over, if nothing else makes "
            "room.",
            int(facts["pauses"]),
        )
    elif facts["unnotified"] == facts["pauses"]:
        text = plural(
            "Its planned start needs the GPUs of %(pauses)s running booking, which has no notice "
            "yet. It gets notice shortly before, if nothing else makes room.",
            "Its planned start needs the GPUs of %(pauses)s running bookings, which have no notice "
            "yet. They get notice shortly before, if nothing else makes room.",
            int(facts["pauses"]),
        )
    else:
        text = (
            "Its planned start needs the GPUs of %(pauses)s bookings. Without a notice yet: "
            "%(unnotified)s; it is given shortly before, if nothing else makes room."
        )
    return text % facts
