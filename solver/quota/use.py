"""What uses quota, by itself and as tables, and what forbids it. Units; seconds."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from solver.fleet.fragmentation import Ints
from solver.fleet.pool import Index
from solver.model.limits import Cap
from solver.quota.tree import OwnerPath, Tree


class Use(NamedTuple):
    """Units of a class that are requested or in use. `owners`: tenant, project, the names of its
    person's limits, and the name of its overrides if it has some."""

    owners: tuple[str, ...]
    tier: str
    gpu_class: str
    units: int


@dataclass(frozen=True, slots=True)
class Block:
    """What forbids a use: a limit, a guarantee that must not be exceeded, idle guarantees of others
    that are needed, a GPU-hour cap, or headroom. `most` and `used` in units (cap: unit-seconds, headroom:
    GPUs that are kept free, `until` a time). `is_dated`: a limit at some times is below the usual one."""

    kind: Literal["limit", "guarantee", "lent", "hours", "headroom"]
    owner: str
    used: int
    most: int
    cap: Cap | None = None
    is_dated: bool = False
    until: int = 0


class Kind(NamedTuple):
    """What decides how work uses quota. `owner` is the person's account."""

    quota_owners: tuple[str, ...]
    owner: str
    tier: str
    gpu_class: str


class Table(NamedTuple):
    """Windows with units and the number of their kind, as arrays. Each kind has a row."""

    kinds: tuple[Kind, ...]
    kind: Index
    units: Ints
    starts: Ints
    ends: Ints


class UseTable(NamedTuple):
    """Many uses as arrays: the number of each row's kind, its units and its window."""

    kinds: tuple[Use, ...]
    kind: Index
    units: Ints
    starts: Ints
    ends: Ints


class Guarantees(NamedTuple):
    """The tree of guarantees for which a use competes, its path there and in the trees that count
    it."""

    tree: Tree
    path: OwnerPath
    written: tuple[Tree, ...]
