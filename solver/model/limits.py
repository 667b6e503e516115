"""Limits of tenants and projects, exceptions from them, and caps of GPU-hours with their use."""

from dataclasses import dataclass, field

from solver.model.omitted import OMITTED_WHEN_EMPTY


@dataclass(frozen=True, slots=True)
class Limit:
    """A node of the quota tree: a tenant (no `parent`), or a project of the tenant `parent`.

    Units of a class. A tenant's `guaranteed` covers its projects'. `borrow` is the most above the
    guarantee (None: unlimited), `lend` the most of the idle guarantee that others may use (None:
    all). Idle capacity above all guarantees is divided by `weight`.
    """

    owner: str
    parent: str | None
    gpu_class: str
    guaranteed: int
    borrow: int | None
    lend: int | None
    weight: int = 1


@dataclass(frozen=True, slots=True)
class DatedGuarantee:
    """Another guarantee of a tenant, lab or project in [starts, ends), in units of a class.

    It replaces `guaranteed` of the owner's limit, and with a borrow limit the owner's most rises or
    falls with it. Those of one owner and class do not overlap, and at each instant a tenant's, or a
    lab's, covers what those below it are guaranteed together.
    """

    owner: str
    gpu_class: str
    starts: int
    ends: int
    guaranteed: int


@dataclass(frozen=True, slots=True)
class TierPart:
    """Units of a tenant's guarantee of a class that count for work of some tiers only.

    Work of the other tiers uses what the guarantee has above that; these tiers may use all of it. What a
    tenant has altogether is not limited by it.
    """

    owner: str
    gpu_class: str
    units: int
    tiers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Override:
    """An exception from an owner's limits of a class, in [starts, ends).

    It raises the limit by `units` (negative: lowers it) and GPU-hour caps by `unit_seconds`, for
    windows inside its own. No guarantee changes. With a `booking` it raises nothing: so many units
    of the requests and rows with this `override` don't count at the owner, whenever they run. If it
    `keeps` them, they all count, but neither a limit nor a cap of the owner forbids them anything; with
    `guarantee` only what the owner is guaranteed does not, and no other tenant has them paused.
    """

    id: str
    owner: str
    gpu_class: str
    starts: int
    ends: int
    units: int = 0
    unit_seconds: int = field(default=0, metadata=OMITTED_WHEN_EMPTY)
    booking: str = field(default="", metadata=OMITTED_WHEN_EMPTY)
    keeps: bool = field(default=False, metadata=OMITTED_WHEN_EMPTY)
    guarantee: bool = field(default=False, metadata=OMITTED_WHEN_EMPTY)


@dataclass(frozen=True, slots=True)
class Cap:
    """Maximum unit-seconds of a class for an owner: in [starts, ends), whole days of UTC, or, with
    `rolling_days`, in any that many consecutive days."""

    owner: str
    gpu_class: str
    most: int
    starts: int
    ends: int
    rolling_days: int | None = None


@dataclass(frozen=True, slots=True)
class Used:
    """Unit-seconds of a class that a person used in a project on the UTC day that begins at `day`.

    Without an `owner` they are of the whole project.
    """

    tenant: str
    project: str
    gpu_class: str
    day: int
    unit_seconds: int
    owner: str = field(default="", metadata=OMITTED_WHEN_EMPTY)
