"""Parts of guarantees that count for some tiers only: what is left for the other tiers. Units."""

from itertools import pairwise

from solver.model.inner_limits import FOREVER, PersonLimits
from solver.model.inputs import BEGUN, BEHIND, MIXED, WITHIN, Snapshot
from solver.model.limits import DatedGuarantee, Limit, TierPart
from solver.quota.use import Use

Key = tuple[str, str]
"""A tenant, or what its other tiers use, and a class."""
_OTHERS = "/other tiers"


class TierParts:
    """What work of the other tiers may use of each guarantee that has a part for some tiers: the guarantee
    without that part, at each instant."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Parts of tenants without a limit say nothing."""
        tenants = {(row.owner, row.gpu_class): row for row in snapshot.limits if row.parent is None}
        self._rows: dict[Key, tuple[TierPart, Limit]] = {
            (row.owner, row.gpu_class): (row, tenants[row.owner, row.gpu_class])
            for row in snapshot.tier_parts
            if row.units and (row.owner, row.gpu_class) in tenants
        }
        self._dated: dict[Key, list[DatedGuarantee]] = {}
        for each in snapshot.guarantees if self._rows else ():
            self._dated.setdefault((each.owner, each.gpu_class), []).append(each)
        self._usual = {
            others_of(key): max(0, limit.guaranteed - part.units) for key, (part, limit) in self._rows.items()
        }

    def key(self, tenant: str, gpu_class: str, tier: str) -> Key | None:
        """Whose use work of a tier also is; None: it may use all of the tenant's guarantee."""
        row = self._rows.get((tenant, gpu_class))
        return None if row is None or tier_of(tier) in row[0].tiers else others_of((tenant, gpu_class))

    def owners(self, use: Use) -> tuple[str, ...]:
        """The owners of a use of guarantees: also the other tiers, if it is one of theirs."""
        key = self.key(use.owners[0], use.gpu_class, use.tier)
        return use.owners if key is None else (*use.owners[:2], key[0], *use.owners[2:])

    def kept_from(self, use: Use) -> TierPart | None:
        """The part of its tenant's guarantee that a use may not have, because of its tier."""
        if self.key(use.owners[0], use.gpu_class, use.tier) is None:
            return None
        return self._rows[use.owners[0], use.gpu_class][0]

    def limit_of(self, persons: PersonLimits | None, gpu_class: str, name: str) -> int | None:
        """What the other tiers usually may use, or the limit of a person, by its name; None: no limit."""
        most = self._usual.get((name, gpu_class))
        return persons.most(gpu_class, name) if most is None and persons is not None else most

    def pairs(self) -> dict[Key, Key]:
        """The keys of what the other tiers use, by those of tenants with such a part."""
        return {key: others_of(key) for key in self._rows}

    def changes(self, key: Key) -> list[tuple[int, int]]:
        """What the other tiers of a tenant may use from each date on; first, usually."""
        part, limit = self._rows[key]
        dated = self._dated.get(key, ())
        found = [(0, max(0, limit.guaranteed - part.units))]
        for at in sorted({at for each in dated for at in (each.starts, each.ends)}):
            now = next((each.guaranteed for each in dated if each.starts <= at < each.ends), limit.guaranteed)
            found.append((at, max(0, now - part.units)))
        return found

    def raised(self, gpu_class: str) -> list[tuple[str, int, int, int]]:
        """What this changes by at each date, for good: as exceptions of a tree."""
        found = []
        for key in self._rows if self._dated else ():
            changes = self.changes(key) if key[1] == gpu_class else []
            for (_, before), (at, after) in pairwise(changes):
                if after != before:
                    found.append((others_of(key)[0], after - before, at, FOREVER))
        return found


def others_of(key: Key) -> Key:
    """The key of what the other tiers of a tenant use."""
    return (key[0] + _OTHERS, key[1])


def tier_of(slug: str) -> str:
    """The tier of a use, without what its name ends with."""
    return slug.removesuffix(WITHIN).removesuffix(BEHIND).removesuffix(BEGUN).removesuffix(MIXED)
