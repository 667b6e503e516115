"""The operators' block of claims: what each organisation asked for and had, and what moved."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from allocation.models import Booking, BookingEvent, EventCounter, MovedStart
from allocation.rules.states import State
from allocation.web.decisions.ops_decisions import ClaimsRow, claims_block
from allocation.words.reasons import reason_data
from solver.reasons.reason import reason
from tenants.models import Membership
from tests.builders import a_member, a_project, a_tenant, a_tier, an_operator
from tests.builders_pauses import a_decision, a_pause
from tests.roles import as_system
from tests.web.flat import flat
from tests.web.fleet_builders import a_booking

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def member_of(name: str) -> Membership:
    return a_member(a_project(a_tenant(name.lower(), name=name)))


def claimed(member: Membership, ago: timedelta, *, after: timedelta | None, ended: bool) -> None:
    """A booking that waited for lent GPUs since `ago`, and started `after` that."""
    now = timezone.now()
    booking = a_booking(member, now=now, state=State.QUEUED)
    with as_system():
        over = {"state": State.CANCELLED, "ended_at": now - ago + MINUTE} if ended else {}
        Booking.objects.filter(id=booking.id).update(claimed_from=now - ago, **over)
        for turn in (0, 1) if after is not None else ():
            BookingEvent.objects.create(
                tenant_id=booking.tenant_id,
                booking=booking,
                kind="started",
                state="active",
                at=now - ago + (after or MINUTE) + turn * HOUR,
            )


def moved(member: Membership, key: str) -> None:
    now = timezone.now()
    booking = a_booking(member, now=now, state=State.QUEUED)
    why = reason("overtaken", rule=key, own_tenant=0) if key else reason("quota_cut", because="x")
    decision = a_decision(now)
    with as_system():
        MovedStart.objects.create(
            tenant_id=booking.tenant_id,
            booking=booking,
            at=now,
            decision=decision,
            was_from=now,
            was_until=now,
            now_from=now + HOUR,
            now_until=now + HOUR,
            strength="expected",
            rule=why.rule,
            overtaken_by=key,
            is_own=False,
            reason=reason_data(why),
        )


def test_each_organisation_has_what_it_asked_for_and_what_it_lost(client: Client) -> None:
    a_tier("spot", pausable=True)
    first, second = member_of("Helix"), member_of("North")
    claimed(first, HOUR, after=10 * MINUTE, ended=False)
    claimed(first, 3 * HOUR, after=2 * HOUR, ended=False)
    claimed(first, MINUTE, after=None, ended=False)
    claimed(first, 30 * HOUR, after=None, ended=True)
    claimed(first, 3 * HOUR, after=None, ended=False)
    moved(second, "guarantee")
    moved(second, "guarantee")
    moved(second, "age")
    moved(second, "")
    now = timezone.now()
    victim = a_booking(second, now=now)
    a_pause(victim, a_booking(first, now=now), now=now, ready=now - HOUR, ends=now + HOUR)
    with as_system():
        block = claims_block(now)
    is_bad = True
    assert block.rows == (
        ClaimsRow("Helix", "1 of 4, 1 waiting", is_bad, "none", 0, "none"),
        ClaimsRow("North", "none", not is_bad, "2 by guarantee, 1 by waiting time", 1, "1 by guarantee"),
    )
    assert (block.span, block.dropped) == ("7 d", "")

    with as_system():
        EventCounter.objects.create(name="pauses_dropped:fairer_share", count=2)
    client.force_login(an_operator())
    page = flat(client.get("/ops/decisions").content.decode())
    assert "1 of 4, 1 waiting, late" in page
    assert "would not come to rest: fairer share 2." in page


def test_a_week_without_claims_says_so(client: Client) -> None:
    client.force_login(an_operator())
    assert "No claim on lent GPUs" in client.get("/ops/decisions").content.decode()
