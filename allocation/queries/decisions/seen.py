"""Numbers of bookings that a reader may see.

Whoever sees a booking may know that others of the organisation are ahead of it, how many and until
when; which ones is only for people who see their project. The same holds for what a booking waits for,
what it is paused for, and what starts later for it.
"""

import re
from collections.abc import Iterable
from copy import copy
from dataclasses import replace

from allocation.models import Booking, Pause
from allocation.queries.bookings.decided import BookingParts
from allocation.queries.bookings.holders import Holder
from allocation.queries.bookings.queue_ahead import Ahead
from tenants.access import Actor

_NUMBER = re.compile(r"BK-([0-9]+)")


def labels_seen(actor: Actor, labels: Iterable[str]) -> frozenset[str]:
    """Returns those that are of projects that the actor may see. In the tenant's transaction."""
    numbers = {label: int(found[1]) for label in labels if (found := _NUMBER.match(label))}
    if actor.is_tenant_admin or not numbers:
        return frozenset(numbers)
    rows = Booking.objects.filter(
        tenant_id=actor.tenant_id, number__in=set(numbers.values()), project__in=list(actor.roles)
    )
    seen = set(rows.values_list("number", flat=True))
    return frozenset(label for label, number in numbers.items() if number in seen)


def ahead_seen(actor: Actor, rows: Iterable[Ahead]) -> tuple[Ahead, ...]:
    """Returns who is ahead, with the numbers that the actor may see."""
    found = tuple(rows)
    seen = labels_seen(actor, (label for each in found for label in each.labels))
    return tuple(
        replace(each, labels=tuple(label for label in each.labels if label in seen)) for each in found
    )


def holders_seen(actor: Actor, rows: Iterable[Holder]) -> tuple[Holder, ...]:
    """Returns who has the planned GPUs, with the numbers that the actor may see."""
    found = tuple(rows)
    seen = labels_seen(actor, (each.label for each in found))
    return tuple(replace(each, label=each.label if each.label in seen else "") for each in found)


def pauses_seen(actor: Actor, pauses: Iterable[Pause]) -> tuple[Pause, ...]:
    """Returns the pauses, without the number of a booking that needs the GPUs if it is hidden."""
    found = tuple(pauses)
    hidden = _hidden(actor, (each.beneficiary_label for each in found))
    return tuple(_unnamed(each) if each.beneficiary_label in hidden else each for each in found)


def _unnamed(pause: Pause) -> Pause:
    shown = copy(pause)
    shown.beneficiary_label = ""
    return shown


def numbers_hidden(actor: Actor, parts: Iterable[BookingParts]) -> frozenset[str]:
    """Returns the numbers of other bookings in these parts that the actor may not see."""
    named: set[str] = set()
    for each in parts:
        named |= {pause.beneficiary_label for pause in each.pauses}
        rows = [row.claimant for row in each.moved_starts if row.claimant is not None]
        rows += [row.parent for row in each.parents]
        # Those of the actor's projects need no question.
        named |= {row.label for row in rows if row.project_id not in actor.roles}
    return _hidden(actor, named)


def _hidden(actor: Actor, labels: Iterable[str]) -> frozenset[str]:
    named = frozenset(labels) - {""}
    return named - labels_seen(actor, named)
