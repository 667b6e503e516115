"""Counter-offers, effects and alternatives of requests for approval."""

import time
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from decimal import Decimal
from uuid import uuid4

import pytest
from django.test import Client

from allocation.features.arrays.services import array_request
from allocation.models import (
    Approval,
    Booking,
    BookingChange,
    CounterOffer,
)
from allocation.rules.approvals import MAX_OPEN_IN_TENANT
from allocation.rules.ask import AskDocument
from allocation.rules.recurrence import recurrence_read
from allocation.rules.states import State
from allocation.services.approvals.alternatives import alternative_of, alternative_take
from allocation.services.approvals.counter_terms import Proposal
from allocation.services.approvals.counters import (
    counter_accept,
    counter_decline,
    counter_make,
)
from allocation.services.bookings.change.changes import Patch, booking_patch
from allocation.services.bookings.requests import ArrayRequest
from allocation.services.bookings.series import Repeat, series_request
from allocation.services.snapshot.snapshot import MOST_PENDING, pending_read
from tenants.access import Actor
from tenants.models import Role, Tenant, User
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.api.builders import row_counts
from tests.builders import a_member, a_tenant_admin, an_actor
from tests.builders_allocation import HOUR, NOW, Lab, a_booking_request, an_ask
from tests.roles import as_owner, as_system
from tests.services.bookings.test_approvals import asked, booked, decided, held, ruled, stored


@pytest.fixture
def lead(lab: Lab) -> Actor:
    """A lead of the lab's project, where costly bookings need an approval."""
    found = an_actor(a_member(lab.project, Role.LEAD))
    ruled(an_actor(a_tenant_admin(lab.tenant)))
    return found


def refusal_of(attempt: Callable[[], object]) -> str:
    with pytest.raises(Refused) as caught:
        attempt()
    return caught.value.code


def stored_of(approval: Approval) -> Booking:
    with as_system():
        return Booking.objects.get(id=approval.booking_id)


def offered(actor: Actor, booking: Booking, **parts: object) -> CounterOffer:
    approval = asked(booking)
    ask = replace(AskDocument.from_json(booking.ask), **parts)  # type: ignore[arg-type]
    with tenant_tx(actor.tenant_id):
        return counter_make(
            actor=actor,
            approval_id=approval.id,
            digest=approval.digest,
            proposal=Proposal(ask, None, "less", "Enough for now"),
            now=NOW,
        )


def accepted(actor: Actor, booking: Booking, digest: str) -> Booking:
    approval = asked(booking)
    with tenant_tx(actor.tenant_id):
        return counter_accept(actor=actor, approval_id=approval.id, digest=digest, now=NOW + HOUR)


def test_the_askers_click_books_what_was_offered_once(lab: Lab, lead: Actor) -> None:
    booking = booked(lab)
    assert refusal_of(lambda: offered(lab.actor, booking)) == "not_allowed"
    assert refusal_of(lambda: offered(lead, booking)) == "counter_same"
    first = offered(lead, booking, duration=18 * 3600)
    second = offered(lead, booking, duration=12 * 3600)
    assert refusal_of(lambda: accepted(lab.actor, booking, first.digest)) == "counter_over"
    assert refusal_of(lambda: accepted(lead, booking, second.digest)) == "not_allowed"
    made = accepted(lab.actor, booking, second.digest)
    after = stored(made)
    assert (after.state, after.duration_seconds) == (State.REQUESTED, 12 * 3600)
    with as_system():
        approval = Approval.objects.get(booking=booking)
        assert (approval.state, approval.decided_by_id) == ("approved", lead.user_id)
        states = set(CounterOffer.objects.values_list("state", flat=True))
    assert states == {"replaced", "accepted"}
    assert held(lab) == after.hold_amount


@pytest.mark.turn
def test_a_counter_offer_ends_with_a_change_and_without_the_approvers_right(lab: Lab, lead: Actor) -> None:
    booking = booked(lab)
    other = offered(lead, booking, duration=36 * 3600)
    with as_system():
        lab.project.membership_set.filter(user=lead.user_id).update(role=Role.RESEARCHER)
    code = refusal_of(lambda: accepted(lab.actor, booking, other.digest))
    assert code == "counter_approver_left"
    with as_system():
        lab.project.membership_set.filter(user=lead.user_id).update(role=Role.LEAD)
    patch = Patch(ask=replace(AskDocument.from_json(booking.ask), duration=20 * 3600))
    with tenant_tx(lab.tenant_id):
        booking_patch(actor=lab.actor, booking=booking, patch=patch, revision=None, now=NOW)
    assert refusal_of(lambda: accepted(lab.actor, booking, other.digest)) == "counter_over"
    with tenant_tx(lab.tenant_id):
        counter_decline(actor=lab.actor, approval_id=asked(booking).id, now=NOW)
    assert stored(booking).state == State.AWAITING_APPROVAL


@pytest.mark.turn
def test_a_counter_offer_to_a_series_changes_all_its_dates_at_once(lab: Lab, lead: Actor) -> None:
    wanted = a_booking_request(lab.project, an_ask(hours=8, starts=NOW + 4 * HOUR))
    repeat = Repeat(recurrence_read("FREQ=DAILY;COUNT=3"))
    with tenant_tx(lab.tenant_id):
        series = series_request(actor=lab.actor, request=wanted, repeat=repeat, now=NOW)
    with as_system():
        first = series.bookings.order_by("starts").first()
        starts = list(series.bookings.order_by("starts").values_list("starts", flat=True))
    assert first is not None
    counter = offered(lead, first, duration=6 * 3600)
    before = row_counts()
    assert refusal_of(lambda: accepted(lead, first, counter.digest)) == "not_allowed"
    assert refusal_of(lambda: accepted(lab.actor, first, "0" * 64)) == "counter_over"
    assert row_counts() == before
    accepted(lab.actor, first, counter.digest)
    with as_system():
        rows = list(series.bookings.order_by("starts"))
        assert {(row.state, row.duration_seconds) for row in rows} == {(State.REQUESTED, 6 * 3600)}
        assert [row.starts for row in rows] == starts
        assert held(lab) == sum(row.hold_amount for row in rows) <= Decimal(counter.cost)


def test_a_counter_offer_to_an_array_books_as_many_smaller_runs(lab: Lab, lead: Actor) -> None:
    wanted = a_booking_request(lab.project, an_ask(hours=24))
    with tenant_tx(lab.tenant_id):
        first = array_request(actor=lab.actor, request=wanted, array=ArrayRequest(3, 2), now=NOW, key=uuid4())
    assert first.state == State.AWAITING_APPROVAL
    before = held(lab)
    counter = offered(lead, first, duration=12 * 3600)
    assert held(lab) == before
    made = accepted(lab.actor, first, counter.digest)
    with as_system():
        after = Booking.objects.select_related("array").get(id=made.id)
        assert after.array is not None
        assert (after.state, after.array.count, after.array.parallel) == (State.REQUESTED, 3, 2)
        assert after.duration_seconds == 12 * 3600
        assert held(lab) == Decimal(counter.cost) < before
    assert stored(first).state == State.CANCELLED


@pytest.mark.turn
def test_a_counter_offer_to_a_change_replaces_the_change(lab: Lab, lead: Actor) -> None:
    booking = booked(lab, 2)
    patch = Patch(ask=replace(AskDocument.from_json(booking.ask), duration=40 * 3600))
    with tenant_tx(lab.tenant_id):
        booking_patch(actor=lab.actor, booking=booking, patch=patch, revision=None, now=NOW)
    before, was = row_counts(), held(lab)
    assert refusal_of(lambda: offered(lead, booking, duration=40 * 3600)) == "counter_same"
    assert (row_counts(), held(lab)) == (before, was)
    counter = offered(lead, booking, duration=30 * 3600)
    accepted(lab.actor, booking, counter.digest)
    with as_system():
        waiting, approved = Approval.objects.order_by("asked", "decided")
        change = BookingChange.objects.get(booking=booking, state="asked")
        assert {waiting.state, approved.state} == {"withdrawn", "approved"}
        assert change.target["duration_seconds"] == 30 * 3600
    assert held(lab) < was


@pytest.mark.turn
def test_a_smaller_request_keeps_its_approval_and_the_hash_that_was_seen(lab: Lab, lead: Actor) -> None:
    booking = booked(lab)
    before = asked(booking)

    def patched(hours: int) -> None:
        patch = Patch(ask=replace(AskDocument.from_json(booking.ask), duration=hours * 3600))
        with tenant_tx(lab.tenant_id):
            booking_patch(actor=lab.actor, booking=booking, patch=patch, revision=None, now=NOW)

    patched(22)
    assert (asked(booking).id, asked(booking).covers) == (before.id, [before.digest])
    patched(30)
    assert asked(booking).id != before.id
    assert refusal_of(lambda: decided(lead, asked(booking), digest=before.digest)) == ("approval_changed")
    seen = asked(booking)
    patched(23)
    decided(lead, asked(booking), digest=seen.digest)
    assert stored(booking).state == State.REQUESTED


def test_the_alternative_needs_no_approval_and_loses_nothing(lab: Lab, lead: Actor) -> None:
    booking = booked(lab)
    approval = asked(booking)
    with tenant_tx(lab.tenant_id):
        found = alternative_of(Approval.objects.get(id=approval.id), NOW)
    assert found is not None
    assert found.cost < 100

    def taken(actor: Actor, digest: str) -> Booking:
        with tenant_tx(lab.tenant_id):
            return alternative_take(actor=actor, approval_id=approval.id, digest=digest, now=NOW + HOUR)

    assert refusal_of(lambda: taken(lead, approval.digest)) == "not_allowed"
    assert refusal_of(lambda: taken(lab.actor, "0" * 64)) == "approval_changed"
    made = taken(lab.actor, approval.digest)
    assert stored(made).state == State.REQUESTED
    assert stored(booking).state == State.CANCELLED
    assert held(lab) == made.hold_amount
    assert refusal_of(lambda: taken(lab.actor, approval.digest)) == "approval_over"


def many_people(count: int) -> list[User]:
    with as_owner():
        return User.objects.bulk_create(User(username=f"many-{at}") for at in range(count))


@pytest.mark.long
def test_a_thousand_requests_are_the_most_and_leave_pages_and_turns_quick(lab: Lab, lead: Actor) -> None:
    booking = booked(lab)
    approval = asked(booking)
    others = many_people(52)
    with as_system():
        rows: list[Booking] = []
        requests: list[Approval] = []
        for at in range(MAX_OPEN_IN_TENANT - 1):
            row = Booking.objects.get(id=booking.id) if at == 0 else copy(rows[0])
            row.id, row.number, row.owner = uuid4(), booking.number + 1 + at, others[at // 20]
            rows.append(row)
            each = copy(approval)
            each.id, each.booking, each.asker = uuid4(), row, row.owner
            requests.append(each)
        Booking.objects.bulk_create(rows)
        Approval.objects.bulk_create(requests)
        Tenant.objects.filter(id=lab.tenant_id).update(bookings_counted=booking.number + 2_000)
    before = row_counts()
    with pytest.raises(Refused, match="1000 requests of your organisation") as caught:
        booked(lab)
    assert caught.value.code == "too_many_approvals"
    assert row_counts() == before
    assert booked(lab, 1).state == State.REQUESTED

    began = time.perf_counter()
    with as_system():
        assert len(pending_read(NOW)) == MOST_PENDING
    client = Client()
    with as_system():
        client.force_login(User.objects.get(id=lead.user_id))
    page = client.get("/t/helix/approvals").content.decode()
    assert "of 1000 requests" in page
    assert time.perf_counter() - began < 10


@pytest.mark.turn
def test_only_who_may_see_a_request_gets_a_link_to_it(lab: Lab, lead: Actor, client: Client) -> None:
    booking = booked(lab)
    viewer = a_member(lab.project, Role.VIEWER)
    link = f"/t/{lab.tenant.slug}/approvals/{asked(booking).id}"
    page = f"/t/{lab.tenant.slug}/bookings/{booking.label}"
    with as_system():
        leads = User.objects.get(pk=lead.user_id)
    for user, sees in ((viewer.user, False), (leads, True)):
        client.force_login(user)
        assert (link in client.get(page).content.decode()) is sees
        assert client.get(link).status_code == (200 if sees else 404)
