"""Everything the solver answers, as frozen values. Each answer has its reasons."""

from dataclasses import dataclass, field

from solver.model.inputs import Ask, Place, Strength
from solver.model.omitted import OMITTED_WHEN_EMPTY
from solver.model.sites.where import Where
from solver.reasons.reason import Reason

PLAN_FORMAT = 2
"""The version of the format in which plans are written."""


@dataclass(frozen=True, slots=True)
class Assign:
    """Assign these places to the booking for [starts, ends); its rows are written now.

    `position` is its place in the order in which this cycle assigned, from 1 on. With the decision
    it is the grant number of the rows (`Held.granted`); 0 in plans that are older.
    """

    booking: str
    gpu_class: str
    places: tuple[Place, ...]
    starts: int
    ends: int
    reasons: tuple[Reason, ...] = ()
    position: int = field(default=0, metadata=OMITTED_WHEN_EMPTY)


@dataclass(frozen=True, slots=True)
class Move:
    """Change the places of a booking that has not begun, for the same [starts, ends)."""

    booking: str
    gpu_class: str
    source: tuple[Place, ...]
    places: tuple[Place, ...]
    starts: int
    ends: int
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Waiting:
    """Keep the booking waiting with this planned start.

    `starts` is never later than its last planned start, unless `delayed_by` gives the reason.
    `strength` says who may still delay it. `key` is its place in the queue: the band, the keys of
    the policy's `order` and the time of submission; of two, the lower goes first. A start that is
    kept `as_before`, without a search, keeps the reasons that it had.
    """

    booking: str
    gpu_class: str
    places: tuple[Place, ...]
    starts: int
    ends: int
    reasons: tuple[Reason, ...]
    delayed_by: Reason | None = None
    strength: Strength | None = field(default=None, metadata=OMITTED_WHEN_EMPTY)
    key: tuple[int, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    as_before: bool = field(default=False, metadata=OMITTED_WHEN_EMPTY)


@dataclass(frozen=True, slots=True)
class SoftPlace:
    """Keep these places for a request that waits for an approval; without any, it has lost them."""

    booking: str
    gpu_class: str
    places: tuple[Place, ...]
    starts: int
    ends: int


@dataclass(frozen=True, slots=True)
class Offered:
    """Offer these places for [starts, ends) to a booking on the waiting list, `until` a time."""

    booking: str
    gpu_class: str
    places: tuple[Place, ...]
    starts: int
    ends: int
    until: int


@dataclass(frozen=True, slots=True)
class IdleRelease:
    """Take the idle `gpus` of a booking: `beneficiary` can then start at `starts`, earlier than in
    this plan."""

    booking: str
    gpus: tuple[str, ...]
    beneficiary: str
    starts: int
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Refuse:
    """Refuse a booking that can't be placed as requested. `alternatives` are windows that would
    work."""

    booking: str
    reasons: tuple[Reason, ...]
    alternatives: tuple["Alternative", ...] = ()


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another window or class for the same request, free when the decision was made. `level` is that of
    its GPUs where it is looser than the one that was required."""

    gpu_class: str
    profile: str | None
    count: int
    starts: int
    ends: int
    share: int | None = None
    pin: tuple[str, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    groups: tuple[Ask, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    where: Where | None = field(default=None, metadata=OMITTED_WHEN_EMPTY)
    level: str = field(default="", metadata=OMITTED_WHEN_EMPTY)


@dataclass(frozen=True, slots=True)
class Extend:
    """The answer to an extension: granted when `reasons` is empty."""

    booking: str
    until: int
    reasons: tuple[Reason, ...] = ()

    @property
    def granted(self) -> bool:
        """True when the booking may end at `until`."""
        return not self.reasons


@dataclass(frozen=True, slots=True)
class ChangeAnswer:
    """The answer to a change: granted when `reasons` is empty.

    The plan then has what the booking gets as its assignment or planned start. Otherwise it keeps
    what it has, and `alternatives` are windows that would work.
    """

    booking: str
    change: str
    reasons: tuple[Reason, ...] = ()
    alternatives: tuple["Alternative", ...] = ()

    @property
    def granted(self) -> bool:
        """True when the booking gets what the change asks for."""
        return not self.reasons


@dataclass(frozen=True, slots=True)
class Pause:
    """Notify the owner of a running booking that all its places go to `beneficiary` at `at`.

    `at` is at least the victim's grace period away. `lost` is the GPU-seconds since its last save.
    A planned resume, if there is one, is the victim's own row in `Plan.waits`.
    """

    booking: str
    beneficiary: str
    at: int
    lost: int
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class DroppedPause:
    """A pause that `rule` (the code of its reason) allows but that would not bring pauses closer to
    rest: it is not made. Each is a fault in the rules."""

    beneficiary: str
    rule: str


@dataclass(frozen=True, slots=True)
class OrderAnswer:
    """The answer to an operator's order: carried out in this plan when `reasons` is empty."""

    order: str
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Borrow:
    """Units of a held or planned booking above its owners' guarantees.

    From `at_risk_from` on (Unix seconds; None: no claim) a lender waits for them. `lasts`: 1 for
    work that is never paused; the lender waits for its end, which is not extended.
    """

    booking: str
    own: int
    borrowed: int
    at_risk_from: int | None
    lasts: int = field(default=0, metadata=OMITTED_WHEN_EMPTY)


@dataclass(frozen=True, slots=True)
class Claim:
    """A waiting booking within its guarantee that would run in [starts, ends) if it had room."""

    booking: str
    tenant: str
    gpu_class: str
    starts: int
    ends: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole output of one cycle, each tuple ordered by booking id.

    Pauses of `withdrawn` bookings are cancelled: they keep their room to their original end.
    `claims` are listed only while some booking borrows. `format` is the version of the format: in
    1, reasons had sentences and fewer facts.
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
    dropped: tuple[DroppedPause, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    changes: tuple[ChangeAnswer, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    soft: tuple[SoftPlace, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    offers: tuple[Offered, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    idle: tuple[IdleRelease, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    offers_withdrawn: tuple[str, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    format: int = PLAN_FORMAT
