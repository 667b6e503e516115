"""Starts that wait for a node: owners are told once, operators for as long as it lasts.

Nothing is charged meanwhile, as a booking is active only when its devices are handed over.
"""

from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Q, QuerySet

from allocation.models import Allocation, Booking, GpuEvent, Node
from allocation.reasons.catalogue import BY_CODE
from allocation.rules.states import State
from allocation.services.nodes.fleet import node_policy
from allocation.services.record.history import Event
from allocation.services.runs.transition import booking_change

CODE = "start_slow"


def slow_starts_notify(now: datetime) -> int:
    """Tells owners of starts that have waited too long for their nodes; returns how many."""
    rows = _stalled(now)
    per_node = rows.values_list("gpu__node").annotate(waiting=Count("booking", distinct=True))
    _nodes_tell(dict(per_node), now)
    untold = rows.exclude(booking__reasons__contains=[{"code": CODE}])
    return sum(_tell(booking, now) for booking in set(untold.values_list("booking", flat=True)))


def _stalled(now: datetime) -> QuerySet[Allocation]:
    """Told to start long ago and not ready, or due and not even told."""
    since = now - timedelta(seconds=node_policy().start_slow)
    told = Q(state=Allocation.State.STARTING, booking__state=State.STARTING)
    told &= Q(occupancy__closed=None, occupancy__opened__lte=since)
    due = Q(state=Allocation.State.PLANNED, booking__state=State.SCHEDULED)
    due &= Q(booking__planned_starts__lte=since, gpu__node__unreachable_since__isnull=False)
    return Allocation.objects.filter(told | due)


def _tell(booking_id: UUID, now: datetime) -> bool:
    with transaction.atomic():
        booking = Booking.objects.select_for_update(of=("self",)).get(id=booking_id)
        row = _stalled(now).filter(booking=booking).select_related("gpu__node")
        first = row.order_by("gpu__node__name").first()
        if first is None:
            return False
        rule, sentence = BY_CODE[CODE], _sentence(first.gpu.node)
        reason: dict[str, object] = {
            "rule": rule.id, "code": CODE, "check": rule.check, "sentence": sentence,
            "numbers": {}, "frees_at": None,
        }  # fmt: skip
        event = Event(CODE, sentence, detail={"rule": rule.id})
        booking_change(booking, event=event, now=now, reasons=[reason])
        return True


def _sentence(node: Node) -> str:
    is_deaf = node.observed_generation < node.generation
    if is_deaf or node.unreachable_since is not None:
        why = f"{node.name} does not answer."
    else:
        why = f"{node.name} takes long to make its devices ready."
    return f"{why} Nothing is charged until they are handed over."


def _nodes_tell(waiting: dict[UUID, int], now: datetime) -> None:
    """One line in the history of each node, for as long as somebody waits for it."""
    known = GpuEvent.objects.filter(kind=GpuEvent.Kind.SLOW, until=None)
    known.exclude(node__in=waiting).update(until=now)
    GpuEvent.objects.bulk_create(
        [
            GpuEvent(
                node_id=node, kind=GpuEvent.Kind.SLOW, at=now,
                sentence=f"{count} booking{'s' if count != 1 else ''} waiting to be started there.",
            )
            for node, count in waiting.items()
        ],
        ignore_conflicts=True,
    )  # fmt: skip
