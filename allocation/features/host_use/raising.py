"""Lending free host cores to running work that waits for input.

A project chooses it, and a node decides by itself what is free: the portal only says which bookings may
get more. What another booking needs is taken back by the node before that begins.
"""

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Count, F, Min, Q, QuerySet

from allocation.features.host_use.models import HostUse, RaisedCores, SpareCores
from allocation.models import Allocation, Booking, Node
from allocation.points import HostSignals, host_signals
from allocation.queries.bookings.bookings import allocation_ids_of
from allocation.queries.fleet.moments import moments_of
from allocation.queries.fleet.telemetry import use_of_allocations
from allocation.rules.nodes.diagnosis import CPU_FULL_FROM, Bottleneck, bottleneck_of
from allocation.rules.states import State
from allocation.services.record.history import event_add
from allocation.words.events import event_text
from allocation.words.refusals import refusal_text
from tenants.access import Actor, access_project
from tenants.audit import audited
from tenants.failures import each_apart
from tenants.platform.errors import denied
from tenants.platform.terms import term, terms

TASK = "host_use.raise"
LOOKED_BACK = timedelta(minutes=15)
FRESH = timedelta(minutes=2)
MOST = 64
"""Cores that are lent to a device at most."""
MOST_BOOKINGS = 50
"""Bookings that one turn looks at."""


@terms
class SpareCoresTerms:
    """Whether running work gets free cores of its nodes while it waits for input."""

    on: bool = term(
        "Lend this project idle host cores",
        says="To bookings of the project whose work waits for its host, while nobody else needs the cores.",
    )


def spare_cores_set(*, actor: Actor, project: str, terms: SpareCoresTerms, now: datetime) -> SpareCores:
    """Sets it for a project: leads only. What is lent is taken back within a minute if it is set off.

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    found = access_project(actor, project)
    if not actor.may_lead(found.id):
        raise denied(refusal_text("spare_cores_leads"))
    with transaction.atomic():
        row, _ = SpareCores.objects.select_for_update().get_or_create(
            project=found,
            defaults={
                "tenant_id": actor.tenant_id,
                "is_on": terms.on,
                "changed_at": now,
                "changed_by_id": actor.user_id,
            },
        )
        row.is_on, row.changed_at, row.changed_by_id = terms.on, now, actor.user_id
        row.save(update_fields=["is_on", "changed_at", "changed_by"])
        audited(actor, "spare_cores.set", row, now, "is_on")
    return row


def is_on_for(project: UUID) -> bool:
    """Returns what a project has chosen: it is off until somebody sets it on."""
    return SpareCores.objects.filter(project=project, is_on=True).exists()


def raised_now(project: UUID) -> QuerySet[RaisedCores]:
    """Returns what is lent to bookings of a project now."""
    rows = RaisedCores.objects.filter(booking__project=project, ended_at=None)
    return rows.select_related("booking").order_by("booking__number")


def cores_raised(bookings: Collection[UUID]) -> dict[UUID, int]:
    """Returns how many cores may be lent to each device of these bookings."""
    rows = RaisedCores.objects.filter(booking__in=bookings, ended_at=None)
    return dict(rows.values_list("booking_id", "most"))


def raised_over() -> QuerySet[RaisedCores]:
    """Returns what has to be taken back: the run is over, or the project does not want it any more."""
    wanted = SpareCores.objects.filter(is_on=True).values("project")
    over = ~Q(booking__state=State.ACTIVE) | ~Q(booking__ready_at=F("run"))
    return RaisedCores.objects.filter(over | ~Q(booking__project__in=wanted), ended_at=None)


def candidates(now: datetime) -> QuerySet[Booking]:
    """Returns running bookings that may get more: on nodes with free cores, with their own in full use."""
    wanted = SpareCores.objects.filter(is_on=True).values("project")
    lending = (
        HostUse.objects.filter(at__gt=now - FRESH, cores__gt=0)
        .values("booking")
        .annotate(least=Min("spare"))
        .filter(least__gt=0)
    )
    rows = Booking.objects.filter(id__in=lending.values("booking"), state=State.ACTIVE, project__in=wanted)
    rows = rows.filter(ready_at__lte=now - LOOKED_BACK)
    return rows.exclude(raised_cores__ended_at=None, raised_cores__isnull=False)


def raise_turn(now: datetime) -> int:
    """Takes back what is over, and lends to work that waits for input; returns how many changed."""
    over = raised_over().select_related("booking").order_by("booking_id")
    ended = each_apart("spare cores taken back", over, lambda row: _end(row, now), now)
    found = candidates(now).order_by("id")[:MOST_BOOKINGS]
    return ended + each_apart("spare cores", found, lambda booking: _raise(booking, now), now)


def _end(row: RaisedCores, now: datetime) -> bool:
    with transaction.atomic():
        done = RaisedCores.objects.filter(booking=row.booking, ended_at=None).update(ended_at=now)
        _documents_renew(row.booking_id)
        if done and row.booking.state == State.ACTIVE:
            event_add(row.booking, kind="cores_returned", sentence=event_text("cores_returned"), now=now)
    return bool(done)


def _raise(booking: Booking, now: datetime) -> bool:
    """Lends to one booking if its work waits for its host and all of its nodes could lend."""
    verdict, most = _verdict(booking, now), _most(booking)
    evidence = dict(verdict.evidence)
    if verdict.kind != "input" or evidence.get("cpu", 0) < CPU_FULL_FROM or most < 1:
        return False
    with transaction.atomic():
        locked = Booking.objects.select_for_update(no_key=True).get(id=booking.id)
        if locked.state != State.ACTIVE or locked.ready_at != booking.ready_at or locked.ready_at is None:
            return False
        RaisedCores.objects.update_or_create(
            booking=locked,
            defaults={
                "most": most,
                "run": locked.ready_at,
                "raised_at": now,
                "ended_at": None,
                "evidence": evidence,
            },
            create_defaults={
                "tenant_id": locked.tenant_id,
                "most": most,
                "run": locked.ready_at,
                "raised_at": now,
                "evidence": evidence,
            },
        )
        _documents_renew(locked.id)
        sentence = event_text(
            "cores_raised", most=most, busy=round(evidence["busy"]), cpu=round(evidence["cpu"])
        )
        event_add(locked, kind="cores_raised", sentence=sentence, now=now, detail={"evidence": evidence})
    return True


def _verdict(booking: Booking, now: datetime) -> Bottleneck:
    since = max(booking.ready_at or now, now - LOOKED_BACK)
    curve = use_of_allocations(allocations=allocation_ids_of(booking), since=since, until=now, now=now)
    cpu = host_signals([booking.id]).get(booking.id, HostSignals()).cpu
    return bottleneck_of(moments_of(curve), curve.devices, booking.planned_class, cpu)


def _most(booking: Booking) -> int:
    """Returns the most cores for each device: what the node with the fewest could lend, divided and rounded
    up, because a node gives no more than are free; 0 if a node does not measure the booking."""
    running = Allocation.objects.filter(booking=booking, state=Allocation.State.ACTIVE, abandoned=False)
    devices: dict[UUID, int] = dict(running.values_list("gpu__node").annotate(Count("id")))
    spare: dict[UUID, int] = dict(HostUse.objects.filter(booking=booking).values_list("node_id", "spare"))
    if not devices or devices.keys() - spare.keys():
        return 0
    return min(MOST, *(-(-spare[node] // count) for node, count in devices.items()))


def _documents_renew(booking: UUID) -> None:
    nodes = Allocation.objects.filter(booking=booking, state=Allocation.State.ACTIVE).values("gpu__node")
    Node.objects.filter(id__in=nodes).update(generation=F("generation") + 1)


def raised_of(booking: Booking) -> Iterator[RaisedCores]:
    """Returns what is lent to a booking now, if anything is."""
    yield from RaisedCores.objects.filter(booking=booking, ended_at=None)
