"""Numbers of bookings of projects that the reader does not see: in REST, on pages, in histories."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from allocation.features.waiting_list.groups import _excluded
from allocation.models import Booking, BookingEvent, Dependency, MovedStart
from allocation.rules.states import State
from allocation.services.approvals.effects import Effect, effect_seen
from allocation.services.bookings.dependencies import dependencies_advance
from allocation.services.quotes.moves import Delay
from allocation.words.reasons import reason_data
from solver.reasons.reason import reason
from tenants.models import Membership, Role
from tenants.platform.wall import tenant_tx
from tests.api.builders import Site, said
from tests.builders import a_member
from tests.builders_pauses import a_decision, a_pause
from tests.roles import as_system
from tests.web.fleet_builders import a_booking

NOW = timezone.now().replace(microsecond=0)


def bookings(site: Site, state: str = State.PAUSING) -> tuple[Booking, Booking]:
    """One of the researcher, and one of a project that they don't see."""
    with as_system():
        member = Membership.objects.select_related("project", "tenant", "user").get(
            user=site.people["researcher"], role=Role.RESEARCHER
        )
    hidden = a_booking(a_member(site.hidden), now=NOW, state=State.QUEUED, starts_in=timedelta(hours=1))
    return a_booking(member, now=NOW, state=state), hidden


def paused(site: Site) -> tuple[Booking, Booking]:
    """A running booking with notice for a hidden one, which also moved its start and is its parent."""
    booking, hidden = bookings(site)
    a_pause(
        booking,
        hidden,
        now=NOW,
        ready=NOW - timedelta(hours=1),
        ends=NOW + timedelta(hours=3),
        label=hidden.label,
    )
    why = reason("overtaken", rule="tier", own_tenant=1, booking=str(hidden.id))
    with as_system():
        MovedStart.objects.create(
            tenant_id=booking.tenant_id,
            booking=booking,
            at=NOW,
            decision=a_decision(NOW),
            was_from=NOW,
            was_until=NOW,
            now_from=NOW + timedelta(hours=1),
            now_until=NOW + timedelta(hours=1),
            strength="expected",
            rule=why.rule,
            overtaken_by="tier",
            is_own=True,
            claimant=hidden,
            reason=reason_data(why),
        )
        Dependency.objects.create(tenant=site.tenant, booking=booking, parent=hidden, needs="end")
        Booking.objects.filter(id=booking.id).update(
            planned_starts=NOW, planned_ends=NOW + timedelta(hours=6)
        )
    return booking, hidden


def named(data: Any) -> tuple[str, str, str | None]:  # noqa: ANN401 (JSON)
    (pause,), (parent,) = data["pauses"], data["depends_on"]
    return pause["preemptor"], parent["booking"], data["planned_start"]["moved_by"]["booking"]


@pytest.mark.django_db
def test_rest_and_pages_name_only_bookings_that_the_reader_may_see(site: Site) -> None:
    booking, hidden = paused(site)
    path = f"bookings/{booking.label}"
    for api, seen in ((site.researcher, ("", "", None)), (site.admin, (hidden.label,) * 3)):
        assert named(said(api.get(path))) == seen
        assert named(_listed(api)) == seen
    client = Client()
    for who, is_seen in (("researcher", False), ("admin", True)):
        client.force_login(site.people[who])
        page = client.get(f"/t/helix/bookings/{booking.label}").content.decode()
        assert (hidden.label in page) == is_seen, who
        for path in ("bookings/{}/why", "bookings/{}/events"):
            answer = getattr(site, who).get(path.format(booking.label)).content.decode()
            assert hidden.id.hex not in answer.replace("-", ""), path


def _listed(api: Any) -> Any:  # noqa: ANN401 (JSON)
    (found,) = (each for each in said(api.get("bookings"))["items"] if each["pauses"])
    return found


@pytest.mark.django_db
def test_a_history_names_no_booking_of_another_project(site: Site) -> None:
    booking, hidden = bookings(site, State.REQUESTED)
    with as_system():
        Booking.objects.filter(id=booking.id).update(awaits_parents=True)
        Dependency.objects.create(tenant=site.tenant, booking=booking, parent=hidden, needs="end")
        dependencies_advance(NOW)
        event = BookingEvent.objects.filter(booking=booking).latest("id")
        booking.refresh_from_db()
        actor = site.actor("admin")
    assert "a booking of another project is over" in event.text
    assert hidden.label not in str(booking.reasons) + event.sentence + str(event.detail)
    both = [booking, hidden]
    assert hidden.label not in str(_excluded(actor, booking, both, is_one=False))
    assert booking.label in str(_excluded(actor, booking, both, is_one=False))


@pytest.mark.django_db
def test_the_effect_of_an_approval_names_only_what_its_reader_may_see(site: Site) -> None:
    booking, hidden = bookings(site)
    delays = tuple(Delay(each.label, NOW, None) for each in (booking, hidden))
    effect = Effect(NOW, delays, (hidden.label, booking.label))
    for who, labels in (("lead", [booking.label, ""]), ("admin", [booking.label, hidden.label])):
        with tenant_tx(site.tenant.id):
            seen = effect_seen(site.actor(who), effect)
        assert seen is not None
        assert [each.label for each in seen.delays] == labels
        assert list(seen.pauses) == labels[::-1]
    mailed = effect_seen(None, effect)
    assert mailed is not None
    assert {each.label for each in mailed.delays} == {""}
