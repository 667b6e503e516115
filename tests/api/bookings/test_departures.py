"""Who has left, and what was closed: nothing starts, grows or is decided any more."""

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import DatabaseError, transaction
from django.test import Client
from django.utils import timezone

from allocation.models import Booking, BookingChange
from allocation.rules.states import State
from allocation.services.bookings import departures
from allocation.services.bookings.departures import departures_apply, departures_due
from allocation.services.decide.cycle import tick_has_work
from tenants.models import Departure, KnownPerson, Membership, Project, Tenant, User
from tenants.platform.wall import tenant_tx
from tenants.services import membership_remove, membership_role_set, project_open_set
from tenants.tasks import sweep
from tests.api.builders import Site, said
from tests.builders import a_member, a_tenant
from tests.builders_allocation import a_booking
from tests.builders_pauses import a_pause
from tests.roles import as_owner, as_role, as_system

pytestmark = pytest.mark.django_db
GOOD = {"project": "folding", "request": "1 h100 for 10m"}
PLANNED = (
    State.REQUESTED,
    State.AWAITING_APPROVAL,
    State.WAITLISTED,
    State.OFFERED,
    State.QUEUED,
    State.SCHEDULED,
    State.PAUSING,
)


def _mine(site: Site) -> Membership:
    return Membership.objects.get(user=site.people["researcher"], project=site.project)


def _removed(site: Site) -> None:
    membership_remove(actor=site.actor("lead"), membership_id=_mine(site).id, now=timezone.now())


def _made_viewer(site: Site) -> None:
    membership_role_set(
        actor=site.actor("lead"), membership_id=_mine(site).id, role="viewer", now=timezone.now()
    )


def _closed_account(site: Site) -> None:
    with as_owner():
        User.objects.filter(id=site.people["researcher"].id).update(is_active=False)


def _disabled(site: Site) -> None:
    KnownPerson.objects.filter(user=site.people["researcher"]).update(disabled=timezone.now())


def _closed_project(site: Site) -> None:
    project_open_set(actor=site.actor("admin"), slug="folding", is_open=False, now=timezone.now())


def _closed_tenant(site: Site) -> None:
    Tenant.objects.filter(id=site.tenant.id).update(is_open=False)


WAYS = [_removed, _made_viewer, _closed_account, _disabled, _closed_project, _closed_tenant]


def _leave(site: Site, way: Callable[[Site], None]) -> None:
    with as_system():
        way(site)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.strip("_"))
def test_what_is_planned_is_cancelled_whole_and_what_runs_stays(
    site: Site, way: Callable[[Site], None]
) -> None:
    now = timezone.now()
    owner = site.people["researcher"].id
    later = now + timedelta(hours=3)
    planned = [a_booking(site.project, owner, state=each, starts=later) for each in PLANNED]
    a_pause(planned[-1], planned[0], now=now, ready=now - timedelta(hours=1), ends=later)
    with as_system():
        Booking.objects.filter(id=planned[-1].id).update(state=State.PAUSED, ready_at=None)
    running = a_booking(site.project, owner, state=State.ACTIVE, starts=now)
    others = a_booking(site.project, site.people["lead"].id, state=State.QUEUED, starts=later)
    _leave(site, way)
    with as_system():
        assert tick_has_work(now)
        departures_apply(now)
        states = dict(Booking.objects.values_list("id", "state"))
        assert {states[each.id] for each in planned} == {State.CANCELLED}
        assert states[running.id] == State.ACTIVE
        is_for_all = way in (_closed_project, _closed_tenant)
        assert states[others.id] == (State.CANCELLED if is_for_all else State.QUEUED)
        ended = Booking.objects.get(id=planned[0].id)
        assert ended.outcome == ("project_closed" if way is _closed_project else "owner_left")
        assert ended.charged == Decimal(0)
        assert ended.events.filter(kind="cancelled").exists()
        assert not departures_due().exists(), "a running booking does not keep the solver busy"
        # A run that is interrupted is planned again, and does not start in their name.
        Booking.objects.filter(id=running.id).update(state=State.QUEUED)
        departures_apply(now)
        assert Booking.objects.get(id=running.id).state == State.CANCELLED
        assert not Departure.objects.exists()


def test_who_comes_back_keeps_what_they_book(site: Site) -> None:
    _leave(site, _removed)
    a_member(site.project, user=site.people["researcher"])
    booking = said(site.researcher.post("bookings", GOOD))
    with as_system():
        assert departures_apply(timezone.now()) == 0
        assert not Departure.objects.exists()
        assert Booking.objects.get(number=booking["number"].removeprefix("BK-")).state == "requested"


def test_a_role_elsewhere_in_the_tenant_keeps_bookings_there(site: Site) -> None:
    now = timezone.now()
    a_member(site.hidden, user=site.people["researcher"])
    there = a_booking(site.hidden, site.people["researcher"].id, state=State.QUEUED, held="0")
    here = a_booking(site.project, site.people["researcher"].id, state=State.QUEUED)
    _leave(site, _removed)
    with as_system():
        assert departures_apply(now) == 1
        assert Booking.objects.get(id=there.id).state == State.QUEUED
        assert Booking.objects.get(id=here.id).state == State.CANCELLED


@pytest.mark.parametrize("way", [_removed, _made_viewer, _disabled, _closed_account, _closed_project])
def test_nobody_makes_a_booking_bigger_that_has_lost_its_owner_or_project(
    site: Site, way: Callable[[Site], None]
) -> None:
    now = timezone.now()
    booking = a_booking(site.project, site.people["researcher"].id, state=State.ACTIVE, starts=now)
    with as_system():
        Booking.objects.filter(id=booking.id).update(ready_at=now)
    _leave(site, way)
    path = f"bookings/{booking.label}"
    for who in (site.lead, site.admin):
        longer = who.post(f"{path}/extend", {"by": "PT1H"})
        seen = {"If-Match": f'"{booking.revision}"'}
        wider = who.send("PATCH", path, {"request": "2 h100 2h"}, headers=seen)
        code = "not_allowed" if way is _closed_project else "owner_left"
        assert said(longer)["code"] == code
        assert said(wider)["code"] in (code, "running_fixed")
    with as_system():
        assert not BookingChange.objects.exists()
        assert Booking.objects.get(id=booking.id).hold_amount == booking.hold_amount
    assert site.lead.post(f"{path}/release").status_code in (200, 202), "giving back is possible"


def test_an_owner_who_was_made_a_viewer_gives_back_and_takes_no_more(site: Site) -> None:
    now, owner = timezone.now(), site.people["researcher"].id
    mine = a_booking(site.project, owner, state=State.ACTIVE, starts=now)
    later = a_booking(site.project, owner, state=State.SCHEDULED, starts=now + timedelta(hours=2))
    with as_system():
        Booking.objects.filter(id=mine.id).update(ready_at=now)
    _leave(site, _made_viewer)
    path, seen = f"bookings/{mine.label}", {"If-Match": f'"{mine.revision}"'}
    page = Client()
    page.force_login(site.people["researcher"])
    shown = page.get(f"/t/helix/{path}").content.decode()
    assert f"/t/helix/{path}/release" in shown
    assert f"/t/helix/{path}/extend" not in shown
    for refused in (
        site.researcher.post(f"{path}/extend", {"by": "PT1H"}),
        site.researcher.send("PATCH", path, {"request": "1 h100 9h"}, headers=seen),
    ):
        assert said(refused)["code"] in ("not_allowed", "owner_left")
        assert "Only its owner" not in said(refused)["detail"]
    assert site.researcher.send("PATCH", path, {"request": "1 h100 1h"}, headers=seen).status_code == 200
    assert site.researcher.post(f"{path}/release").status_code == 200
    assert site.researcher.post(f"bookings/{later.label}/cancel").status_code == 200
    assert site.viewer.post(f"{path}/release").status_code == 403, "another viewer may not"


def test_who_has_left_the_project_gives_back_what_still_runs_and_sees_no_more(site: Site) -> None:
    now, owner = timezone.now(), site.people["researcher"].id
    a_member(site.hidden, "viewer", user=site.people["researcher"])
    mine = a_booking(site.project, owner, state=State.ACTIVE, starts=now)
    over = a_booking(site.project, owner, state=State.ENDED, starts=now)
    others = a_booking(site.project, site.people["lead"].id, state=State.ACTIVE, starts=now)
    with as_system():
        Booking.objects.filter(id=mine.id).update(ready_at=now)
    _leave(site, _removed)
    for hidden in (over, others):
        assert site.researcher.get(f"bookings/{hidden.label}").status_code == 404
        assert site.researcher.post(f"bookings/{hidden.label}/release").status_code == 404
    path = f"bookings/{mine.label}"
    assert site.researcher.get(path).status_code == 200
    page = Client()
    page.force_login(site.people["researcher"])
    shown = page.get(f"/t/helix/{path}").content.decode()
    assert f"/t/helix/{path}/release" in shown
    assert f"/t/helix/{path}/extend" not in shown
    assert said(site.researcher.post(f"{path}/extend", {"by": "PT1H"}))["code"] == "not_allowed"
    assert site.researcher.post(f"{path}/release").status_code == 200


def test_a_change_that_took_less_is_not_undone_for_who_has_left(site: Site) -> None:
    now = timezone.now()
    booking = a_booking(site.project, site.people["researcher"].id, state=State.ACTIVE, starts=now)
    path, seen = f"bookings/{booking.label}", {"If-Match": f'"{booking.revision}"'}
    shorter = site.lead.send("PATCH", path, {"request": "1 h100 1h"}, headers=seen)
    assert shorter.status_code == 200, shorter.content
    _leave(site, _removed)
    assert said(site.lead.post(f"{path}/undo"))["code"] == "owner_left"


def test_a_later_end_that_waits_is_withdrawn(site: Site) -> None:
    now = timezone.now()
    booking = a_booking(site.project, site.people["researcher"].id, state=State.ACTIVE, starts=now)
    assert site.researcher.post(f"bookings/{booking.label}/extend", {"by": "PT1H"}).status_code < 300
    _leave(site, _removed)
    with as_system():
        departures_apply(now)
        assert BookingChange.objects.get().state == BookingChange.State.WITHDRAWN
        found = Booking.objects.get(id=booking.id)
        assert (found.state, found.extension_until) == (State.ACTIVE, None)
        assert found.hold_amount == booking.hold_amount


@pytest.mark.parametrize("way", ["closed", "disabled", "removed"])
def test_a_stand_in_decides_nothing_for_a_lead_who_has_left(site: Site, way: str) -> None:
    a_member(site.project, "lead")
    rule = {"name": "Costly", "min_cost": "0.01", "steps": [{"role": "lead"}], "project": "folding"}
    made = site.lead.post("approval-rules", rule)
    assert made.status_code == 201, made.content
    until = (timezone.now() + timedelta(days=2)).isoformat()
    assert site.lead.post("stand-ins", {"person": "vera", "until": until}).status_code == 201
    site.researcher.post("bookings", GOOD)
    (approval,) = said(site.viewer.get("approvals"))["items"]
    with as_system():
        lead = site.people["lead"]
        if way == "closed":
            with as_owner():
                User.objects.filter(id=lead.id).update(is_active=False)
        elif way == "disabled":
            KnownPerson.objects.filter(user=lead).update(disabled=timezone.now())
        else:
            Membership.objects.filter(user=lead).delete()
    assert said(site.viewer.get("approvals"))["items"] == []
    path = f"approvals/{approval['id']}"
    answer = site.viewer.post(f"{path}/approve", {"hash": approval["hash"]})
    assert answer.status_code == 404, answer.content


@pytest.mark.parametrize("role", ["portal_web", "portal_system", "portal_ops", "portal_owner"])
@pytest.mark.parametrize("column", ["owner", "project", "tenant"])
def test_no_program_gives_a_booking_to_another_one(site: Site, role: str, column: str) -> None:
    """Not even to a colleague in the same project: what is planned would not be cancelled with its owner."""
    booking = a_booking(site.project, site.people["researcher"].id, state=State.QUEUED)
    others = {"owner": site.people["lead"], "project": site.hidden, "tenant": a_tenant("other")}
    with tenant_tx(site.tenant.id), as_role(role):
        rows = Booking.objects.filter(id=booking.id)
        assert rows.update(owner=booking.owner, project=booking.project, name=booking.name) == 1
        with pytest.raises(DatabaseError, match="keeps its owner and project"), transaction.atomic():
            rows.update(**{column: others[column]})


def test_nothing_is_approved_in_a_closed_project(site: Site) -> None:
    rule = {"name": "Costly", "min_cost": "0.01", "steps": [{"role": "lead"}], "project": "folding"}
    site.lead.post("approval-rules", rule)
    site.researcher.post("bookings", GOOD)
    (approval,) = said(site.lead.get("approvals"))["items"]
    with as_system():
        Project.objects.filter(id=site.project.id).update(is_open=False)
    path = f"approvals/{approval['id']}/approve"
    assert site.lead.post(path, {"hash": approval["hash"]}).status_code == 403


@pytest.mark.parametrize("way", [_removed, _disabled, _closed_account])
def test_a_webhook_of_who_has_left_is_shown_as_off(
    site: Site, way: Callable[[Site], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep ends it, and came ten minutes later: until then REST and the page said that it is on."""
    asked: list[str] = []
    monkeypatch.setattr(departures, "task_request", asked.append)
    with as_system():
        Membership.objects.filter(user=site.people["researcher"]).update(role="lead")
    terms = {"url": "https://93.184.216.34/in", "events": ["*"], "project": site.project.slug}
    made = said(site.researcher.post("webhooks", terms))
    assert made.get("is_enabled") is True, made
    _leave(site, way)
    now = timezone.now()
    with as_system():
        departures_apply(now)
        departures_apply(now)
    assert asked == ["tenants.sweep"], "once for each departure"
    with as_system():
        sweep()
    (shown,) = said(site.admin.get("webhooks"))["items"]
    assert (shown["is_enabled"], shown["disabled_reason"]) == (False, "The token that set it has ended.")
