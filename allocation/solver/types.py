"""Everything the solver reads, as frozen values.

Ids are strings, times are whole Unix seconds (UTC, half-open), room is memory slots, quota is
units. Nothing here knows where the values come from: the same bytes always mean the same cycle.
"""

from dataclasses import dataclass
from typing import Literal

SLOTS_PER_GPU = 8
UNITS_PER_GPU = 56_000

Together = Literal["gpu", "domain", "node", "rack", "any"]
"""How close the members of a gang lie: one GPU (slices), one NVLink domain, one node, one rack."""

Mode = Literal["whole", "sliced"]


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
    """Geometry of a GPU model, as enrolled from NVML."""

    slug: str
    memory_slots: int
    compute_slices: int
    mode_switch: Literal["online", "reset"]
    placements: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device. `mode` is what it is fixed to; None when it may be either."""

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


@dataclass(frozen=True, slots=True)
class Place:
    """Slots of one GPU. `profile` is None for a whole GPU (start 0, all eight slots)."""

    gpu: str
    profile: str | None
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Held:
    """A live allocation: on the calendar already, and never moved in this version."""

    id: str
    booking: str
    tenant: str
    project: str
    place: Place
    starts: int
    ends: int
    started: bool


@dataclass(frozen=True, slots=True)
class Ask:
    """What a booking wants: `count` × one shape, on any one of the classes, in order of taste.

    A gang is placed in a single class. `required` makes `together` a condition, not a wish.
    """

    count: int
    classes: tuple[str, ...]
    profile: str | None
    together: Together
    required: bool


@dataclass(frozen=True, slots=True)
class Promise:
    """The planned start an earlier cycle gave, with the places that prove it fits."""

    starts: int
    ends: int
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """A booking that wants room. A fixed window is `earliest` + `duration` with `fixed`.

    `latest` is the last second at which a flexible booking may end; None for no deadline.
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
    promise: Promise | None


@dataclass(frozen=True, slots=True)
class Extension:
    """The wish that all live allocations of a booking end at `until` instead."""

    booking: str
    until: int


@dataclass(frozen=True, slots=True)
class Limit:
    """The most units of a class that an owner may use at any instant.

    `owner` is a tenant id or a project id; `guaranteed` is kept for order and for the answer.
    """

    owner: str
    gpu_class: str
    guaranteed: int
    limit: int | None


@dataclass(frozen=True, slots=True)
class Policy:
    """Every tunable of a cycle. Seconds."""

    version: int
    grid: int = 300
    freeze_horizon: int = 60
    horizon: int = 28 * 86_400


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole input of one cycle, each tuple in any order."""

    now: int
    models: tuple[Model, ...]
    gpus: tuple[Gpu, ...]
    held: tuple[Held, ...]
    requests: tuple[Request, ...]
    extensions: tuple[Extension, ...]
    limits: tuple[Limit, ...]
