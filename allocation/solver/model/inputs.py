"""Everything the solver reads, as frozen values.

Ids are strings, times are whole Unix seconds (UTC, half-open), room is memory slots, quota is
units. Nothing here knows where the values come from: the same bytes always mean the same cycle.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

SLOTS_PER_GPU = 8
UNITS_PER_GPU = 56_000

OMITTED_WHEN_EMPTY: dict[str, Any] = {"said": True}
"""Metadata of a field that is written only where it says something: documents from before it was
there keep their bytes."""

Together = Literal["gpu", "domain", "node", "rack", "any"]
"""How close the members of a gang lie: one GPU (slices), one NVLink domain, one node, one rack."""

Mode = Literal["whole", "sliced", "shared"]

Shape = str | int | None
"""What is asked of a GPU: a MIG profile by name, thousandths of a share, or None: all of it."""


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

    With `mode_switch` "reset" a change between whole and sliced resets the GPU: it must be empty
    for `switch_seconds`.
    """

    slug: str
    memory_slots: int
    compute_slices: int
    mode_switch: Literal["online", "reset"]
    placements: tuple[Placement, ...]
    switch_seconds: int = field(default=0, metadata=OMITTED_WHEN_EMPTY)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device. `mode` is what it is fixed to; None when it may be any.

    Shares need no other mode of the hardware than whole GPUs do: what is fixed to whole is shared.
    `shares` is False where the node can't tell several at once apart: it takes no new ones. On
    what is `silent`, as its node has not answered for a while, promises stay and nothing is added.
    `stands` is the mode that its hardware has now where a change takes a reset, None where modes
    change at no cost. An operator has `pinned` the mode that it is fixed to.
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


@dataclass(frozen=True, slots=True)
class Host:
    """What a node has beside its GPUs: cores in thousandths, memory in MiB."""

    id: str
    cores: int
    memory: int


@dataclass(frozen=True, slots=True)
class Place:
    """Slots of one GPU. `profile` is None for a whole GPU (start 0, all eight slots).

    So it is for a share: `share` thousandths of the whole GPU, beside other shares only.
    """

    gpu: str
    profile: str | None
    start: int
    size: int
    share: int | None = None

    @property
    def shape(self) -> Shape:
        """What of the GPU it is."""
        return self.profile if self.share is None else self.share


@dataclass(frozen=True, slots=True)
class Held:
    """A live allocation: on the calendar already.

    `tier` may be one that the snapshot does not describe: it counts, and is never paused. `since`
    is when its owner was handed the device for this run (None: not yet, or it is being given
    back), `saved` the last save that the owner acknowledged. The booking has been paused `pauses`
    times; with `pausing` it has been told to give the place back by `ends`. `cores` (thousandths)
    and `memory` (MiB) are of the GPU's node. `owner` is whose work it is: the account that runs
    it. What is `pinned` lies where its owner asked for it by name: its row is not moved to another
    place. Any other row with a `level` may be laid elsewhere before it starts, its whole gang in
    one group of that level.
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


@dataclass(frozen=True, slots=True)
class Ask:
    """What a booking wants: `count` × one shape, on any one of the classes, in order of taste.

    A gang is placed in a single class. `required` makes `together` a condition, not a wish. A
    share (thousandths, below 1,000) is of one GPU. Each of the `count` comes with `cores`
    (thousandths) and `memory` (MiB) of its node. With `any_class` no class is better than another.
    With a `pin` it lies on these alone: nodes by their ids, and GPUs as `node/index`.
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

    @property
    def shape(self) -> Shape:
        """What it wants of each GPU."""
        return self.profile if self.share is None else self.share


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """The planned start an earlier cycle gave, with the places that prove it fits."""

    starts: int
    ends: int
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """A booking that wants room. A fixed window is `earliest` + `duration` with `fixed`.

    `latest` is the last second at which a flexible booking may end; None for no deadline. A
    `paused` one was running and wants to go on; it has been paused `pauses` times.

    Work takes as long as its class needs: `durations` are (class, seconds), `duration` then is
    the shortest of them. With `cheapest` the classes come in order of cost, and the first that
    ends in time is taken, not the first that is free. Bookings of one `series` are placed all or
    none.

    What was suspended lies beside the GPUs of `home`, and can go on only there: for them it waits
    `home_wait` seconds longer than for any others.
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
    promise: PlannedStart | None
    paused: bool = False
    pauses: int = 0
    owner: str = ""
    durations: tuple[tuple[str, int], ...] = ()
    cheapest: bool = False
    series: str | None = None
    home: tuple[Place, ...] = ()
    home_wait: int = 0

    @property
    def pinned(self) -> bool:
        """True for one that names where it wants to lie."""
        return bool(self.ask.pin)

    def length_on(self, gpu_class: str) -> int:
        """Seconds that it takes on a class."""
        return dict(self.durations).get(gpu_class, self.duration)


@dataclass(frozen=True, slots=True)
class Extension:
    """The wish that all live allocations of a booking end at `until` instead."""

    booking: str
    until: int


@dataclass(frozen=True, slots=True)
class Tier:
    """What the solver must know of a service class.

    `counts`: its use counts against guarantees. What does not count always borrows, and nobody
    who has a guarantee feels it. A pausable booking is told `grace` seconds ahead, never in the
    first `protected` seconds of a run, and at most `pauses` times (None: as often as needed).
    """

    slug: str
    pausable: bool
    counts: bool
    priority: int = 0
    grace: int = 0
    protected: int = 0
    pauses: int | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """A node of the quota tree: a tenant (no `parent`), or a project of the tenant `parent`.

    Units of a class. A tenant's `guaranteed` covers what its projects are guaranteed. `borrow` is
    the most above the guarantee (None: as much as there is), `lend` the most of the idle guarantee
    that others may use (None: all). What is idle above all guarantees is split by `weight`.
    """

    owner: str
    parent: str | None
    gpu_class: str
    guaranteed: int
    borrow: int | None
    lend: int | None
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Cap:
    """The most unit-seconds of a class for an owner: in [starts, ends), which are days of UTC,
    or, with `rolling_days`, in any that many days in a row."""

    owner: str
    gpu_class: str
    most: int
    starts: int
    ends: int
    rolling_days: int | None = None


@dataclass(frozen=True, slots=True)
class Used:
    """Unit-seconds of a class that a project has had on the UTC day that begins at `day`."""

    tenant: str
    project: str
    gpu_class: str
    day: int
    unit_seconds: int


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A GPU is kept free in [starts, ends) for maintenance; what runs on it may reach into that."""

    gpu: str
    starts: int
    ends: int


@dataclass(frozen=True, slots=True)
class Relocation:
    """A running booking that is to be paused in one place and to go on in another."""

    booking: str
    source: Place
    target: Place


@dataclass(frozen=True, slots=True)
class Order:
    """What an operator has ordered: after these moves the beneficiary has these places."""

    id: str
    beneficiary: str
    gpu_class: str
    places: tuple[Place, ...]
    moves: tuple[Relocation, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """Every tunable of a cycle. Seconds, but for `share_step`: millionths of a class.

    `half_life`: after it, use counts half in the fair share. Shares are compared in steps of
    `share_step`, and waiting in steps of `age_step`, so that neither is decided by crumbs. Who has
    been paused is left alone for `cool_down` after it goes on. A notice goes out `notice_margin`
    before it must, so that it is never late by the time between two cycles. Shares of a GPU are
    one owner's at a time; with more `share_owners` than 1 they are anybody's. So that others fit,
    at most `neighbourhoods` of what has not begun are laid anew in a cycle, and at most
    `exact_neighbourhoods` of them by search for a proven answer. Without `mode_changes` (0) GPUs
    whose mode changes by a reset stay as they are; with them, a change is planned only where it
    lets somebody start more than `mode_patience` seconds earlier.
    """

    version: int
    grid: int = 300
    freeze_horizon: int = 60
    horizon: int = 28 * 86_400
    half_life: int = 7 * 86_400
    share_step: int = 5_000
    age_step: int = 6 * 3_600
    cool_down: int = 1_800
    notice_margin: int = 30
    share_owners: int = 1
    neighbourhoods: int = 32
    exact_neighbourhoods: int = 2
    mode_changes: int = 1
    mode_patience: int = 300


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole input of one cycle, each tuple in any order.

    `running` has the wish behind each running booking that may be paused, with what would be left
    of it now: for its planned resume. One that is not there is paused without. `unneeded` were told
    to leave for somebody who needs their room no more; `until` is the end that they had.
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
    orders: tuple[Order, ...] = field(default=(), metadata=OMITTED_WHEN_EMPTY)
