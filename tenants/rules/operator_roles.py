"""Roles of operators: which areas of the operators' work each may read, and in which it may act. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Area(StrEnum):
    """A part of the operators' work; each page and each REST route of operators belongs to one."""

    OWN = "own"
    OVERVIEW = "overview"
    NODES = "nodes"
    FLEET = "fleet"
    BOOKINGS = "bookings"
    APPEALS = "appeals"
    DISPUTES = "disputes"
    RULES = "rules"
    MONEY = "money"
    PEOPLE = "people"
    ACCESS = "access"
    SYSTEM = "system"
    LOG = "log"
    ROLES = "roles"


SITE, CLASS, POOL, READ_ONLY, BILLING, SUPPORT = "site", "class", "pool", "read_only", "billing", "support"
_ALL = frozenset(Area)
_OWN = frozenset({Area.OWN})
_OF_NODES = frozenset({Area.OWN, Area.OVERVIEW, Area.NODES, Area.FLEET, Area.BOOKINGS, Area.RULES})
_OF_BILLING = frozenset({Area.OWN, Area.OVERVIEW, Area.BOOKINGS, Area.DISPUTES, Area.MONEY})


@dataclass(frozen=True, slots=True)
class RoleReach:
    """What a role may read and do. `names` says what limits it: GPU classes, or racks and pools."""

    label: str
    says: str
    reads: frozenset[Area]
    acts: frozenset[Area]
    names: str = ""


ROLES: dict[str, RoleReach] = {
    SITE: RoleReach("Site", "Everything, and the roles of operators.", _ALL, _ALL),
    CLASS: RoleReach(
        "GPU classes",
        "Drains, maintenance and repairs of nodes whose GPUs are all of the named classes; reads the fleet,"
        " bookings and rules.",
        _OF_NODES,
        _OWN | {Area.NODES},
        "GPU classes",
    ),
    POOL: RoleReach(
        "Racks and pools",
        "Drains, maintenance and repairs of nodes in the named racks and pools; reads the fleet, bookings"
        " and rules.",
        _OF_NODES,
        _OWN | {Area.NODES},
        "racks and pools",
    ),
    READ_ONLY: RoleReach("Read only", "Reads all pages and changes nothing.", _ALL, _OWN),
    BILLING: RoleReach(
        "Billing",
        "Prices, budgets, corrections and disputes; reads bookings, and nothing of the fleet or the rules.",
        _OF_BILLING,
        _OWN | {Area.MONEY, Area.DISPUTES},
    ),
    SUPPORT: RoleReach(
        "Support",
        "Messages, releases and pauses of bookings, contested pauses, disputes, and access to organisations;"
        " reads everything.",
        _ALL,
        _OWN | {Area.BOOKINGS, Area.APPEALS, Area.DISPUTES, Area.ACCESS},
    ),
}


@dataclass(frozen=True, slots=True)
class Grant:
    """A role that an operator has. `names`: the classes, or the racks and pools, to which it is limited."""

    role: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rights:
    """What an operator may do: all that any of their roles may."""

    grants: tuple[Grant, ...] = ()

    def may(self, area: Area, *, act: bool = False) -> bool:
        """Whether one of the roles reads, or acts, in the area."""
        return any(area in (ROLES[each.role].acts if act else ROLES[each.role].reads) for each in self.grants)

    @property
    def node_names(self) -> tuple[Grant, ...] | None:
        """The roles that limit acts on nodes to what they name; None: every node."""
        acting = [each for each in self.grants if Area.NODES in ROLES[each.role].acts]
        return None if any(not ROLES[each.role].names for each in acting) else tuple(acting)


NO_RIGHTS = Rights()


def roles_for(area: Area, *, act: bool) -> list[str]:
    """The roles that may read, or act, in the area; `site` is the last."""
    found = [name for name, role in ROLES.items() if area in (role.acts if act else role.reads)]
    return sorted(found, key=lambda name: name == SITE)


def role_words(grants: Iterable[Grant]) -> str:
    """Roles as text: `billing, GPU classes (h100)`."""
    return ", ".join(
        ROLES[each.role].label.lower() + (f" ({', '.join(each.names)})" if each.names else "")
        for each in grants
    )
