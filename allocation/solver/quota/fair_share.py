"""Fair shares: recent use that decays, and the weighted split of what nobody is guaranteed."""

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass

import numpy as np

from allocation.solver.fleet.fragmentation import Ints
from allocation.solver.model.inputs import MILLION, Limit, Snapshot
from allocation.solver.model.policy import Policy

Owner = str | tuple[str, str]
"""A tenant or a project by id, a person as (tenant, account)."""

# round(2**16 * 2**(-i / 32)): the rest of 65,536 after i thirty-seconds of a half-life.
_LEFT = (
    65536, 64132, 62757, 61413, 60097, 58809, 57549, 56316,
    55109, 53928, 52773, 51642, 50535, 49452, 48393, 47356,
    46341, 45348, 44376, 43425, 42495, 41584, 40693, 39821,
    38968, 38133, 37316, 36516, 35734, 34968, 34219, 33486,
)  # fmt: skip


def decayed(amount: int, age: int, half_life: int) -> int:
    """The rest of an amount after `age` seconds, rounded down."""
    halves, rest = divmod(max(0, age) * len(_LEFT) // half_life, len(_LEFT))
    return (amount * _LEFT[rest]) >> (16 + halves)


@dataclass(frozen=True, slots=True)
class Claimant:
    """An owner who requests units of a total, with a guarantee and a weight."""

    owner: str
    guaranteed: int
    requested: int
    weight: int = 1


def split(total: int, claimants: Iterable[Claimant]) -> dict[str, int]:
    """Each owner's share: first min(guaranteed, requested), then the rest by weight, repeated until
    no owner with weight wants more or nothing is left. Weight 0 gets no rest.

    An indivisible rest goes unit by unit to the largest remainder, then by weight and owner.
    """
    order = sorted(claimants, key=lambda each: (-each.weight, each.owner))
    shares = {each.owner: min(each.guaranteed, each.requested) for each in order}
    rest = total - sum(shares.values())
    while rest > 0:
        open_ones = [each for each in order if each.weight and shares[each.owner] < each.requested]
        if not open_ones:
            break
        weights = sum(each.weight for each in open_ones)
        parts = {each.owner: rest * each.weight // weights for each in open_ones}
        nearest = sorted(open_ones, key=lambda each: -(rest * each.weight % weights))
        for each in nearest[: rest - sum(parts.values())]:
            parts[each.owner] += 1
        for each in open_ones:
            part = min(parts[each.owner], each.requested - shares[each.owner])
            shares[each.owner] += part
            rest -= part
    return shares


def split_to_projects(
    limits: Iterable[Limit], demand: Mapping[str, int], capacity: int
) -> dict[str, int]:
    """Shares of one class for tenants, and of each tenant's share for its projects.

    `demand` is units by owner, a tenant's including its projects'.
    """
    rows = list(limits)
    shares = split(capacity, [_claimant(row, demand) for row in rows if row.parent is None])
    for tenant in sorted(shares):
        inner = [_claimant(row, demand) for row in rows if row.parent == tenant]
        shares |= split(shares[tenant], inner)
    return shares


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
        for row in snapshot.used:
            amount = decayed(row.unit_seconds, epoch - row.day, policy.half_life)
            self._more(owners_of(row.tenant, row.project, row.owner), row.gpu_class, amount)

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


def owners_of(tenant: str, project: str, account: str) -> tuple[Owner, ...]:
    """Tenant, project and, if the account is known, person."""
    return (tenant, project, (tenant, account)) if account else (tenant, project)


def _claimant(row: Limit, demand: Mapping[str, int]) -> Claimant:
    most = demand.get(row.owner, 0)
    if row.borrow is not None:
        most = min(most, row.guaranteed + row.borrow)
    return Claimant(row.owner, row.guaranteed, most, row.weight)
