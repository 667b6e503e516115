"""Notices to people whose training, or acceptance of a text, runs out."""

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q

from allocation.features.requirements.models import Acceptance, Requirement
from tenants.failures import each_apart
from tenants.services.members.messages import PeopleMessage, people_message_put

EXPIRING = "requirement.expiring"
# A notice so many days before the end, for what holds at least twice as long.
DAYS_BEFORE = (3, 14)
AT_ONCE = 500


def requirements_expiring_notify(now: datetime) -> int:
    """Notifies people 14 and 3 days before what they have runs out, once each; returns how many."""
    return sum(_notify(days, now) for days in DAYS_BEFORE)


def _notify(days: int, now: datetime) -> int:
    before = timedelta(days=days)
    newer = Acceptance.objects.filter(
        Q(at__gt=OuterRef("at")) | Q(at=OuterRef("at"), recorded__gt=OuterRef("recorded")),
        tenant=OuterRef("tenant"),
        user=OuterRef("user"),
        requirement=OuterRef("requirement"),
    )
    rows = Acceptance.objects.filter(
        ~Exists(newer), until__gt=now, until__lte=now + before, requirement__ended=None
    ).filter(Q(warned_days=None) | Q(warned_days__gt=days), until__gte=F("at") + 2 * before)

    @transaction.atomic
    def act(due: Acceptance) -> int:
        locked = rows.select_for_update(of=("self",), skip_locked=True)
        row = locked.select_related("requirement").filter(id=due.id).first()
        if row is None:
            return 0
        people_message_put(row.tenant_id, _message(row), now)
        row.warned_days = days
        row.save(update_fields=["warned_days"])
        return 1

    return each_apart("ends of training", rows.order_by("until", "id")[:AT_ONCE], act, now)


def _message(row: Acceptance) -> PeopleMessage:
    wanted = row.requirement
    is_terms = wanted.kind == Requirement.Kind.TERMS
    what = "Your acceptance of" if is_terms else "Your training"
    way_out = "Accept it again" if is_terms else "Ask an admin to record a new training"
    return PeopleMessage(
        kind=EXPIRING,
        title=f"{what} “{wanted.name}” runs out soon",
        text=f"The {wanted.target} asks for it. {way_out} before, so that you can keep booking.",
        path=f"requirements#r-{wanted.id}",
        audience="people",
        people=[row.user_id],
        until=row.until,
    )
