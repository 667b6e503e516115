"""What nodes fetch for bookings that are about to start."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import wire
from allocation.features.datasets.models import NodeCache, Staging
from allocation.models import Allocation, Booking, Node
from allocation.rules.states import State

MOST_ERROR = 200


@dataclass(frozen=True, slots=True)
class StagedOn:
    """The data of a booking on one of its nodes. `seconds` is None while it is being fetched; `error`
    says why it was not."""

    node: str
    data: tuple[str, ...]
    began_at: datetime
    seconds: float | None
    error: str

    @property
    def is_running(self) -> bool:
        """Whether it is being fetched."""
        return self.seconds is None and not self.error


def nodes_listing(nodes: Collection[UUID]) -> Collection[UUID]:
    """Returns those of these nodes that have listed data sets."""
    return set(NodeCache.objects.filter(node__in=nodes).values_list("node_id", flat=True))


def staging_keep(node: Node, said: Sequence[wire.ReportedAllocation], now: datetime) -> None:
    """Keeps what a node fetches, has fetched, or could not fetch, for bookings that start there."""
    items = {UUID(each.id): each for each in said if len(each.id) == 32 and _is_hex(each.id)}
    rows = Allocation.objects.filter(id__in=items, gpu__node=node).select_related("booking").order_by("id")
    for row in rows:
        if row.booking.ask.get("data") and not row.abandoned:
            _keep(row.booking, node.name, items[row.id], now)


def _keep(booking: Booking, node: str, said: wire.ReportedAllocation, now: datetime) -> None:
    found = Staging.objects.filter(booking=booking).first()
    known: Mapping[str, Any] = found.nodes if found else {}
    entry = _entry(known.get(node), booking, said, now)
    if entry is None or entry == known.get(node):
        return
    Staging.objects.update_or_create(
        booking=booking,
        defaults={"nodes": {**known, node: entry}},
        create_defaults={"nodes": {node: entry}, "tenant_id": booking.tenant_id},
    )


def _entry(
    known: Mapping[str, Any] | None, booking: Booking, said: wire.ReportedAllocation, now: datetime
) -> dict[str, Any] | None:
    """Returns what is known after a report; None: it says nothing of the data."""
    asked = list(booking.ask["data"])
    step = next((each for each in said.steps if each.name == "stage"), None)
    if step is not None:
        began = min(step.began / 1000, now.timestamp())
        data = known["data"] if known else asked
        return {"data": data, "began_at": began, "seconds": step.took / 1000, "error": ""}
    if said.staging:
        if booking.state != State.STARTING:
            return None
        data = [name for name in asked if name in said.staging]
        is_known = known is not None and known["seconds"] is None and not known["error"]
        began = known["began_at"] if known and is_known else now.timestamp()
        # What is fetched first stays in the list.
        data = known["data"] if known and is_known else data
        return {"data": data, "began_at": began, "seconds": None, "error": ""}
    if known is None or known["seconds"] is not None or known["error"]:
        return None
    return {**known, "error": (said.error or "no reason given")[:MOST_ERROR]}


def staged_of(row: Staging) -> list[StagedOn]:
    """Returns the data of a booking by node."""
    return [
        StagedOn(
            node,
            tuple(each["data"]),
            datetime.fromtimestamp(each["began_at"], UTC),
            each["seconds"],
            each["error"],
        )
        for node, each in sorted(row.nodes.items())
    ]


def _is_hex(text: str) -> bool:
    return all(letter in "0123456789abcdef" for letter in text)
