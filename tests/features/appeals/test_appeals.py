"""People contest a pause once, and admins or operators answer with a reason."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest
from django.db import DatabaseError, IntegrityError, transaction

from allocation.features.appeals.models import PauseAppeal
from allocation.features.appeals.services import (
    AppealAnswerTerms,
    AppealTerms,
    appeal_answer,
    appeal_answer_by_operator,
    appeal_raise,
    appeals_to_answer,
)
from allocation.models import Booking, BookingEvent, Pause
from allocation.points import tasks_of
from allocation.rules.states import State
from billing.models import Guardrail
from portal.integrations.notifications.delivery import people_notify
from tenants.access import Actor, PlatformActor
from tenants.models import AuditEntry, Notification, OutboxMessage, Role
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders import a_member, a_tenant_admin, a_user, an_actor, an_operator
from tests.builders_allocation import HOUR, NOW, Lab, a_booking, a_lab
from tests.builders_pauses import a_pause
from tests.roles import as_owner, as_role, as_system


@pytest.fixture
def paused(lab: Lab) -> Booking:
    """A running booking with the notice of a pause, by another organisation."""
    return noticed(lab, a_booking(a_lab("north").project, lab.actor.user_id, state=State.QUEUED))


@pytest.fixture
def admin(lab: Lab) -> Actor:
    return an_actor(a_tenant_admin(lab.tenant, user=a_user("ada")))


@pytest.fixture
def olaf(db: None) -> PlatformActor:
    return PlatformActor(an_operator("olaf").pk, "olaf")


def noticed(lab: Lab, ahead: Booking, relation: str = "", label: str = "") -> Booking:
    booking = a_booking(lab.project, lab.actor.user_id, state=State.ACTIVE)
    a_pause(booking, ahead, now=NOW, ready=NOW - HOUR, ends=NOW + 2 * HOUR, label=label)
    with as_system():
        Pause.objects.update(relation=relation)
        booking.refresh_from_db()
    return booking


def contested(
    actor: Actor, booking: Booking, reason: str = "It ran alone.", number: int = 1, after: timedelta = HOUR
) -> PauseAppeal:
    with tenant_tx(actor.tenant_id):
        terms = AppealTerms(reason=reason)
        return appeal_raise(actor=actor, reference=booking.label, number=number, terms=terms, now=NOW + after)


def answered(actor: Actor | PlatformActor, row: PauseAppeal, answer: str = "You are right.") -> PauseAppeal:
    terms, now = AppealAnswerTerms(outcome="accepted", answer=answer), NOW + 2 * HOUR
    if isinstance(actor, Actor):
        with tenant_tx(actor.tenant_id):
            return appeal_answer(actor=actor, appeal_id=row.id, terms=terms, now=now)
    with as_role("portal_ops"):
        return appeal_answer_by_operator(actor=actor, appeal_id=row.id, terms=terms, now=now)


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(Refused) as found, transaction.atomic():
        act()
    return found.value.code


def inbox(who: str) -> list[str]:
    with as_system():
        people_notify(list(OutboxMessage.objects.filter(kind__startswith="appeal").order_by("id")), NOW)
        rows = Notification.objects.filter(user__username=who).order_by("message")
        return [row.title for row in rows]


def test_an_operator_answers_what_others_have_caused(
    lab: Lab, paused: Booking, admin: Actor, olaf: PlatformActor
) -> None:
    row = contested(lab.actor, paused)
    assert row.decider == "operator"
    assert inbox("olaf") == [f"{lab.actor.name} of {lab.tenant.name} contests a pause of {paused.label}"]
    assert inbox("ada") == []
    with as_role("portal_ops"):
        assert [task.url for task in tasks_of(None, NOW)] == ["/ops/appeals"]
    assert refused(lambda: answered(admin, row)) == "not_allowed"
    assert refused(lambda: answered(olaf, row, " ")) == "bad_name"
    assert answered(olaf, row).state == "accepted"
    assert refused(lambda: answered(olaf, row)) == "appeal_answered"
    with as_system():
        kinds = BookingEvent.objects.filter(booking=paused).order_by("id").values_list("kind", flat=True)
        assert [*kinds][-2:] == ["pause_contested", "pause_answered"]
        logged = AuditEntry.objects.filter(action__startswith="appeal").order_by("id")
        assert [(each.action, each.tenant_id) for each in logged] == [
            ("appeal.raised", lab.tenant_id),
            ("appeal.answered", lab.tenant_id),
            ("appeal.answered", None),
        ]
        name = Booking.objects.get(id=paused.id).owner.username
        assert Booking.objects.get(id=paused.id).state == State.PAUSING, "it changes nothing by itself"
    assert inbox(name) == [f"Your objection to a pause of {paused.label} was accepted"]


def test_an_admin_answers_what_the_organisation_has_caused(
    lab: Lab, admin: Actor, olaf: PlatformActor
) -> None:
    ahead = a_booking(lab.project, lab.actor.user_id, state=State.QUEUED)
    booking = noticed(lab, ahead, relation="project", label=ahead.label)
    row = contested(lab.actor, booking)
    assert row.decider == "admin"
    assert inbox("ada") == [f"{lab.actor.name} contests a pause of {booking.label}"]
    assert inbox("olaf") == []
    with tenant_tx(lab.tenant_id):
        assert [task.url for task in tasks_of(admin, NOW)] == ["/t/helix/appeals"]
        assert tasks_of(lab.actor, NOW) == []
        assert not appeals_to_answer(None).exists()
    assert refused(lambda: answered(olaf, row)) == "not_found"
    lead = an_actor(a_member(lab.project, Role.LEAD))
    assert refused(lambda: answered(lead, row)) == "not_allowed"
    outsider = an_actor(a_tenant_admin(a_lab("north").tenant))
    assert refused(lambda: answered(outsider, row)) == "not_found"
    assert answered(admin, row).answered_by_id == admin.user_id


def test_a_pause_by_a_budget_is_answered_by_whose_budget_it_is(lab: Lab) -> None:
    ahead = a_booking(lab.project, lab.actor.user_id, state=State.QUEUED)
    booking = noticed(lab, ahead, relation="tenant")
    assert contested(lab.actor, booking).decider == "operator", "no budget of the organisation pauses"
    other = noticed(lab, ahead, relation="tenant")
    with as_owner():
        Guardrail.objects.create(
            tenant_id=lab.tenant_id,
            budget=lab.budget,
            measure="spent",
            percent=50,
            action="pause",
            reached_at=NOW - HOUR,
        )
    assert contested(lab.actor, other).decider == "admin"


def test_admins_do_not_answer_themselves(lab: Lab, admin: Actor, olaf: PlatformActor) -> None:
    ahead = a_booking(lab.project, lab.actor.user_id, state=State.QUEUED)
    row = contested(admin, noticed(lab, ahead, relation="project", label=ahead.label))
    assert row.decider == "operator"
    me = PlatformActor(admin.user_id, "ada")
    assert refused(lambda: answered(me, row)) == "not_allowed"
    assert answered(olaf, row).state == "accepted"


def test_who_contests_what_and_when(lab: Lab, paused: Booking) -> None:
    viewer = an_actor(a_member(lab.project, Role.VIEWER))
    colleague = an_actor(a_member(lab.project))
    outsider = a_lab("orbit").actor
    assert refused(partial(contested, viewer, paused)) == "not_allowed"
    assert refused(partial(contested, colleague, paused)) == "not_allowed"
    assert refused(partial(contested, outsider, paused)) == "not_found"
    assert refused(partial(contested, lab.actor, paused, number=2)) == "not_found"
    for reason in ("", " ", "x" * 501, "a\u200bb", "a\nb"):
        assert refused(partial(contested, lab.actor, paused, reason)) == "bad_name"
    late = timedelta(days=14, seconds=1)
    assert refused(partial(contested, lab.actor, paused, after=late)) == "appeal_late"
    contested(lab.actor, paused)
    assert refused(partial(contested, lab.actor, paused)) == "appeal_twice"


def test_the_database_keeps_answers_to_those_who_give_them(lab: Lab, paused: Booking, admin: Actor) -> None:
    row = contested(lab.actor, paused)
    rows = PauseAppeal.objects.filter(id=row.id)
    said = {"state": "accepted", "answer": "Yes.", "answered": NOW + 2 * HOUR}
    with tenant_tx(lab.tenant_id), as_role("portal_web"):
        with pytest.raises(DatabaseError, match="others answer"), transaction.atomic():
            rows.update(**said, answered_by=admin.user_id)
        with pytest.raises(DatabaseError, match="permission denied"), transaction.atomic():
            rows.update(reason="Another one.")
    with as_role("portal_ops"):
        with pytest.raises(IntegrityError, match="answered_by_another"), transaction.atomic():
            rows.update(**said, answered_by=lab.actor.user_id)
        with pytest.raises(IntegrityError, match="answered_by_another"), transaction.atomic():
            rows.update(**said | {"answer": ""}, answered_by=admin.user_id)
        rows.update(**said, answered_by=admin.user_id)
        with pytest.raises(IntegrityError, match="answered once"), transaction.atomic():
            rows.update(answer="No.")
