"""Limits inside a tenant: labs between tenant and projects, and caps of persons."""

from dataclasses import dataclass

FOREVER = 1 << 40
"""The end of a window that has none."""


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
