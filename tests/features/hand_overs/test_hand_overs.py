"""A booking that has not begun gets another owner, who accepts it within their own limits."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, transaction

from allocation.features.approval_rules.services import ApprovalRuleTerms, approval_rule_set
from allocation.features.hand_overs.models import HandOver
from allocation.features.hand_overs.services import (
    HandOverTerms,
    hand_over_accept,
    hand_over_decline,
    hand_over_offer,
    hand_over_withdraw,
    hand_overs_expire,
    hand_overs_over,
)
from allocation.models import ApprovalRule, Booking, BookingEvent
from allocation.points.bookings import TURN_STEPS
from allocation.rules.approvals import Step
from allocation.rules.states import State
from allocation.services.bookings.creation import booking_request
from allocation.services.decide.due import Work
from billing.models import Transfer
from billing.rules import BudgetOwner, BudgetTerms, Period, month_after, month_of
from billing.services import budget_put
from portal.integrations.notifications.delivery import people_notify
from tenants.access import Actor
from tenants.models import AuditEntry, KnownPerson, Membership, Notification, OutboxMessage, Role, Tier, User
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tenants.services import token_create, token_revoke
from tests.builders import a_member, a_tenant_admin, a_user, an_actor
from tests.builders_allocation import HOUR, NOW, Lab, a_booking, a_booking_request, a_lab, an_ask
from tests.roles import as_owner, as_role, as_system


@pytest.fixture
def nina(lab: Lab) -> Actor:
    """A colleague in the lab's project."""
    return an_actor(a_member(lab.project, user=a_user("nina")))


def booked(lab: Lab, actor: Actor | None = None, **ask: Any) -> Booking:  # noqa: ANN401 (as `an_ask`)
    with tenant_tx(lab.tenant_id):
        wanted = a_booking_request(lab.project, an_ask(**ask))
        return booking_request(actor=actor or lab.actor, request=wanted, now=NOW)


def offered(
    actor: Actor, booking: Booking, person: str = "nina", days: int = 3, note: str = "Yours?"
) -> HandOver:
    terms = HandOverTerms(person=person, note=note, days=days)
    with tenant_tx(actor.tenant_id):
        return hand_over_offer(actor=actor, reference=booking.label, terms=terms, now=NOW)


def answered(
    act: Callable[..., HandOver], actor: Actor, booking: Booking, after: timedelta = HOUR
) -> HandOver:
    with tenant_tx(actor.tenant_id):
        return act(actor=actor, reference=booking.label, now=NOW + after)


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(Refused) as found, transaction.atomic():
        act()
    return found.value.code


def stored(booking: Booking) -> Booking:
    with as_system():
        return Booking.objects.get(id=booking.id)


def inboxes() -> dict[str, list[str]]:
    """The titles in the inboxes, by sign-in name, after all messages are delivered."""
    found: dict[str, list[str]] = {}
    with as_system():
        people_notify(list(OutboxMessage.objects.filter(kind__startswith="hand_over").order_by("id")), NOW)
        rows = Notification.objects.select_related("user").order_by("message")
        for row in rows:
            found.setdefault(row.user.username, []).append(row.title)
    return found


def test_an_acceptance_moves_the_hold_and_is_in_history_log_and_inboxes(lab: Lab, nina: Actor) -> None:
    booking = booked(lab)
    offered(lab.actor, booking)
    answered(hand_over_accept, nina, booking)
    with as_system():
        holds = list(Transfer.objects.filter(reference=booking.id, kind="hold", end__isnull=True))
        events = list(BookingEvent.objects.filter(booking=booking).values_list("kind", flat=True))
        log = list(AuditEntry.objects.filter(action__startswith="hand_over").order_by("id"))
    assert sum((each.amount for each in holds), Decimal(0)) == booking.hold_amount
    assert {each.person_id for each in holds} == {nina.user_id}
    assert events[-2:] == ["hand_over", "handed_over"]
    assert [each.action for each in log] == ["hand_over.offered", "hand_over.accepted"]
    assert log[1].actor_id == nina.user_id
    titles = inboxes()
    assert titles.pop("nina") == [f"{lab.actor.name} offers nina the booking {booking.label}"]
    assert [*titles.values()] == [[f"nina has taken over the booking {booking.label}"]]


@pytest.mark.turn
def test_who_can_offer_to_whom(lab: Lab, nina: Actor) -> None:
    booking = booked(lab)
    viewer = an_actor(a_member(lab.project, Role.VIEWER, user=a_user("vera")))
    a_user("paul")
    with as_system():
        foreign = a_lab("north")
    assert refused(lambda: offered(lab.actor, booking, "vera")) == "hand_over_taker"
    assert refused(lambda: offered(lab.actor, booking, "paul")) == "not_found"
    assert refused(lambda: offered(lab.actor, booking, "")) == "not_found"
    with as_system():
        owner = stored(booking).owner
    assert refused(lambda: offered(lab.actor, booking, owner.username)) == "hand_over_self"
    assert refused(lambda: offered(lab.actor, booking, days=0)) == "hand_over_days"
    assert refused(lambda: offered(lab.actor, booking, note="a\u200bb")) == "bad_name"
    assert refused(lambda: offered(nina, booking, "nina")) == "not_allowed"
    assert refused(lambda: offered(viewer, booking)) == "not_allowed"
    assert refused(lambda: offered(foreign.actor, booking)) == "not_found"
    offered(lab.actor, booking)
    assert refused(lambda: answered(hand_over_accept, viewer, booking)) == "hand_over_none"
    assert refused(lambda: answered(hand_over_accept, lab.actor, booking)) == "not_allowed"
    assert refused(lambda: answered(hand_over_withdraw, nina, booking)) == "not_allowed"
    assert refused(lambda: answered(hand_over_accept, foreign.actor, booking)) == "not_found"
    # A lead hands over what somebody else has booked; both get a notice.
    lead = an_actor(a_member(lab.project, Role.LEAD, user=a_user("leo")))
    offered(lead, booking)
    with as_system():
        states = HandOver.objects.order_by("created", "id").values_list("state", flat=True)
        assert sorted(states) == ["open", "withdrawn"]
    answered(hand_over_accept, nina, booking)
    assert stored(booking).owner_id == nina.user_id
    assert {"nina", "leo", owner.username} <= inboxes().keys()


def test_who_has_left_gives_and_gets_nothing(lab: Lab, nina: Actor) -> None:
    booking = booked(lab)
    offered(lab.actor, booking)
    with as_system():
        nina_now = a_member(lab.project, Role.LEAD, user=a_user("rita"))
    with as_owner():
        Membership.objects.filter(user=nina.user_id).delete()
    gone = Actor(nina.user_id, "nina", lab.tenant_id, nina.tenant_slug, is_tenant_admin=False, roles={})
    assert refused(lambda: answered(hand_over_accept, gone, booking)) == "not_found"
    assert refused(lambda: offered(lab.actor, booking, "nina")) == "not_found"
    rita = an_actor(nina_now)
    offered(lab.actor, booking, "rita")
    with as_owner():
        Membership.objects.filter(user=lab.actor.user_id).delete()
    assert refused(lambda: answered(hand_over_accept, rita, booking)) == "owner_left"


def by_token(lab: Lab) -> Actor:
    """The lab's person with a token of theirs."""
    with tenant_tx(lab.tenant_id):
        token, _ = token_create(actor=lab.actor, name="script", days=9, now=NOW)
    return replace(lab.actor, token_id=token.id)


def over(lab: Lab, booking: Booking, state: str) -> None:
    """The offer is over in this way, the booking stays, and the history and the log say so."""
    with as_system():
        assert HandOver.objects.get().state == state
        assert BookingEvent.objects.filter(booking=booking).latest("id").kind == "hand_over"
        assert AuditEntry.objects.filter(action=f"hand_over.{state}").exists()
    assert stored(booking).owner_id == lab.actor.user_id


def test_a_colleague_declines(lab: Lab, nina: Actor) -> None:
    booking = booked(lab)
    offered(lab.actor, booking)
    answered(hand_over_decline, nina, booking)
    over(lab, booking, "declined")
    titles = inboxes()
    assert len(titles.pop("nina")) == 1
    assert [*titles.values()] == [[f"nina declined the booking {booking.label}"]]


def test_an_owner_withdraws(lab: Lab, nina: Actor) -> None:
    booking = booked(lab)
    offered(lab.actor, booking)
    answered(hand_over_withdraw, lab.actor, booking)
    over(lab, booking, "withdrawn")
    assert len(inboxes()["nina"]) == 2
    assert refused(lambda: answered(hand_over_accept, nina, booking)) == "hand_over_none"


@pytest.mark.parametrize("how", ["expire", "token", "begun"])
def test_an_offer_ends_by_itself_and_both_sides_get_a_notice(lab: Lab, nina: Actor, how: str) -> None:
    booking = booked(lab)
    actor = by_token(lab) if how == "token" else lab.actor
    row, late = offered(actor, booking), timedelta(days=3) if how == "expire" else HOUR
    with as_system():
        assert not hand_overs_over(NOW + late - HOUR / 2).exists()
    if how == "token":
        with tenant_tx(lab.tenant_id):
            token_revoke(actor=lab.actor, token_id=row.made_with_id or row.id, now=NOW)
    if how == "begun":
        with as_owner():
            Booking.objects.filter(id=booking.id).update(state=State.SCHEDULED)
            Booking.objects.filter(id=booking.id).update(state=State.STARTING)
    code = "hand_over_begun" if how == "begun" else "hand_over_none"
    assert refused(lambda: answered(hand_over_accept, nina, booking, late)) == code
    with as_system():
        assert hand_overs_expire(NOW + late) == 1
        assert hand_overs_expire(NOW + late) == 0
    over(lab, booking, "expired")
    assert sorted(map(len, inboxes().values())) == [1, 2], "one to its owner, two to the colleague"


@pytest.mark.parametrize("how", ["removed", "closed", "disabled", "viewer"])
def test_an_offer_to_somebody_who_has_left_is_over(lab: Lab, nina: Actor, how: str) -> None:
    booking = booked(lab)
    offered(lab.actor, booking)
    with as_system():
        assert hand_overs_expire(NOW) == 0
        assert not Work(NOW).has("hand_overs_left")
    with as_owner():
        if how == "removed":
            Membership.objects.filter(user=nina.user_id).delete()
        elif how == "viewer":
            Membership.objects.filter(user=nina.user_id).update(role=Role.VIEWER)
        elif how == "disabled":
            KnownPerson.objects.update_or_create(
                tenant_id=lab.tenant_id, user_id=nina.user_id, defaults={"disabled": NOW}
            )
        else:
            User.objects.filter(id=nina.user_id).update(is_active=False)
    with as_system():
        work = Work(NOW)
        assert work.is_due
        assert work.take("hand_overs_left"), "the next turn ends it, not only the minute's task"
        assert TURN_STEPS["hand_overs_left"].run(NOW) == 0, "no booking ends by it"
        assert not work.has("hand_overs_left")
    over(lab, booking, "expired")


def test_only_what_has_not_begun_and_is_of_one_person(lab: Lab, nina: Actor) -> None:
    person = lab.actor.user_id
    for state in (State.ACTIVE, State.AWAITING_APPROVAL, State.WAITLISTED, State.ENDED, State.PAUSED):
        other = a_booking(lab.project, person, state=state)
        assert refused(partial(offered, lab.actor, other)) == "hand_over_begun"
    wrong: tuple[tuple[str, dict[str, Any]], ...] = (
        ("hand_over_begun", {"pause_count": 1}),
        ("hand_over_share", {"ask": an_ask(share=500).to_json()}),
        ("hand_over_personal", {"has_override": True}),
    )
    for code, facts in wrong:
        booking = booked(lab)
        with as_system():
            Booking.objects.filter(id=booking.id).update(**facts)
        assert refused(partial(offered, lab.actor, booking)) == code
    booking = booked(lab)
    offered(lab.actor, booking)
    with as_system():
        Booking.objects.filter(id=booking.id).update(revision=7)
    assert refused(lambda: answered(hand_over_accept, nina, booking)) == "hand_over_changed"


def test_open_bookings_budgets_and_approvals_of_the_new_owner_count(lab: Lab, nina: Actor) -> None:
    booking = booked(lab)
    offered(lab.actor, booking)
    with as_owner():
        Tier.objects.update(max_open=1)
    mine = booked(lab, nina, hours=1)
    assert refused(lambda: answered(hand_over_accept, nina, booking)) == "too_many_open"
    with as_owner():
        Tier.objects.update(max_open=None)
    month = month_of(NOW.date())
    period = Period(month.starts, month_after(month.ends))
    terms = BudgetTerms(period=period, amount=Decimal(5))
    with as_system():
        owner = BudgetOwner(lab.tenant_id, lab.project.id, person_id=nina.user_id)
        budget_put(actor_id=None, owner=owner, terms=terms, now=NOW)
    assert refused(lambda: answered(hand_over_accept, nina, booking)) == "budget_exceeded"
    with as_system():
        terms = BudgetTerms(period=period, amount=Decimal(500))
        budget_put(actor_id=None, owner=owner, terms=terms, now=NOW)
    admin = an_actor(a_tenant_admin(lab.tenant))
    rule = ApprovalRuleTerms(name="Costly", steps=[Step("lead")], min_cost=Decimal(1))
    with tenant_tx(lab.tenant_id):
        approval_rule_set(actor=admin, terms=rule, now=NOW)
    assert refused(lambda: answered(hand_over_accept, nina, booking)) == "hand_over_needs_approval"
    with as_system():
        ApprovalRule.objects.update(retired=NOW, retired_by_id=admin.user_id)
    answered(hand_over_accept, nina, booking)
    assert stored(booking).owner_id == stored(mine).owner_id == nina.user_id


def test_the_database_changes_an_owner_only_with_an_accepted_offer(lab: Lab, nina: Actor) -> None:
    booking = booked(lab)
    rows = Booking.objects.filter(id=booking.id)
    third = an_actor(a_member(lab.project, user=a_user("otto")))
    keeps = pytest.raises(DatabaseError, match="keeps its owner and project")
    with tenant_tx(lab.tenant_id), as_role("portal_web"):
        row = HandOver(
            tenant_id=lab.tenant_id,
            booking=booking,
            revision=1,
            giver_id=lab.actor.user_id,
            taker_id=nina.user_id,
            created=NOW,
            created_by_id=lab.actor.user_id,
            until=NOW + HOUR,
        )
        row.state, row.answered, row.answered_by_id = "accepted", NOW, nina.user_id
        with pytest.raises(IntegrityError, match="begins as open"), transaction.atomic():
            row.save(force_insert=True)
        row.state, row.answered, row.answered_by_id, row.giver_id = "open", None, None, third.user_id
        with pytest.raises(IntegrityError, match="by its owner"), transaction.atomic():
            row.save(force_insert=True)
        row.giver_id = lab.actor.user_id
        row.save(force_insert=True)
        with keeps, transaction.atomic():
            rows.update(owner=nina.user_id)
        of_row = HandOver.objects.filter(id=row.id)
        for wrong in (third.user_id, None):
            with pytest.raises(IntegrityError, match="hand_over_answered"), transaction.atomic():
                of_row.update(state="accepted", answered=NOW, answered_by=wrong)
        with pytest.raises(DatabaseError, match="permission denied"), transaction.atomic():
            of_row.update(accepted_in=1)
        of_row.update(state="accepted", answered=NOW, answered_by=nina.user_id)
        with keeps, transaction.atomic():
            rows.update(owner=third.user_id)
        with keeps, transaction.atomic():
            rows.update(owner=nina.user_id, project=a_lab("north").project.id)
        with pytest.raises(IntegrityError, match="answered once"), transaction.atomic():
            of_row.update(state="open", answered=None, answered_by=None)
        rows.update(owner=nina.user_id)
