"""Everything the solver answers, as frozen values. Each answer carries its reasons."""

from dataclasses import dataclass, field

from allocation.reasons.reason import Reason
from allocation.solver.model.inputs import OMITTED_WHEN_EMPTY, Place

PLAN_FORMAT = 2
"""The version of the format in which plans are written."""


@dataclass(frozen=True, slots=True)
class Assign:
    """Give these places to the booking for [starts, ends): rows are written for it now."""

    booking: str
    gpu_class: str
    places: tuple[Place, ...]
    starts: int
    ends: int
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Move:
    """A booking that has places and has not begun gets others for the same [starts, ends)."""

    booking: str
    gpu_class: str
    source: tuple[Place, ...]
    places: tuple[Place, ...]
    starts: int
    ends: int
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Waiting:
    """Keep the booking waiting, with the planned start that is its promise.

    `starts` is never later than the promise it had, unless `delayed_by` names why.
    """

    booking: str
    gpu_class: str
    places: tuple[Place, ...]
    starts: int
    ends: int
    reasons: tuple[Reason, ...]
    delayed_by: Reason | None = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """The booking can never be placed as asked. `alternatives` are windows that would work."""

    booking: str
    reasons: tuple[Reason, ...]
    alternatives: tuple["Alternative", ...] = ()


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another window or class for the same ask, that fitted when the decision was made."""

    gpu_class: str
    profile: str | None
    count: int
    starts: int
    ends: int
    share: int | None = None
    pin: tuple[str, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)


@dataclass(frozen=True, slots=True)
class Extend:
    """Answer to an extension: granted when `reasons` is empty."""

    booking: str
    until: int
    reasons: tuple[Reason, ...] = ()

    @property
    def granted(self) -> bool:
        """True when every place of the booking is free until then."""
        return not self.reasons


@dataclass(frozen=True, slots=True)
class Pause:
    """Tell the owner of a running booking now that all its places go to `beneficiary` at `at`.

    `at` is at least the victim's grace away. `lost` are the GPU-seconds since its last save. A
    planned resume, if one can be promised, is the victim's own row in `Plan.waits`.
    """

    booking: str
    beneficiary: str
    at: int
    lost: int
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class OrderAnswer:
    """Answer to an operator's order: carried out in this plan when `reasons` is empty."""

    order: str
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Borrow:
    """What a held, given or promised booking has above its owners' guarantees, in units.

    From `at_risk_from` on (Unix seconds; None: nobody asks) a lender waits for it.
    """

    booking: str
    own: int
    borrowed: int
    at_risk_from: int | None


@dataclass(frozen=True, slots=True)
class Claim:
    """A waiting booking within guarantee that would be running in [starts, ends) had it room."""

    booking: str
    tenant: str
    gpu_class: str
    starts: int
    ends: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole output of one cycle, each tuple ordered by booking id.

    Pauses of `withdrawn` are taken back: these bookings keep their room to the end that they had.
    `claims` are told only while somebody borrows: without that nobody could give room back.
    `format` is the version that it was written in: in 1, reasons had sentences and fewer facts.
    """

    assigns: tuple[Assign, ...]
    waits: tuple[Waiting, ...]
    refusals: tuple[Refuse, ...]
    extensions: tuple[Extend, ...]
    borrows: tuple[Borrow, ...] = ()
    claims: tuple[Claim, ...] = ()
    pauses: tuple[Pause, ...] = ()
    moves: tuple[Move, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    withdrawn: tuple[str, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    orders: tuple[OrderAnswer, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    format: int = PLAN_FORMAT
