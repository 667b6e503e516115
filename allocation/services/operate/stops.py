"""Stops: an operator lets nothing new start of a tenant, a tier, a GPU class, or the whole site.

New requests are refused, and what waits or is planned does not start. Running bookings continue.
"""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction

from allocation.models import Booking, Stop
from allocation.queries.bookings.booking_list import phases_of
from allocation.queries.fleet.stops import bookings_covered
from allocation.rules.states import OPEN
from allocation.services.record.site_events import stop_event
from allocation.words.refusals import refusal_text
from tenants.audit import platform_record
from tenants.models import GpuClass, Tenant, Tier, User
from tenants.outbox import task_request
from tenants.platform.errors import Refused, invalid, missing, text_within

logger = logging.getLogger(__name__)

LONGEST = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class StopTerms:
    """What to stop: a scope with the slug of its tenant, tier or class (empty for the site)."""

    scope: str
    name: str
    reason: str
    length: timedelta | None = None


@dataclass(frozen=True, slots=True)
class StopEffect:
    """Numbers of bookings: those that wait, those with a place, those that run on, and those that
    are paused and do not resume."""

    waiting: int
    planned: int
    running: int
    paused: int


def stop_effect(*, terms: StopTerms) -> StopEffect:
    """Counts the bookings that the stop would cover. Raises as `stop_begin`."""
    covered = Booking.objects.filter(bookings_covered([_stop_of(terms)]), state__in=OPEN)
    found = phases_of(covered)
    return StopEffect(found.waiting, found.scheduled, found.running, found.paused)


def stop_begin(*, operator: User, terms: StopTerms, now: datetime) -> Stop:
    """Begins a stop. One that there is already gets the new reason and end.

    Raises:
        Refused: `unknown_scope`, `not_found`, `reason_needed`, `stop_length`.
    """
    made = _stop_of(terms)
    made.reason = text_within(terms.reason.strip(), 120, "reason")
    if not made.reason:
        raise invalid("reason_needed", refusal_text("stop_reason"), "reason")
    if terms.length is not None and not timedelta(0) < terms.length <= LONGEST:
        raise invalid("stop_length", refusal_text("stop_length"), "for")
    made.since, made.begun_by = now, operator
    made.until = now + terms.length if terms.length else None
    same = {"tenant": made.tenant, "tier": made.tier, "gpu_class": made.gpu_class}
    with transaction.atomic():
        before = (
            Stop.objects.select_for_update(of=("self",))
            .filter(scope=made.scope, **same, ended_at=None)
            .first()
        )
        if before is not None:
            before.ended_at = now
            before.save(update_fields=["ended_at"])
        made.save(force_insert=True)
        _audit(made, operator, "begun", now, _values(before) if before else {})
    task_request("allocation.cycle")
    return made


def stop_end(*, operator: User, stop_id: UUID, now: datetime) -> Stop:
    """Ends a stop; what waited is decided at once.

    Raises:
        Refused: `not_found`, `stop_over`.
    """
    with transaction.atomic():
        rows = Stop.objects.select_for_update(of=("self",)).select_related("tenant", "booking")
        stop = rows.filter(id=stop_id).first()
        if stop is None:
            raise missing("stop")
        if not stop.is_in_force(now):
            raise Refused("stop_over", refusal_text("stop_over", of=stop.of))
        before, stop.ended_at = _values(stop), now
        stop.save(update_fields=["ended_at"])
        _audit(stop, operator, "ended", now, before)
    task_request("allocation.cycle")
    return stop


def _stop_of(terms: StopTerms) -> Stop:
    """A stop of these terms, not saved, without its reason and times."""
    known = [each for each in Stop.Scope.values if each != Stop.Scope.BOOKING]
    if terms.scope not in known:
        raise invalid("unknown_scope", refusal_text("unknown_scope", known=", ".join(known)), "scope")
    named: dict[str, Any] = {}
    if terms.scope == Stop.Scope.TENANT:
        named["tenant"] = Tenant.objects.filter(slug=terms.name).first()
    elif terms.scope == Stop.Scope.TIER:
        named["tier"] = Tier.objects.filter(slug=terms.name).first()
    elif terms.scope == Stop.Scope.GPU_CLASS:
        named["gpu_class"] = GpuClass.objects.filter(slug=terms.name).first()
    if None in named.values():
        raise missing({"class": "GPU class"}.get(terms.scope, terms.scope), "name")
    return Stop(scope=terms.scope, **named)


def _audit(stop: Stop, operator: User, what: str, now: datetime, before: dict[str, str | None]) -> None:
    platform_record(operator.pk, f"stop.{what}", ("stop", stop.id), now, before=before, after=_values(stop))
    stop_event(what, stop, now)
    logger.warning("%s: stop of %s %s (%s)", operator.username, stop.of, what, stop.reason)


def _values(stop: Stop) -> dict[str, str | None]:
    times = {"until": stop.until, "ended_at": stop.ended_at}
    return {
        "of": stop.of,
        "reason": stop.reason,
        **{name: at.isoformat() if at else None for name, at in times.items()},
    }
