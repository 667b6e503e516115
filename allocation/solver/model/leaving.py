"""Idle bookings and notices, and persons whose claims pause nobody for a while."""

from dataclasses import dataclass, field

from allocation.solver.model.omitted import OMITTED_WHEN_EMPTY


@dataclass(frozen=True, slots=True)
class Cooling:
    """A tenant for which nobody is paused before `until`: a claim of it was cancelled after others
    had notice."""

    tenant: str
    until: int


@dataclass(frozen=True, slots=True)
class Notice:
    """A booking that has notice to leave for its `beneficiary` and can still stay, until
    its original end."""

    booking: str
    beneficiary: str
    until: int


@dataclass(frozen=True, slots=True)
class Idle:
    """A running booking whose `gpus` have been idle `since` a time, and whose owner was warned.

    Its owner can say until `veto_until` that it is still needed. It takes `grace` seconds to leave.
    """

    booking: str
    gpus: tuple[str, ...]
    since: int
    veto_until: int
    grace: int = field(default=0, metadata=OMITTED_WHEN_EMPTY)
