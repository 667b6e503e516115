"""Numbers of bookings that a reader may see.

Whoever sees a booking may know that others of the organisation are ahead of it, how many and until
when; which ones is only for people who see their project.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from allocation.models import Booking
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
