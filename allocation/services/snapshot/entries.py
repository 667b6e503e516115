"""Entries of the waiting list that may get an offer, as the solver reads them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

from django.db.models import Q

from allocation.models import WaitEntry, WaitMode, WaitOffer
from allocation.rules.states import State
from allocation.rules.waiting import MOST_EXPIRED
from allocation.solver.model.inputs import Entry, Request


def entries_waiting(now: datetime) -> list[WaitEntry]:
    """Every entry that waits for an offer, except in its owner's night or after two offers that had
    no answer."""
    rows = WaitEntry.objects.filter(
        Q(quiet_until=None) | Q(quiet_until__lte=now),
        slot__isnull=False,
        mode=WaitMode.OFFER,
        expired_count__lt=MOST_EXPIRED,
        booking__state=State.WAITLISTED,
        booking__is_drained=False,
    ).select_related("booking__tier", "booking__series")
    return list(rows.order_by("booking_id"))


def entries_of(rows: Sequence[WaitEntry], requests: Iterable[Request]) -> tuple[Entry, ...]:
    """The entries of these rows, whose bookings have these requests."""
    barred = _barred() if rows else {}
    return tuple(
        Entry(
            request.booking,
            request,
            tuple((_seconds(since), _seconds(until)) for since, until in row.times),
            row.expired_count,
            tuple(sorted(barred.get((str(row.tenant_id), str(row.owner_id)), ()))),
        )
        for row, request in zip(rows, requests, strict=True)
    )


def _seconds(moment: datetime) -> int:
    return int(moment.timestamp())


def _barred() -> dict[tuple[str, str], set[str]]:
    """By person, the classes in which they have an open offer."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    rows = WaitOffer.objects.filter(state=WaitOffer.State.OPEN)
    for tenant, owner, name in rows.values_list("tenant_id", "owner_id", "gpu_class"):
        found[str(tenant), str(owner)].add(name)
    return found
