"""Split a site into shards that decide nothing for each other, and merge their plans.

GPU classes belong to one shard if a request may use either, if they share hosts, if one booking
holds GPUs of both, or if one tenant or project has or asks for something in both: its recent use
of one class then decides its place in the queue of the other. `solve` decides large sites shard by
shard wherever each shard is decided, so the plan is the same with workers and without.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from itertools import chain
from typing import Any

from solver.cycle.solve import solve as solve_whole
from solver.model.inputs import Gpu, Place, Request, Snapshot
from solver.model.ordering import in_order
from solver.model.plan import Plan
from solver.model.policy import Policy
from solver.state.kept import Kept

Node = tuple[str, str]
"""A class, host, booking, tenant or project, with its kind."""

SPLIT_FROM = 20_000
"""Held and waiting rows from which a site is split. A refusal names other classes that are free;
in a shard it can only name the classes of the shard, so smaller sites stay whole."""

Decide = Callable[[list[Snapshot], Policy], Iterable[Plan]]
"""Returns the plan of each shard, in their order."""


def solve(
    snapshot: Snapshot,
    policy: Policy,
    decide: Decide | None = None,
    split_from: int = SPLIT_FROM,
    kept: Kept | None = None,
    *,
    brief: bool = False,
) -> Plan:
    """Decide all requests, extensions and orders. ValueError: the snapshot contradicts itself.

    `decide` may decide the shards elsewhere; None: here, one after the other. Sites of fewer than
    `split_from` held and waiting rows have one shard. `kept` has what the last call made of
    held work that is decided here; the plan is the same without it. A `brief` plan decides the same,
    and does not say why somebody waits, who borrows, and what else would work.
    """
    classes = {gpu.gpu_class for gpu in snapshot.gpus}
    is_whole = len(classes) < 2 or size_of(snapshot) < split_from
    snapshot = in_order(snapshot)
    if is_whole:
        return solve_whole(snapshot, policy, kept, brief=brief)
    shards = shards_of(snapshot)
    if len(shards) == 1:
        return solve_whole(shards[0], policy, kept, brief=brief)
    if decide is None:
        return merged([solve_whole(each, policy, _kept_of(kept, each), brief=brief) for each in shards])
    return merged(list(decide(shards, policy)))


def _kept_of(kept: Kept | None, shard: Snapshot) -> Kept | None:
    return None if kept is None else kept.shard(gpu.gpu_class for gpu in shard.gpus)


def size_of(snapshot: Snapshot) -> int:
    """Held and waiting rows."""
    return len(snapshot.held) + len(snapshot.requests)


def shards_of(snapshot: Snapshot) -> list[Snapshot]:
    """The shards of a snapshot in the order of their first classes; itself if it has only one."""
    links = _Links(snapshot.gpus)
    for node, others in _couplings(snapshot, links.class_of):
        links.join(node, others)
        if links.classes == 1:
            return [snapshot]
    return _split(snapshot, links)


def merged(plans: list[Plan]) -> Plan:
    """One plan of the plans of all shards; assignments are numbered through."""
    number = 0
    numbered = []
    for plan in plans:
        assigns = tuple(replace(row, position=row.position + number) for row in plan.assigns)
        numbered.append(replace(plan, assigns=assigns))
        number += len(plan.assigns)
    rows: dict[str, Any] = {
        part.name: tuple(
            sorted(chain.from_iterable(getattr(plan, part.name) for plan in numbered), key=_order)
        )
        for part in fields(Plan)
        if part.name != "format"
    }
    return Plan(**rows)


class _Links:
    """Classes and what connects them, as disjoint sets."""

    def __init__(self, gpus: Iterable[Gpu]) -> None:
        self.class_of = {gpu.id: gpu.gpu_class for gpu in gpus}
        self._parent: dict[Node, Node] = {}
        names = set(self.class_of.values())
        self.classes = len(names)
        """How many sets have a class of the fleet."""
        self._has_class = {("class", name) for name in names}

    def root(self, node: Node) -> Node:
        """The representative of the node's set."""
        parent = self._parent
        while parent.setdefault(node, node) != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    def join(self, node: Node, others: Iterable[Node]) -> None:
        """Make one set of the sets of all of these."""
        one = self.root(node)
        for each in others:
            other = self.root(each)
            if other == one:
                continue
            self._parent[other] = one
            if other in self._has_class:
                self.classes -= one in self._has_class
                self._has_class.add(one)


def _couplings(snapshot: Snapshot, class_of: dict[str, str]) -> Iterator[tuple[Node, Iterable[Node]]]:
    def on(places: Iterable[Place]) -> list[Node]:
        return [("class", class_of[each.gpu]) for each in places if each.gpu in class_of]

    entries = (entry.request for entry in snapshot.entries)
    for request in (*snapshot.requests, *snapshot.running, *snapshot.pending, *entries):
        places = () if request.planned is None else request.planned.places
        yield (
            _whose(request),
            [
                ("project", request.project),
                ("booking", request.booking),
                *(("class", name) for name in request.ask.all_classes),
                *on((*places, *request.home)),
            ],
        )
    for change in snapshot.changes:
        names = [("class", name) for name in change.target.ask.all_classes]
        names += [("group", change.group)] if change.group else []
        yield _whose(change.target), [("booking", change.booking), *names]
    for row in snapshot.held:
        others = [("project", row.project), ("booking", row.booking), *on((row.place,))]
        yield ("tenant", row.tenant), others
    for used in snapshot.used:
        yield ("tenant", used.tenant), [("project", used.project), ("class", used.gpu_class)]
    for order in snapshot.orders:
        moves = chain.from_iterable((move.source, move.target) for move in order.moves)
        bookings = [("booking", move.booking) for move in order.moves]
        yield ("booking", order.beneficiary), [*bookings, *on((*order.places, *moves))]
    for gpu in snapshot.gpus:
        yield ("node", gpu.node), [("class", gpu.gpu_class)]


def _split(snapshot: Snapshot, links: _Links) -> list[Snapshot]:
    """One snapshot for each set. What has no class in the fleet goes with the first."""
    roots = [links.root(("class", name)) for name in sorted(set(links.class_of.values()))]
    number = {root: at for at, root in enumerate(dict.fromkeys(roots))}

    def shard(node: Node) -> int:
        return number.get(links.root(node), 0)

    def apart(rows: Iterable[Any], node_of: Callable[[Any], Node]) -> list[tuple[Any, ...]]:
        found: list[list[Any]] = [[] for _ in number]
        for row in rows:
            found[shard(node_of(row))].append(row)
        return [tuple(each) for each in found]

    def class_of(row: Any) -> Node:  # noqa: ANN401  any row of a class
        return ("class", row.gpu_class)

    def booking_of(row: Any) -> Node:  # noqa: ANN401  any row of a booking
        return ("booking", row.booking)

    parts: dict[str, list[Any]] = {
        "gpus": apart(snapshot.gpus, class_of),
        "held": apart(snapshot.held, booking_of),
        "requests": apart(snapshot.requests, _whose),
        "running": apart(snapshot.running, _whose),
        "pending": apart(snapshot.pending, _whose),
        "entries": apart(snapshot.entries, booking_of),
        "extensions": apart(snapshot.extensions, booking_of),
        "unneeded": apart(snapshot.unneeded, booking_of),
        "notices": apart(snapshot.notices, booking_of),
        "limits": apart(snapshot.limits, class_of),
        "labs": apart(snapshot.labs, class_of),
        "persons": apart(snapshot.persons, class_of),
        "caps": apart(snapshot.caps, class_of),
        "overrides": apart(snapshot.overrides, class_of),
        "guarantees": apart(snapshot.guarantees, class_of),
        "tier_parts": apart(snapshot.tier_parts, class_of),
        "used": apart(snapshot.used, class_of),
        "peaks": apart(snapshot.peaks, class_of),
        "hosts": apart(snapshot.hosts, lambda host: ("node", host.id)),
        "caches": apart(snapshot.caches, lambda cache: ("node", cache.node)),
        "blackouts": apart(snapshot.blackouts, lambda row: ("class", links.class_of.get(row.gpu, ""))),
        "changes": apart(snapshot.changes, booking_of),
        "idle": apart(snapshot.idle, booking_of),
        "orders": apart(snapshot.orders, lambda row: ("booking", row.beneficiary)),
    }
    each: list[dict[str, Any]] = [
        {name: rows[at] for name, rows in parts.items()} for at in range(len(number))
    ]
    return [replace(snapshot, **rows) for rows in each]


def _whose(request: Request) -> Node:
    return ("tenant", request.tenant)


def _order(row: object) -> str:
    """The key by which a plan's rows are ordered."""
    if isinstance(row, str):
        return row
    names = ("booking", "order", "beneficiary")
    return next(str(getattr(row, name)) for name in names if hasattr(row, name))
