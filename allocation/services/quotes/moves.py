"""Which bookings of an organisation start later for a change: the next turn with it and without.

Other organisations' bookings stay where they are, because no quote reads more of them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from allocation.models import Booking, PolicyVersion
from allocation.queries.decisions.seen import labels_seen
from allocation.services.gc_paused import gc_paused
from allocation.services.policy.policies import SOLVER_FAULTS, policy_of
from allocation.services.snapshot.published import published_snapshot
from allocation.services.snapshot.snapshot import instant
from solver import Change, Extension, Plan, solve
from tenants.access import Actor

MOST_ROWS = 2_000
"""Rows of the calendar up to which it is computed; a larger site would make the page slow."""


@dataclass(frozen=True, slots=True)
class Delay:
    """A booking that starts later, or has no planned start any more (`after` is None). Without a
    label it is of a project that the reader does not see."""

    label: str
    before: datetime
    after: datetime | None

    @property
    def by(self) -> timedelta | None:
        """Returns by how much it starts later."""
        return None if self.after is None else self.after - self.before


def delays_of_change(
    booking: Booking, changes: tuple[Change, ...], extensions: tuple[Extension, ...], now: datetime
) -> tuple[Delay, ...] | None:
    """Returns which bookings of its organisation a change delays; None: they are not known,
    because the site has too many bookings or the change needs an approval first."""
    policy = policy_of(PolicyVersion.objects.get(state=PolicyVersion.State.LIVE))
    site = published_snapshot(now, policy)
    if not (changes or extensions) or len(site.held) + len(site.requests) > MOST_ROWS:
        return None
    try:
        with gc_paused():
            before = solve(site, policy)
            after = solve(replace(site, changes=changes, extensions=extensions), policy)
    except SOLVER_FAULTS:
        # The cycle reports a fault of its own; here the quote leaves it out.
        return None
    found = delays_between(starts_of(before), starts_of(after), {str(booking.id)})
    return as_delays(booking.tenant_id, found)


def starts_of(plan: Plan) -> dict[str, int]:
    """Returns the start of each booking of a plan."""
    return {each.booking: each.starts for each in plan.assigns} | {
        each.booking: each.starts for each in plan.waits
    }


def delays_between(
    before: Mapping[str, int], after: Mapping[str, int], mine: Iterable[str]
) -> list[tuple[str, int, int | None]]:
    """Returns who of the others starts later, the most delayed first."""
    found = [
        (key, was, after.get(key))
        for key, was in before.items()
        if key not in mine and (key not in after or after[key] > was)
    ]
    return sorted(found, key=lambda row: (row[2] is not None, row[1] - (row[2] or 0), row[0]))


def as_delays(tenant_id: UUID, rows: Iterable[tuple[str, int, int | None]]) -> tuple[Delay, ...]:
    """Returns those of the organisation with their numbers."""
    rows = list(rows)
    labels = labels_of(tenant_id, (key for key, *_ in rows))
    return tuple(
        Delay(labels[key], instant(was), None if will is None else instant(will))
        for key, was, will in rows
        if key in labels
    )


def delays_seen(actor: Actor, delays: Iterable[Delay]) -> tuple[Delay, ...]:
    """Returns them without numbers of bookings that the actor may not see."""
    found = tuple(delays)
    seen = labels_seen(actor, (each.label for each in found))
    return tuple(each if each.label in seen else replace(each, label="") for each in found)


def labels_of(tenant_id: UUID, ids: Iterable[str]) -> dict[str, str]:
    """Returns the numbers of those bookings that are of the organisation."""
    keys = [UUID(each) for each in ids if not each.startswith(("busy", "left"))]
    rows = Booking.objects.filter(tenant_id=tenant_id, id__in=keys)
    return {str(row.id): row.label for row in rows}
