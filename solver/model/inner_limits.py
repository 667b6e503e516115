"""Limits inside a tenant: labs between tenant and projects, and caps of persons; peaks of a class."""

from collections.abc import Iterable
from dataclasses import dataclass

FOREVER = 1 << 40
"""The end of a window that has none."""
Owners = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LabLimit:
    """A node of the quota tree between a tenant and some of its projects, for a class, in units.

    As in `Limit`; `guaranteed` covers what its `projects` are guaranteed, and is part of what the
    tenant is guaranteed.
    """

    owner: str
    tenant: str
    gpu_class: str
    guaranteed: int
    borrow: int | None
    lend: int | None
    projects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PersonLimit:
    """The most units of a class that a person uses at once inside a `scope`, a tenant or a project.

    `person` is an account. Without one the limit is that of each person who has none of their own
    in the scope.
    """

    scope: str
    person: str
    gpu_class: str
    most: int


@dataclass(frozen=True, slots=True)
class Peak:
    """Hours [starts, ends) in which so much of a class is expected to be asked for that the policy's
    `headroom` is kept free in them."""

    gpu_class: str
    starts: int
    ends: int


class PersonLimits:
    """The most units of each person in a tenant or project.

    A person's node in a scope is named `scope account`; no id has a space.
    """

    def __init__(self, rows: Iterable[PersonLimit]) -> None:
        self._most = {(row.gpu_class, row.scope, row.person): row.most for row in rows}
        self._named = {(scope, person) for _, scope, person in self._most}
        self._owners: dict[tuple[Owners, str], Owners] = {}

    def owners(self, owners: Owners, account: str) -> Owners:
        """The owners (tenant, project, …) of a use with the names of its person's limits."""
        if not account:
            return owners
        key = (owners, account)
        found = self._owners.get(key)
        if found is None:
            names = [
                f"{scope} {account}"
                for scope in reversed(owners[:2])
                if {(scope, account), (scope, "")} & self._named
            ]
            rest = [name for name in owners[2:] if name not in names]
            found = self._owners[key] = (*owners[:2], *names, *rest)
        return found

    def most(self, gpu_class: str, name: str) -> int | None:
        """The limit of a class that a name has; None: no limit, or no person's name."""
        scope, _, account = name.partition(" ")
        own = self._most.get((gpu_class, scope, account)) if account else None
        return self._most.get((gpu_class, scope, "")) if own is None and account else own
