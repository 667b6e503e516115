"""Dominant shares of tenants, projects and persons, which the queue is ordered by."""

from collections.abc import Iterable, Mapping
from copy import copy

import numpy as np

from solver.fleet.fragmentation import Ints
from solver.model.inputs import MILLION, Snapshot, Used
from solver.model.policy import Policy

Owner = str | tuple[str, str]
"""A tenant or a project by id, a person as (tenant, account)."""

# round(2**16 * 2**(-i / 32)): the rest of 65,536 after i thirty-seconds of a half-life.
_LEFT = (
    65536,
    64132,
    62757,
    61413,
    60097,
    58809,
    57549,
    56316,
    55109,
    53928,
    52773,
    51642,
    50535,
    49452,
    48393,
    47356,
    46341,
    45348,
    44376,
    43425,
    42495,
    41584,
    40693,
    39821,
    38968,
    38133,
    37316,
    36516,
    35734,
    34968,
    34219,
    33486,
)


def decayed(amount: int, age: int, half_life: int) -> int:
    """The rest of an amount after `age` seconds, rounded down."""
    left, shift = _rest_of(age, half_life)
    return (amount * left) >> shift


def _rest_of(age: int, half_life: int) -> tuple[int, int]:
    """What is left of any amount of that age: a factor, and the bits to shift by."""
    halves, rest = divmod(max(0, age) * len(_LEFT) // half_life, len(_LEFT))
    return _LEFT[rest], 16 + halves


class DominantShares:
    """Each owner's dominant share: its largest share of any class, recent and booked.

    Recent use is read at the last full `epoch`, so that it changes no order in between. Booked use
    counts at once, at most one half-life of it, so that a burst of bookings does not pass for
    little use.
    """

    def __init__(self, snapshot: Snapshot, capacity: Mapping[str, int], policy: Policy) -> None:
        self._capacity = capacity
        self._half_life = policy.half_life
        self._weights: dict[tuple[Owner, str], int] = {
            (row.owner, row.gpu_class): row.weight for row in snapshot.limits
        }
        self._amounts: dict[tuple[Owner, str], int] = {}
        self._wholes: dict[tuple[Owner, str], int] = {}
        self._dominant: dict[Owner, int] = {}
        epoch = snapshot.now // policy.epoch * policy.epoch
        for (tenant, project, person, gpu_class), amount in _left_of(snapshot.used, epoch, policy).items():
            self._more(owners_of(tenant, project, person), gpu_class, amount)

    def copy(self) -> "DominantShares":
        """The same shares, which change on their own from now on."""
        twin = copy(self)
        twin._amounts = dict(self._amounts)
        twin._dominant = dict(self._dominant)
        return twin

    def add(self, owners: Iterable[Owner], gpu_class: str, units: int, seconds: int) -> None:
        """Count units that are in use or booked for `seconds` more."""
        self._more(owners, gpu_class, units * max(0, min(seconds, self._half_life)))

    def add_all(self, owners: Iterable[Owner], gpu_class: str, units: Ints, seconds: Ints) -> None:
        """`add` for many of one kind."""
        amounts = units * np.clip(seconds, 0, self._half_life)
        self._more(owners, gpu_class, int(amounts.sum()))

    def dominant(self, owner: Owner) -> int:
        """Millionths of a class over a half-life, divided by weight."""
        return self._dominant.get(owner, 0)

    def _whole(self, owner: Owner, gpu_class: str) -> int:
        """The divisor of an amount; larger for more weight."""
        weight = max(1, self._weights.get((owner, gpu_class), 1))
        return max(1, self._capacity.get(gpu_class, 0)) * self._half_life * weight

    def _more(self, owners: Iterable[Owner], gpu_class: str, amount: int) -> None:
        for owner in owners:
            key = (owner, gpu_class)
            whole = self._wholes.get(key)
            if whole is None:
                whole = self._wholes[key] = self._whole(owner, gpu_class)
            amounts = self._amounts[key] = self._amounts.get(key, 0) + amount
            # Amounts only grow, so the largest share does, too.
            share = amounts * MILLION // whole
            if share > self._dominant.get(owner, -1):
                self._dominant[owner] = share


def _left_of(rows: Iterable[Used], epoch: int, policy: Policy) -> dict[tuple[str, str, str, str], int]:
    """What is left of past use, by tenant, project, person and class. Rows of a day have one age."""
    rests: dict[int, tuple[int, int]] = {}
    found: dict[tuple[str, str, str, str], int] = {}
    for row in rows:
        rest = rests.get(row.day)
        if rest is None:
            rest = rests[row.day] = _rest_of(epoch - row.day, policy.half_life)
        key = (row.tenant, row.project, row.owner, row.gpu_class)
        found[key] = found.get(key, 0) + ((row.unit_seconds * rest[0]) >> rest[1])
    return found


def owners_of(tenant: str, project: str, account: str) -> tuple[Owner, ...]:
    """Tenant, project and, if the account is known, person."""
    return (tenant, project, (tenant, account)) if account else (tenant, project)
