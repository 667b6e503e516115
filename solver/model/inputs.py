"""Everything the solver reads, as frozen values.

Ids are strings, times are whole Unix seconds (UTC, half-open), room is memory slots, quota is
units. Nothing here knows where the values come from: the same bytes always mean the same cycle.
"""

from dataclasses import dataclass, field
from typing import Literal

from solver.model.inner_limits import LabLimit, Peak, PersonLimit
from solver.model.leaving import Cooling, Idle, Notice
from solver.model.limits import Cap, DatedGuarantee, Limit, Override, TierPart, Used
from solver.model.omitted import OMITTED_WHEN_EMPTY, written_as
from solver.model.sites.energy import Energy
from solver.model.sites.nodes import Cache, Host
from solver.model.sites.where import Where

SLOTS_PER_GPU = 8
UNITS_PER_GPU = 56_000
MILLION = 1_000_000

Together = Literal["gpu", "domain", "node", "rack", "any"]
"""How close the members of a gang are: one GPU (slices), one NVLink domain, node, rack, or any of one
zone."""

Mode = Literal["whole", "sliced", "shared"]

Strength = Literal["firm", "guaranteed", "expected"]
"""What a planned start is worth: no booking may delay a firm one, only its own tenant's bookings a
guaranteed one, and any booking ahead in the queue an expected one."""

WITHIN = " within guarantee"
"""Ends the name of the tier of a use that may not borrow; no slug of a tier has a space."""

MIXED = " mixed"
"""Ends the name of the tier of a mixed booking's use. In a tier that can be paused it does not
count."""

BEHIND = " behind headroom"
"""Ends the name of the tier of a use that leaves the headroom of its class free at peaks."""

BEGUN = " begun"
"""Follows the name of the tier of a use that has run before. It may borrow, as it did at its start,
also if its tier is never paused any more."""

Shape = str | int | None
"""What of a GPU is requested: a MIG profile by name, thousandths of a share, or None: all of it."""


AFTER_ALL = 2**31 - 1
"""The position of a later end among the grants of its decision: nobody that was granted by the same
decision loses a guarantee to it."""


@dataclass(frozen=True, slots=True)
class Placement:
    """One legal place of a MIG profile: slots [start, start + size) of the GPU's memory slots."""

    profile: str
    start: int
    size: int
    compute: int
    profile_id: int
    limit: int


@dataclass(frozen=True, slots=True)
class Model:
    """Geometry of a GPU model, as enrolled from NVML.

    With `mode_switch` "reset" a change between whole and sliced resets the GPU, which must be empty
    for `switch_seconds`. Devices of a `host` model are cores of hosts: neither they nor GPUs are
    offered in place of the other.
    """

    slug: str
    memory_slots: int
    compute_slices: int
    mode_switch: Literal["online", "reset"]
    placements: tuple[Placement, ...]
    switch_seconds: int = field(default=0, metadata=OMITTED_WHEN_EMPTY)
    host: bool = field(default=False, metadata=OMITTED_WHEN_EMPTY)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device. `mode` is the mode that it is fixed to; None when any is allowed.

    A GPU fixed to whole can be shared: shares need no other hardware mode. `shares` is False where
    the node can't isolate several shares: it takes no new ones. On a `silent` GPU, whose node does
    not answer, planned starts stay and nothing is added. `stands` is its present hardware mode
    where a change needs a reset, None where changes are free. `pinned`: an operator has fixed the
    mode. `near` are the groups of its node that it is in by PCIe, the loosest first; empty where they
    are not known.
    """

    id: str
    number: int
    node: str
    rack: str
    index: int
    gpu_class: str
    model: str
    domain: int | None
    usable: bool
    mode: Mode | None
    shares: bool = True
    silent: bool = False
    stands: Mode | None = field(default=None, metadata=OMITTED_WHEN_EMPTY)
    pinned: bool = field(default=False, metadata=OMITTED_WHEN_EMPTY)
    zone: str = field(default="", metadata=OMITTED_WHEN_EMPTY)
    storage: str = field(default="", metadata=OMITTED_WHEN_EMPTY)
    scratch: int = field(default=0, metadata=OMITTED_WHEN_EMPTY)
    near: tuple[int, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)


@dataclass(frozen=True, slots=True)
class Place:
    """Slots of one GPU. `profile` is None for a whole GPU (start 0, all eight slots).

    For a share it is None, too: `share` thousandths of the whole GPU, next to other shares only.
    """

    gpu: str
    profile: str | None
    start: int
    size: int
    share: int | None = None

    @property
    def shape(self) -> Shape:
        """The shape of the place."""
        return self.profile if self.share is None else self.share


@dataclass(frozen=True, slots=True)
class Held:
    """A live allocation, already on the calendar.

    An unknown `tier` counts and is never paused. `since` is when the owner received the device for
    this run (None: not yet, or it is being returned), `saved` the last save that the owner
    acknowledged. The booking has been paused `pauses` times; with `pausing` it has notice to leave
    by `ends`. `cores` (thousandths) and `memory` (MiB) are of the GPU's node. `owner` is the
    account that runs it. A `pinned` row does not move. Any other row with a `level` may move before
    it starts, its whole gang in one group of that level. `granted` is the grant number: the cycle
    that decided this row and its position in that cycle's order (None: an older row, ordered by its
    start). For a `preemptor` somebody was paused. `override` is that of the booking's request. An
    `offered` row is kept for somebody who has not accepted it yet. A `mixed` row is a part of a
    booking with rows on several classes. `where` restricts where it may move.
    """

    id: str
    booking: str
    tenant: str
    project: str
    place: Place
    starts: int
    ends: int
    started: bool
    tier: str = ""
    since: int | None = None
    saved: int | None = None
    pauses: int = 0
    pausing: bool = False
    cores: int = 0
    memory: int = 0
    owner: str = ""
    pinned: bool = field(default=False, metadata=OMITTED_WHEN_EMPTY)
    level: Together | None = field(default=None, metadata=OMITTED_WHEN_EMPTY)
    granted: tuple[int, int] | None = field(default=None, metadata=OMITTED_WHEN_EMPTY)
    preemptor: bool = field(default=False, metadata=OMITTED_WHEN_EMPTY)
    offered: bool = field(default=False, metadata=OMITTED_WHEN_EMPTY)
    override: str = field(default="", metadata=OMITTED_WHEN_EMPTY)
    mixed: bool = field(default=False, metadata=OMITTED_WHEN_EMPTY)
    where: Where | None = field(default=None, metadata=OMITTED_WHEN_EMPTY)

    @property
    def quota_owners(self) -> tuple[str, ...]:
        """Whose quota it uses: tenant, project, and the name of its overrides if it has some."""
        owners = (self.tenant, self.project)
        return (*owners, self.override) if self.override else owners

    @property
    def quota_tier(self) -> str:
        """The tier that decides how its use counts."""
        return self.tier + MIXED if self.mixed else self.tier


@dataclass(frozen=True, slots=True)
class Ask:
    """The resources of a booking: `count` × one shape, on one of the classes, in order of
    preference.

    A gang is placed in a single class. `required` makes `together` a condition, else it is a
    preference. A share (thousandths, below 1,000) is of one GPU. Each of the `count` needs `cores`
    (thousandths) and `memory` (MiB) of its node. With `any_class` all classes are equivalent. A
    `pin` restricts it to these nodes, by id, and GPUs, as `node/index`, and `where` to zones and kinds
    of storage. A mixed booking has further `groups`, each on one class of its own: all start and end
    together in one zone, all or nothing. Of places that are as good, those on nodes that have more of
    the `data` are taken.
    """

    count: int
    classes: tuple[str, ...]
    profile: str | None
    together: Together
    required: bool
    share: int | None = None
    cores: int = 0
    memory: int = 0
    any_class: bool = False
    pin: tuple[str, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    groups: tuple["Ask", ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    where: Where | None = field(default=None, metadata=OMITTED_WHEN_EMPTY)
    data: tuple[str, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)

    @property
    def shape(self) -> Shape:
        """The shape of each GPU."""
        return self.profile if self.share is None else self.share

    @property
    def all_classes(self) -> tuple[str, ...]:
        """Its classes and those of its further groups."""
        return (*self.classes, *(name for each in self.groups for name in each.classes))

    @property
    def tier_mark(self) -> str:
        """What follows the tier's name where its use is counted: `MIXED` or nothing."""
        return MIXED if self.groups else ""


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """The planned start of an earlier cycle, with the places that prove it fits.

    Without a `strength` it is of an older plan and counts as expected.
    """

    starts: int
    ends: int
    places: tuple[Place, ...]
    strength: Strength | None = field(default=None, metadata=OMITTED_WHEN_EMPTY)


@dataclass(frozen=True, slots=True)
class Request:
    """A booking that needs a place. A fixed window is `earliest` + `duration` with `fixed`.

    `latest` is the last second at which a flexible booking may end; None for no deadline. A
    `paused` booking ran before and is to resume; it has been paused `pauses` times.

    Work takes as long as its class needs: `durations` are (class, seconds), and `duration` is the
    shortest of them. With `cheapest` the classes are in order of cost, and the first that ends in
    time is taken instead of the first that is free. Bookings of one `series` are placed all or
    none.

    Suspended work is kept on the GPUs of `home` and can continue only there; it waits `home_wait`
    seconds longer for them than for others. `revision`: how often the request was changed.

    A request in `Snapshot.pending` waits for an approval, and its place is kept `until` then.
    `override`: the name under which `Snapshot.overrides` has exceptions for it. A request `within`
    guarantees gets no borrowed GPUs, whatever its tier allows.
    """

    booking: str
    tenant: str
    project: str
    tier: str
    priority: int
    submitted: int
    ask: Ask
    duration: int
    earliest: int
    latest: int | None
    fixed: bool
    planned: PlannedStart | None = field(metadata=written_as("promise"))
    paused: bool = False
    pauses: int = 0
    owner: str = ""
    durations: tuple[tuple[str, int], ...] = ()
    cheapest: bool = False
    series: str | None = None
    home: tuple[Place, ...] = ()
    home_wait: int = 0
    revision: int = field(default=0, metadata=OMITTED_WHEN_EMPTY)
    until: int | None = field(default=None, metadata=OMITTED_WHEN_EMPTY)
    override: str = field(default="", metadata=OMITTED_WHEN_EMPTY)
    within: bool = field(default=False, metadata=OMITTED_WHEN_EMPTY)
    behind: bool = field(default=False, metadata=OMITTED_WHEN_EMPTY)
    """Whether it leaves headroom free, which its cycle finds out."""
    begun: bool = field(default=False, metadata=OMITTED_WHEN_EMPTY)
    """Whether it may borrow as it did at its start, which its cycle finds out."""

    @property
    def quota_owners(self) -> tuple[str, ...]:
        """Whose quota it uses: tenant, project, and the name of its overrides if it has some."""
        owners = (self.tenant, self.project)
        return (*owners, self.override) if self.override else owners

    @property
    def quota_tier(self) -> str:
        """The tier that decides how its use counts and how far it may go."""
        marks = BEGUN * self.begun + BEHIND * self.behind + WITHIN * self.within
        return self.tier + self.ask.tier_mark + marks

    @property
    def pinned(self) -> bool:
        """True for a booking that names its nodes or GPUs."""
        return bool(self.ask.pin)

    def length_on(self, gpu_class: str) -> int:
        """Duration in seconds on a class."""
        return dict(self.durations).get(gpu_class, self.duration)


@dataclass(frozen=True, slots=True)
class Extension:
    """A request that all live allocations of a booking end at `until` instead.

    `request` is its place in the queue: the added stretch under the id of the change. Without one
    it is decided before the queue. A `waiting` one was answered before: only a grant is an answer.
    """

    booking: str
    until: int
    request: Request | None = field(default=None, metadata=OMITTED_WHEN_EMPTY)
    waiting: bool = field(default=False, metadata=OMITTED_WHEN_EMPTY)


@dataclass(frozen=True, slots=True)
class Change:
    """A request to exchange what a booking has, before its run, for something else.

    `target` has its own place in the queue, and the id of the change in the place of the booking's.
    The booking keeps what it has if the target can't be met, or only by a start that is worth less
    than `strength`. Changes of one `group` are granted all or none. A `waiting` one was answered
    before: only a grant is an answer. With `sooner` the start that it gets is its fixed one.
    """

    booking: str
    target: Request
    strength: Strength | None = None
    group: str = field(default="", metadata=OMITTED_WHEN_EMPTY)
    waiting: bool = field(default=False, metadata=OMITTED_WHEN_EMPTY)
    sooner: bool = field(default=False, metadata=OMITTED_WHEN_EMPTY)


@dataclass(frozen=True, slots=True)
class Entry:
    """A booking on the waiting list that may get an offer, in any of its `windows` [from, until).

    Its last `expired` offers had no answer. In the `barred` classes its owner has another offer.
    """

    booking: str
    request: Request
    windows: tuple[tuple[int, int], ...]
    expired: int = 0
    barred: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tier:
    """The solver's view of a service class.

    `counts`: its use counts against guarantees. A tier that does not count always borrows and never
    affects those with a guarantee. A pausable booking gets notice `grace` seconds ahead, never in
    the first `protected` seconds of a run, and at most `pauses` times (None: no maximum). A tier
    that is never paused borrows for at most `borrow` seconds; the policy of a cycle sets it. A tier
    that `prefers` cheap (`price`) or clean (`carbon`) energy waits up to `shift` seconds for it.
    """

    slug: str
    pausable: bool
    counts: bool
    priority: int = 0
    grace: int = 0
    protected: int = 0
    pauses: int | None = None
    borrow: int = field(default=0, metadata=OMITTED_WHEN_EMPTY)
    prefers: str = field(default="", metadata=OMITTED_WHEN_EMPTY)
    shift: int = field(default=0, metadata=OMITTED_WHEN_EMPTY)


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A GPU is kept free in [starts, ends) for maintenance; running work may still overlap it."""

    gpu: str
    starts: int
    ends: int


@dataclass(frozen=True, slots=True)
class Relocation:
    """A running booking to pause in one place and resume in another."""

    booking: str
    source: Place
    target: Place


@dataclass(frozen=True, slots=True)
class Order:
    """An operator's order: after these moves the beneficiary gets these places."""

    id: str
    beneficiary: str
    gpu_class: str
    places: tuple[Place, ...]
    moves: tuple[Relocation, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole input of one cycle, each tuple in any order.

    `running` has the request of each running booking that may be paused, with what is left of it
    now, for its planned resume. A booking without one is paused without a resume. `unneeded`
    bookings have notice for a preemptor that no longer needs their room; `until` is their original
    end; of those with other `notices` the cycle finds it out. `pending` requests wait for an
    approval: they get soft places only. `entries` get offers of what all others leave. `idle`
    bookings end or pause if somebody starts earlier by it. Planned starts in `quiet` classes are
    kept without a search for earlier ones. In `peaks` the policy's headroom is kept free. `caches` have
    the data that requests name. `guarantees` are those between two instants, `tier_parts` those for
    some tiers.
    """

    now: int
    models: tuple[Model, ...]
    gpus: tuple[Gpu, ...]
    held: tuple[Held, ...]
    requests: tuple[Request, ...]
    extensions: tuple[Extension, ...]
    limits: tuple[Limit, ...]
    tiers: tuple[Tier, ...] = ()
    caps: tuple[Cap, ...] = ()
    used: tuple[Used, ...] = ()
    running: tuple[Request, ...] = ()
    hosts: tuple[Host, ...] = ()
    blackouts: tuple[Maintenance, ...] = ()
    unneeded: tuple[Extension, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    notices: tuple[Notice, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    orders: tuple[Order, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    changes: tuple[Change, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    pending: tuple[Request, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    overrides: tuple[Override, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    entries: tuple[Entry, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    idle: tuple[Idle, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    labs: tuple[LabLimit, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    persons: tuple[PersonLimit, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    cooling: tuple[Cooling, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    quiet: tuple[str, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    peaks: tuple[Peak, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    energy: tuple[Energy, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    caches: tuple[Cache, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    guarantees: tuple[DatedGuarantee, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
    tier_parts: tuple[TierPart, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
