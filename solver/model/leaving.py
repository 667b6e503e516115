"""Idle bookings and notices, and persons whose claims pause nobody for a while."""

from dataclasses import dataclass, field

from solver.model.omitted import OMITTED_WHEN_EMPTY


@dataclass(frozen=True, slots=True)
class Cooling:
    """A person of a tenant whose claims on a class pause nobody before `until`: one was
    cancelled after others had notice for it. Without an `owner` it is the whole tenant, without a
    `gpu_class` all classes."""

    tenant: str
    until: int
    owner: str = field(default="", metadata=OMITTED_WHEN_EMPTY)
    gpu_class: str = field(default="", metadata=OMITTED_WHEN_EMPTY)

    def covers(self, owner: str, gpu_class: str) -> bool:
        """Whether it is about this person's claims on this class."""
        return self.owner in ("", owner) and self.gpu_class in ("", gpu_class)


@dataclass(frozen=True, slots=True)
class Notice:
    """A booking that has notice to leave for its `beneficiary` and can still stay, until
    its original end. `rule` is the id of the rule that allowed the pause; empty if it is not known."""

    booking: str
    beneficiary: str
    until: int
    rule: str = field(default="", metadata=OMITTED_WHEN_EMPTY)


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
