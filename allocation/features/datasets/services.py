"""What nodes say of their data sets, and which nodes have which."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db.models import F

import wire
from allocation.features.datasets.models import NodeCache
from allocation.models import Node

_THOUSAND = 1_000
KEPT_EVERY = timedelta(seconds=20)
"""A node's listing changes at most once in this time; a node repeats what it has said."""


@dataclass(frozen=True, slots=True)
class NodeData:
    """A data set on a node."""

    name: str
    node: str
    size_mb: int | None
    used: datetime | None

    @property
    def size_text(self) -> str:
        """The size, for people."""
        return size_words(self.size_mb)


@dataclass(frozen=True, slots=True)
class DataSet:
    """A data set of the site: the nodes that have it, in the order of their names, and the largest size."""

    name: str
    size_mb: int | None
    used: datetime | None
    nodes: tuple[str, ...]


def caches_keep(readings: Sequence[tuple[UUID, wire.Telemetry]], now: datetime) -> None:
    """Keeps the newest listing of each node. More than a node may have are dropped."""
    said = {node: message.data for node, message in readings if message.data is not None}
    if not said:
        return
    known = {row.node_id: row for row in NodeCache.objects.filter(node__in=said)}
    for node, listing in sorted(said.items()):
        sets = {each.name: [each.size_mb, each.used] for each in listing[: wire.DATA_SETS_MAX]}
        row = known.get(node)
        if row is None:
            NodeCache.objects.create(node_id=node, sets=sets, said_at=now)
            # From now on its document has the data that bookings name.
            Node.objects.filter(id=node).update(generation=F("generation") + 1)
        elif row.sets != sets and now - row.said_at >= KEPT_EVERY:
            NodeCache.objects.filter(node=node).update(sets=sets, said_at=now)


def data_of_node(node: UUID, now: datetime) -> list[NodeData]:
    """Returns the data sets of a node, the last used first."""
    rows = _rows(NodeCache.objects.filter(node=node).select_related("node"), now)
    return sorted(rows, key=lambda each: (-(each.used.timestamp() if each.used else 0), each.name))


def data_of_site(now: datetime) -> list[DataSet]:
    """Returns the data sets of all nodes that take bookings of everybody, by name."""
    caches = NodeCache.objects.filter(node__pool="").exclude(node__state=Node.State.EXPECTED)
    found: dict[str, list[NodeData]] = {}
    for row in _rows(caches.select_related("node").order_by("node__name"), now):
        found.setdefault(row.name, []).append(row)
    return [
        DataSet(
            name,
            max((each.size_mb for each in rows if each.size_mb is not None), default=None),
            max((each.used for each in rows if each.used is not None), default=None),
            tuple(each.node for each in rows),
        )
        for name, rows in sorted(found.items())
    ]


def nodes_with(names: Collection[str] | None) -> dict[str, frozenset[str]]:
    """Returns, by the name of a node, those of these data sets that it has; None: all of nodes that take
    bookings of everybody."""
    if names is None:
        rows = NodeCache.objects.filter(node__pool="")
        return {node: frozenset(sets) for node, sets in rows.values_list("node__name", "sets")}
    rows = NodeCache.objects.filter(sets__has_any_keys=sorted(names))
    return {
        node: frozenset(names).intersection(sets) for node, sets in rows.values_list("node__name", "sets")
    }


def size_words(size_mb: int | None) -> str:
    """`120 MiB`, `1.5 GiB`, `150 TiB`; empty if it was not measured."""
    if size_mb is None:
        return ""
    amount, units = float(size_mb), ["MiB", "GiB", "TiB", "PiB"]
    while amount >= _THOUSAND and len(units) > 1:
        amount, units = amount / 1024, units[1:]
    return f"{amount:.3g} {units[0]}"


def _rows(caches: Iterable[NodeCache], now: datetime) -> list[NodeData]:
    return [
        NodeData(name, row.node.name, size_mb, _moment(used, now))
        for row in caches
        for name, (size_mb, used) in sorted(row.sets.items())
    ]


def _moment(used: int | None, now: datetime) -> datetime | None:
    """A time by the node's clock, not later than now; None for one that is no time."""
    if used is None or used < 0:
        return None
    return datetime.fromtimestamp(min(used, int(now.timestamp())), UTC)
