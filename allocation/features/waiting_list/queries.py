"""The waiting list and its offers, as far as a person may see or answer them."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from uuid import UUID

from django.db.models import Q, QuerySet

from allocation.access import may_change
from allocation.features.waiting_list.models import WaitEntry, WaitOffer
from allocation.models import BookingChange
from allocation.queries.bookings.timelines.rows import Waited
from allocation.rules.ask import classes_asked
from allocation.rules.states import State
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.models import Role
from tenants.platform.errors import denied, missing


def access_wait_offer(actor: Actor, offer_id: UUID) -> WaitOffer:
    """Returns an offer of the waiting list that the actor may answer.

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    rows = WaitOffer.objects.select_related("booking__project", "booking__tier", "booking__owner")
    found = rows.filter(tenant_id=actor.tenant_id, id=offer_id).first()
    if found is None or actor.role_in(found.booking.project_id) is None:
        raise missing("offer")
    if not may_change(actor, found.booking):
        raise denied(refusal_text("offer_not_yours"))
    return found


def access_wait_entry(actor: Actor, entry_id: UUID) -> WaitEntry:
    """Returns an entry of the waiting list that the actor may change.

    Raises:
        Refused: `not_found` or `not_allowed`.
    """
    rows = WaitEntry.objects.select_related("booking__project", "booking__owner", "owner")
    found = rows.filter(tenant_id=actor.tenant_id, id=entry_id).first()
    if found is None or actor.role_in(found.booking.project_id) is None:
        raise missing("entry")
    if not may_change(actor, found.booking):
        raise denied(refusal_text("booking_not_yours"))
    return found


def entries_visible(actor: Actor) -> QuerySet[WaitEntry]:
    """Returns the open entries of the actor and of the projects that they lead."""
    rows = WaitEntry.objects.filter(tenant_id=actor.tenant_id, slot__isnull=False)
    return rows.filter(_own_or_led(actor)).select_related("booking__project", "owner")


def offers_visible(actor: Actor) -> QuerySet[WaitOffer]:
    """Returns the offers that the actor may answer, or could have."""
    rows = WaitOffer.objects.filter(tenant_id=actor.tenant_id)
    return rows.filter(_own_or_led(actor)).select_related("booking__project", "booking__tier")


def changes_waiting(actor: Actor) -> QuerySet[BookingChange]:
    """Returns the changes that wait for room, of the actor and of the projects that they lead."""
    rows = BookingChange.objects.filter(
        tenant_id=actor.tenant_id,
        state=BookingChange.State.ASKED,
        keep_trying_until__isnull=False,
    ).filter(_own_or_led(actor, "booking__owner"))
    return rows.select_related("booking__owner").order_by("keep_trying_until", "id")


def own_offers(actor: Actor) -> QuerySet[WaitOffer]:
    """Returns the open offers of the actor, the most urgent first."""
    rows = offers_visible(actor).filter(owner=actor.user_id, state=WaitOffer.State.OPEN)
    return rows.order_by("until", "id")


def _own_or_led(actor: Actor, owner: str = "owner") -> Q:
    if actor.is_tenant_admin:
        return Q()
    led = [project for project, role in actor.roles.items() if role == Role.LEAD]
    own = Q(**{owner: actor.user_id}, booking__project__in=actor.roles)
    return own | Q(booking__project__in=led)


def waitlisted_by_class(actor: Actor, since: datetime, until: datetime) -> Mapping[str, tuple[Waited, ...]]:
    """Returns how many bookings of the tenant wait for which hours of [since, until), by class.

    Only counts: who they are, people see as far as `entries_visible` says.
    """
    rows = WaitEntry.objects.filter(
        tenant_id=actor.tenant_id, slot__isnull=False, booking__state=State.WAITLISTED
    ).select_related("booking")
    steps: dict[str, Counter[datetime]] = defaultdict(Counter)
    for entry in rows:
        for begins, ends in entry.times:
            if begins < until and since < ends:
                for name in classes_asked(entry.booking.ask):
                    steps[name][max(begins, since)] += 1
                    steps[name][min(ends, until)] -= 1
    return {name: tuple(_stretches(found)) for name, found in steps.items()}


def _stretches(steps: Mapping[datetime, int]) -> Iterator[Waited]:
    times, count = sorted(steps), 0
    starts: datetime | None = None
    for at in times:
        if not steps[at]:
            continue
        if starts is not None and count:
            yield Waited(starts, at, count)
        starts, count = at, count + steps[at]
