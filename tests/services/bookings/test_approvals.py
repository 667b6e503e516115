"""Approvals: who is asked, what is held meanwhile, who may decide, and until when."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from uuid import uuid4

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from pytest_django.fixtures import Settings

from allocation.features.approval_rules.services import (
    ApprovalRuleTerms,
    Hours,
    approval_rule_retire,
    approval_rule_set,
)
from allocation.models import Approval, ApprovalAct, ApprovalRule, Booking, BookingEvent
from allocation.rules.approvals import PLACE_KEPT, Step
from allocation.rules.recurrence import recurrence_read
from allocation.rules.states import State
from allocation.services.bookings.approval.decisions import (
    Decision,
    Verdict,
    approval_decide,
    approvals_expire,
)
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel
from allocation.services.bookings.series import Repeat, series_request
from allocation.web.approvals.cards import cards_of
from allocation.web.bookings.page_context import PageContext
from billing.queries import budget_figures, reference_totals
from billing.rules import BudgetOwner, BudgetTerms, Period
from billing.services import budget_put
from portal.integrations.mail.message import section_of
from portal.integrations.notifications.delivery import people_notify
from tenants.access import Actor
from tenants.models import AuditEntry, Mail, OutboxMessage, Role, User
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.api.builders import row_counts
from tests.builders import a_member, a_tenant_admin, an_actor
from tests.builders_allocation import HOUR, NOW, Lab, a_booking_request, a_lab, an_ask
from tests.roles import as_owner, as_role, as_system

COSTLY = ApprovalRuleTerms(name="Costly", steps=[Step("lead", hours=2)], min_cost=Decimal(100))


@pytest.fixture
def lead(lab: Lab) -> Actor:
    """A lead of the lab's project, where costly bookings need an approval."""
    found = an_actor(a_member(lab.project, Role.LEAD))
    ruled(an_actor(a_tenant_admin(lab.tenant)))
    return found


def ruled(actor: Actor, terms: ApprovalRuleTerms = COSTLY) -> ApprovalRule:
    with tenant_tx(actor.tenant_id):
        return approval_rule_set(actor=actor, terms=terms, now=NOW)


def booked(lab: Lab, hours: float = 24, starts: datetime | None = None) -> Booking:
    with tenant_tx(lab.tenant_id):
        wanted = a_booking_request(lab.project, an_ask(hours=hours, starts=starts))
        return booking_request(actor=lab.actor, request=wanted, now=NOW)


def asked(booking: Booking) -> Approval:
    with as_system():
        return Approval.objects.get(booking=booking, state="open")


def decided(
    actor: Actor,
    approval: Approval,
    verdict: Verdict = "approve",
    *,
    now: datetime = NOW,
    digest: str | None = None,
    reason: str = "ok",
) -> Approval:
    decision = Decision(verdict, approval.digest if digest is None else digest, reason)
    with tenant_tx(actor.tenant_id):
        return approval_decide(actor=actor, approval_id=approval.id, decision=decision, now=now)


def stored(booking: Booking) -> Booking:
    with as_system():
        return Booking.objects.get(id=booking.id)


def held(lab: Lab) -> Decimal:
    with as_system():
        figures = budget_figures(project_id=lab.project.id, at=NOW)
    assert figures is not None
    return figures.held


def constraints_now() -> None:
    """Checks what is checked at a commit."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")


def committed(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")


def test_a_booking_that_meets_a_rule_waits_with_all_its_money_held(lab: Lab, lead: Actor) -> None:
    small, big = booked(lab, 2), booked(lab)

    assert (small.state, big.state) == (State.REQUESTED, State.AWAITING_APPROVAL)
    assert held(lab) == Decimal("9.60") + Decimal("115.20")
    approval = asked(big)
    assert (approval.decide_by, approval.rules[0]["name"]) == (NOW + 2 * HOUR, "Costly")

    constraints_now()
    decided(lead, approval, now=NOW + HOUR, reason="For the deadline")
    constraints_now()
    after = stored(big)
    assert (after.state, after.submitted, after.approved_hash) == (
        State.REQUESTED,
        NOW,
        approval.digest,
    )
    assert held(lab) == Decimal("124.80")
    with as_system():
        kinds = list(BookingEvent.objects.filter(booking=big).values_list("kind", flat=True))
        assert kinds == ["requested", "approval_requested", "approved"]
        sent = OutboxMessage.objects.filter(payload__booking=big.label)
        assert [f"booking.{kind}" for kind in kinds] == list(sent.values_list("kind", flat=True))
        entry = AuditEntry.objects.get(action="approval.approved")
        assert (entry.actor_id, entry.detail["digest"]) == (lead.user_id, approval.digest)


def test_three_bookings_of_forty_are_counted_together(lab: Lab, lead: Actor) -> None:
    """Example 11: a rule at 100, three of 9 hours for 43.20 each."""
    states = [booked(lab, 9).state for _ in range(3)]
    assert states == [State.REQUESTED, State.REQUESTED, State.AWAITING_APPROVAL]
    # What waits for an approval is looked at already, so the next is counted with the first two.
    assert booked(lab, 1).state == State.REQUESTED


def test_only_another_person_with_the_role_decides_exactly_what_was_asked(lab: Lab, lead: Actor) -> None:
    approval = asked(booked(lab))
    outsider = a_lab("other")
    their_lead = an_actor(a_member(outsider.project, Role.LEAD))
    colleague = an_actor(a_member(lab.project))
    with as_system():
        promoted = replace(lab.actor, roles={lab.project.id: Role.LEAD})
    refused: list[tuple[str, Callable[[], object]]] = [
        ("not_allowed", lambda: decided(lab.actor, approval)),
        # The asker became a lead meanwhile.
        ("not_allowed", lambda: decided(promoted, approval)),
        ("not_found", lambda: decided(colleague, approval)),
        ("not_found", lambda: decided(their_lead, approval)),
        ("approval_changed", lambda: decided(lead, approval, digest="0" * 64)),
        ("approval_changed", lambda: decided(lead, approval, "decline", digest="")),
        ("bad_reason", lambda: decided(lead, approval, "decline", reason="  ")),
        # Half-open: the last instant is one before.
        ("approval_expired", lambda: decided(lead, approval, now=approval.decide_by)),
    ]
    before = row_counts()
    for code, attempt in refused:
        with pytest.raises(Refused) as caught:
            attempt()
        assert caught.value.code == code
    assert row_counts() == before

    decided(lead, approval, now=approval.decide_by - timedelta(microseconds=1))
    with pytest.raises(Refused) as caught:
        decided(an_actor(a_tenant_admin(lab.tenant)), approval)
    assert caught.value.code == "approval_over"
    assert "has approved this already" in caught.value.sentence


def test_a_booking_that_changed_is_not_approved(lab: Lab, lead: Actor) -> None:
    approval = asked(booked(lab))
    with as_system():
        Booking.objects.filter(id=approval.booking_id).update(duration_seconds=25 * 3600)
    with pytest.raises(Refused) as caught:
        decided(lead, approval)
    assert caught.value.code == "approval_changed"


def test_who_left_the_project_gets_nothing_approved(lab: Lab, lead: Actor) -> None:
    approval = asked(booked(lab))
    with as_system():
        lab.project.membership_set.filter(user=lab.actor.user_id).update(role=Role.VIEWER)
    with pytest.raises(Refused) as caught:
        decided(lead, approval)
    assert caught.value.code == "asker_left"
    decided(lead, approval, "decline", reason="left")


@pytest.mark.parametrize("end", ["declined", "expired", "cancelled"])
def test_money_is_released_when_it_is_not_approved(lab: Lab, lead: Actor, end: str) -> None:
    booking = booked(lab)
    approval = asked(booking)
    if end == "declined":
        decided(lead, approval, "decline", reason="Use the small ones")
    elif end == "cancelled":
        with tenant_tx(lab.tenant_id):
            booking_cancel(actor=lab.actor, booking=booking, now=NOW + HOUR)
    else:
        with as_system():
            assert approvals_expire(approval.decide_by - timedelta(microseconds=1)) == 0
            assert approvals_expire(approval.decide_by) == 1
            assert approvals_expire(approval.decide_by) == 0
    constraints_now()
    after = stored(booking)
    states = {"declined": "rejected", "expired": "expired", "cancelled": "cancelled"}
    assert after.state == states[end]
    assert after.charged == held(lab) == 0
    with as_system():
        state = Approval.objects.get(id=approval.id).state
        assert state == {"cancelled": "withdrawn"}.get(end, end)
        totals = reference_totals(tenant_id=lab.tenant_id, reference=booking.id)
        assert totals == (Decimal(0), Decimal(0))


def test_all_dates_of_a_series_are_decided_at_once(lab: Lab, lead: Actor) -> None:
    """No date alone reaches the rule's 100; all three together do."""
    wanted = a_booking_request(lab.project, an_ask(hours=8, starts=NOW + 4 * HOUR))
    repeat = Repeat(recurrence_read("FREQ=DAILY;COUNT=3"))
    with tenant_tx(lab.tenant_id):
        series = series_request(actor=lab.actor, request=wanted, repeat=repeat, now=NOW)
    with as_system():
        rows = list(Approval.objects.filter(series=series))
    assert len({row.digest for row in rows}) == 3
    decided(lead, rows[1])
    with as_system():
        assert set(series.bookings.values_list("state", flat=True)) == {State.REQUESTED}
        assert ApprovalAct.objects.count() == 3


def test_two_steps_are_two_people_and_a_late_step_goes_to_the_admins(lab: Lab) -> None:
    admin, other = (an_actor(a_tenant_admin(lab.tenant)) for _ in range(2))
    lead = an_actor(a_member(lab.project, Role.LEAD))
    steps = (Step("lead", hours=1, escalates=True), Step("admin", hours=5))
    ruled(admin, replace(COSTLY, steps=steps))
    booking = booked(lab)
    approval = asked(booking)
    late = NOW + HOUR
    with as_system():
        assert approvals_expire(late) == 0
    with pytest.raises(Refused) as caught:
        decided(lead, approval, now=late)
    assert caught.value.code == "not_allowed"
    decided(admin, approval, now=late)
    with pytest.raises(Refused) as caught:
        decided(admin, approval, now=late)
    assert caught.value.sentence.startswith("You decided an earlier step")
    assert stored(booking).state == State.AWAITING_APPROVAL
    decided(other, approval, now=late + 4 * HOUR)
    assert stored(booking).state == State.REQUESTED


@pytest.mark.turn
def test_nobody_can_ask_where_nobody_else_decides_or_twenty_wait(lab: Lab) -> None:
    admin = an_actor(a_tenant_admin(lab.tenant))
    ruled(admin, replace(COSTLY, min_cost=Decimal(1)))
    own = replace(lab, actor=admin)
    before = row_counts()
    with pytest.raises(Refused) as caught, transaction.atomic():
        booked(own)
    assert (caught.value.code, caught.value.rule) == ("no_approver", "R94")
    assert row_counts() == before

    for _ in range(20):
        booked(lab, 1)
    before = row_counts()
    with pytest.raises(Refused) as caught, transaction.atomic():
        booked(lab, 1)
    assert (caught.value.code, caught.value.rule) == ("too_many_approvals", "R93")
    assert row_counts() == before


def test_a_window_that_begins_before_anybody_can_decide_is_refused(lab: Lab, lead: Actor) -> None:
    with pytest.raises(Refused) as caught, transaction.atomic():
        booked(lab, starts=NOW)
    assert caught.value.code == "approval_too_late"
    approval = asked(booked(lab, starts=NOW + HOUR))
    assert approval.decide_by == approval.latest == NOW + HOUR


FORBIDDEN = {
    "the asker decides": (
        "approval_by_another|needs the act",
        "UPDATE allocation_approval SET state = 'approved', decided = asked, decided_by_id = asker_id",
    ),
    "nobody declines": (
        "approval_decided_in_time",
        "UPDATE allocation_approval SET state = 'declined', decided = asked",
    ),
    "the asker declines": (
        "approval_by_another",
        "UPDATE allocation_approval SET state = 'declined', decided = asked, decided_by_id = asker_id",
    ),
    "no act": (
        "needs the act",
        "UPDATE allocation_approval SET state = 'approved', decided = asked, decided_by_id = {lead}",
    ),
    "the asker acts": (
        "nobody decides their own",
        "INSERT INTO allocation_approvalact (tenant_id, approval_id, step, person_id, verdict,"
        " reason, at) SELECT tenant_id, id, 1, asker_id, 'approve', '', asked"
        " FROM allocation_approval",
    ),
    "too late": (
        "approval_decided_in_time",
        "UPDATE allocation_approval SET state = 'declined', decided = decide_by, decided_by_id = {lead}",
    ),
    "another hash": (
        "keeps the digests",
        "UPDATE allocation_approval SET digest = repeat('0', 64)",
    ),
    "without an approval": (
        "not approved as it is",
        "UPDATE allocation_booking SET state = 'requested' WHERE state = 'awaiting_approval'",
    ),
    "without a request": (
        "exactly one open request",
        "UPDATE allocation_booking SET state = 'awaiting_approval' WHERE state = 'requested'",
    ),
    "a request without its booking": (
        "exactly one open request",
        "UPDATE allocation_approval SET state = 'withdrawn', decided = asked",
    ),
    "the wall": (
        "row-level security",
        "INSERT INTO allocation_approvalrule (id, tenant_id, name, min_gpus, classes, tiers,"
        " weekdays, zone, is_first, steps, created, created_by_id) VALUES ('{uuid}', '{uuid}',"
        " 'x', 1, '[]', '[]', '[]', 'UTC', false, '[]', now(), {lead})",
    ),
}


@pytest.mark.turn
@pytest.mark.parametrize(("error", "statement"), FORBIDDEN.values(), ids=FORBIDDEN)
def test_the_database_lets_no_web_process_go_around(
    lab: Lab, lead: Actor, error: str, statement: str
) -> None:
    booked(lab)
    booked(lab, 2)
    constraints_now()
    wanted = statement.format(lead=lead.user_id, uuid=uuid4())
    with (
        tenant_tx(lab.tenant_id),
        as_role("portal_web"),
        pytest.raises(DatabaseError, match=error),
        transaction.atomic(),
    ):
        committed(wanted)


BAD_TERMS = {
    "no_condition": replace(COSTLY, min_cost=None),
    "out_of_range": replace(COSTLY, min_cost=Decimal(0)),
    "unknown_class": replace(COSTLY, classes=("h900",)),
    "unknown_tier": replace(COSTLY, tiers=("gold",)),
    "bad_hours": replace(COSTLY, outside=Hours(weekdays=("Mon",), begins=time(8), ends=time(8))),
    "bad_steps": replace(COSTLY, steps=(Step("lead"), Step("lead"))),
    "bad_name": replace(COSTLY, name=" "),
}


def test_a_rule_is_checked_belongs_to_its_setter_and_can_be_ended(lab: Lab, lead: Actor) -> None:
    admin = an_actor(a_tenant_admin(lab.tenant))
    before = row_counts()
    for code, terms in BAD_TERMS.items():
        with pytest.raises(Refused) as caught:
            ruled(admin, terms)
        assert caught.value.code == code
    for actor, terms in (
        (lead, COSTLY),  # a rule of the whole organisation
        (lab.actor, replace(COSTLY, project=lab.project.slug)),
    ):
        with pytest.raises(Refused) as caught:
            ruled(actor, terms)
        assert caught.value.code == "not_allowed"
    assert row_counts() == before

    rule = ruled(lead, replace(COSTLY, min_cost=Decimal(1), project=lab.project.slug))
    waiting = booked(lab, 2)
    with tenant_tx(lab.tenant_id):
        approval_rule_retire(actor=lead, rule_id=rule.id, now=NOW)
    assert (waiting.state, booked(lab, 2).state) == (State.AWAITING_APPROVAL, State.REQUESTED)
    with as_owner(), pytest.raises(IntegrityError, match="states_something"), transaction.atomic():
        ApprovalRule.objects.filter(id=rule.id).update(min_cost=None)


def test_the_effect_on_a_budget_is_what_its_days_hold(lab: Lab, lead: Actor) -> None:
    day = NOW.date()
    owner = BudgetOwner(lab.tenant_id, lab.project.id, person_id=lab.actor.user_id)
    terms = BudgetTerms(Period(day, day + timedelta(days=1)), Decimal(100))
    with as_system():
        budget_put(actor_id=None, owner=owner, terms=terms, now=NOW)
    booking = booked(lab, 24, NOW + 8 * HOUR)
    with tenant_tx(lab.tenant_id):
        (card,) = cards_of(lead, [asked(booking)], PageContext(NOW, UTC, "/t/helix/", {}))
    assert card.budget is not None
    assert card.budget.of, "it is a person's"
    # 6 of the 24 hours are in the day of the budget, and cost 28.80.
    assert (card.budget.before, card.budget.left) == ("€100.00", "€71.20")


def test_those_who_may_decide_get_one_mail_with_a_link(lab: Lab, lead: Actor, settings: Settings) -> None:
    settings.MAIL_ON = True
    with as_owner():
        User.objects.exclude(id=lab.actor.user_id).update(email="decides@example.org")
    wanted = a_booking_request(lab.project, an_ask(hours=8, starts=NOW + 4 * HOUR))
    repeat = Repeat(recurrence_read("FREQ=DAILY;COUNT=3"))
    with tenant_tx(lab.tenant_id):
        series = series_request(actor=lab.actor, request=wanted, repeat=repeat, now=NOW)
    with as_system():
        assert not people_notify(list(OutboxMessage.objects.all()), NOW)
        found = list(Mail.objects.select_related("user").order_by("user"))
        # The lead and the admin, once for all three dates.
        assert {mail.kind for mail in found} == {"booking.approval_requested"}
        assert len(found) == 2
        section = section_of(found[0], NOW)
        assert section is not None
        first = Approval.objects.filter(series=series).earliest("booking__number")
        assert section.href.endswith(f"/t/helix/approvals/{first.id}")
        assert "3 dates" in section.sentences[0]
    decided(lead, first, "decline", reason="no")
    with as_system():
        assert section_of(found[0], NOW) is None


def test_who_withdraws_a_request_gets_no_place_for_as_long_as_it_lasted(lab: Lab, lead: Actor) -> None:
    pending = booked(lab)
    assert stored(pending).place_until == NOW + PLACE_KEPT
    with tenant_tx(lab.tenant_id):
        booking_cancel(actor=lab.actor, booking=pending, now=NOW + HOUR)
    wanted = a_booking_request(lab.project, an_ask(hours=24))
    for now, until in (
        (NOW + 2 * HOUR - timedelta(seconds=1), None),
        (NOW + 2 * HOUR, NOW + 2 * HOUR + PLACE_KEPT),
    ):
        with tenant_tx(lab.tenant_id):
            again = booking_request(actor=lab.actor, request=wanted, now=now)
        assert stored(again).place_until == until
