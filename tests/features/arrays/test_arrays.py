"""Arrays: elements in turn, their money, their cancellation, and another person's booking."""

from datetime import datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import pytest
from django.db import IntegrityError, transaction

from allocation.features.approval_rules.services import ApprovalRuleTerms, approval_rule_set
from allocation.features.arrays.elements import arrays_advance
from allocation.features.arrays.services import array_cancel, array_request
from allocation.models import Approval, Booking, BookingArray, BookingEvent
from allocation.rules.approvals import Step
from allocation.rules.ask import AskDocument
from allocation.rules.states import State
from allocation.services.bookings.approval.decisions import Decision, approval_decide
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.requests import ArrayRequest
from allocation.services.bookings.results import booking_result
from allocation.services.decide.invariants import invariants_check
from billing.queries import budget_figures
from billing.services import hold_release
from tenants.access import Actor
from tenants.models import AuditEntry, Membership, Role, Tier
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.api.builders import row_counts
from tests.builders import a_member, a_tenant_admin, an_actor
from tests.builders_allocation import HOUR, NOW, Lab, a_booking_request, a_lab, an_ask
from tests.roles import as_system
from tests.services.plant import Plant, fresh

pytestmark = pytest.mark.turn

MINUTE = timedelta(minutes=1)
PRICE = Decimal("4.80")
ONE_HOUR = an_ask(hours=1)


def arrayed(
    lab: Lab,
    count: int,
    parallel: int | None = None,
    *,
    ask: AskDocument = ONE_HOUR,
    holds_all: bool = True,
    stop: int | None = None,
) -> BookingArray:
    wanted = ArrayRequest(count, parallel, holds_all, stop)
    with tenant_tx(lab.tenant_id):
        request = a_booking_request(lab.project, ask)
        first = array_request(actor=lab.actor, request=request, array=wanted, now=NOW, key=uuid4())
        assert first.array is not None
        return first.array


def stored(array: BookingArray) -> BookingArray:
    with as_system():
        return BookingArray.objects.get(id=array.id)


def elements(array: BookingArray, *states: State) -> list[int]:
    """The indexes of its elements, of those in some states only."""
    with as_system():
        rows = Booking.objects.filter(array=array).order_by("array_index")
        rows = rows.filter(state__in=states) if states else rows
        return [row.array_index or 0 for row in rows]


def held(lab: Lab) -> Decimal:
    with as_system():
        figures = budget_figures(project_id=lab.project.id, at=NOW)
    assert figures is not None
    return figures.held


def sound() -> bool:
    with as_system():
        return invariants_check() == []


def advanced(now: datetime = NOW) -> None:
    with as_system():
        arrays_advance(now)


def cancelled(lab: Lab, array: BookingArray, *ranges: tuple[int, int]) -> int:
    with tenant_tx(lab.tenant_id):
        return array_cancel(actor=lab.actor, array=array, ranges=ranges or None, now=NOW)


def run(array: BookingArray, index: int, state: State, result: str = "") -> None:
    """Puts an element into a state of its run, without hardware."""
    with as_system():
        row = Booking.objects.get(array=array, array_index=index)
        path = [State.QUEUED, State.SCHEDULED, State.STARTING, State.ACTIVE, State.ENDING, state]
        for each in path[: path.index(state) + 1]:
            Booking.objects.filter(id=row.id).update(state=each)
        if state is State.ENDED:
            hold_release(tenant_id=row.tenant_id, reference=row.id, now=NOW)
            Booking.objects.filter(id=row.id).update(charged=0, ended_at=NOW, result=result)


def booked(lab: Lab, actor: Actor, now: datetime) -> Booking:
    with tenant_tx(lab.tenant_id):
        return booking_request(actor=actor, request=a_booking_request(lab.project, ONE_HOUR), now=now)


def test_elements_enter_the_queue_one_after_the_other_and_end_as_one(
    plant: Plant,
) -> None:
    """Example 15 of the design, small: the array does not stand before another's one booking."""
    lab = a_lab("helix", gpus=0)
    other = an_actor(a_member(lab.project))
    array = arrayed(lab, 8, 4)
    assert (elements(array), stored(array).label) == ([1, 2, 3, 4], array.label)
    assert held(lab) == 8 * PRICE
    plant.round()
    assert elements(array, State.ACTIVE) == [1, 2]
    plant.now += MINUTE
    mine = booked(lab, other, plant.now)
    plant.round()
    mine = fresh(mine)
    with as_system():
        first = Booking.objects.get(array=array, array_index=1)
    assert first.label == f"{array.label}[1]"
    assert mine.planned_starts == first.planned_ends
    plant.later_until(NOW + HOUR + MINUTE)
    plant.later(MINUTE)
    assert fresh(mine).state == State.ACTIVE
    assert elements(array, State.ACTIVE) == [3]
    assert (elements(array, State.ENDED), elements(array)) == ([1, 2], [1, 2, 3, 4, 5, 6])
    assert sound()
    for _ in range(12):
        plant.later(30 * MINUTE)
    assert stored(array).outcome == "completed"
    assert elements(array, State.ENDED) == list(range(1, 9))
    with as_system():
        kinds = BookingEvent.objects.filter(booking__array=array, kind__startswith="array")
        assert list(kinds.values_list("kind", flat=True)) == ["array_started", "array_ended"]
    assert (held(lab), sound()) == (Decimal(0), True)


@pytest.mark.parametrize(
    ("count", "parallel", "ask", "code"),
    [
        (0, None, ONE_HOUR, "bad_array"),
        (10**6, None, ONE_HOUR, "bad_array"),
        (5, 0, ONE_HOUR, "bad_parallel"),
        (5, 1001, ONE_HOUR, "bad_parallel"),
        (5, None, an_ask(starts=NOW + HOUR), "array_fixed"),
        (5, None, an_ask(count=64), "tenant_quota"),
        (10_000, None, an_ask(hours=24), "budget_exceeded"),
    ],
)
def test_an_array_that_can_not_be_is_refused_with_nothing_written(
    lab: Lab, count: int, parallel: int | None, ask: AskDocument, code: str
) -> None:
    before = row_counts()
    with pytest.raises(Refused) as refused, transaction.atomic():
        arrayed(lab, count, parallel, ask=ask)
    assert (refused.value.code, row_counts()) == (code, before)


@pytest.mark.long
def test_of_a_rolling_array_only_open_elements_hold_money_and_the_next_waits_for_it(
    lab: Lab,
) -> None:
    array = arrayed(lab, 1_000, 300, holds_all=False)
    # The budget has 1,000.
    assert len(elements(array)) == 208
    assert stored(array).reasons[0]["rule"] == "R10"
    advanced()
    assert len(elements(array)) == 208
    for index in (1, 2, 3):
        run(array, index, State.ENDED)
    advanced()
    assert (elements(array)[-1], held(lab)) == (211, 208 * PRICE)


def test_elements_wait_for_the_owners_limit_of_gpus_in_the_tier(lab: Lab) -> None:
    with as_system():
        Tier.objects.filter(slug="standard").update(max_open_gpus=3)
    array = arrayed(lab, 5, 5)
    assert elements(array) == [1, 2, 3]
    assert [reason["code"] for reason in stored(array).reasons] == ["too_many_gpus"]
    with pytest.raises(Refused, match="3 GPUs"):
        booked(lab, lab.actor, NOW)
    run(array, 1, State.ENDED)
    advanced()
    assert elements(array) == [1, 2, 3, 4]
    for index in (2, 3):
        run(array, index, State.ENDED)
    advanced()
    assert elements(array) == [1, 2, 3, 4, 5]
    assert stored(array).reasons == []


def test_elements_are_cancelled_one_by_one_in_ranges_and_all(lab: Lab) -> None:
    array = arrayed(lab, 20, 4)
    assert cancelled(lab, array, (3, 3)) == 1
    assert elements(array, State.REQUESTED) == [1, 2, 4, 5]
    assert cancelled(lab, array, (6, 8), (7, 10), (12, 12), (1, 1)) == 7
    assert elements(array, State.REQUESTED) == [2, 4, 5, 11]
    assert cancelled(lab, array, (6, 8)) == 0
    assert held(lab) == 20 * PRICE - 8 * PRICE
    with pytest.raises(Refused, match="1 to 20"):
        cancelled(lab, array, (20, 21))
    assert cancelled(lab, array) == 12
    after = stored(array)
    assert (after.state, after.outcome, held(lab)) == ("ended", "cancelled", Decimal(0))
    assert cancelled(lab, array) == 0


def test_an_array_stops_after_failures_and_gives_the_rest_of_its_money_back(lab: Lab) -> None:
    array = arrayed(lab, 10, 4, stop=2)
    run(array, 1, State.ENDED, "failure")
    advanced()
    assert elements(array) == [1, 2, 3, 4, 5]
    run(array, 2, State.ENDED, "failure")
    run(array, 3, State.ACTIVE)
    advanced()
    assert stored(array).outcome == "failures"
    assert (elements(array, State.CANCELLED), elements(array, State.ACTIVE)) == ([4, 5], [3])
    assert held(lab) == PRICE
    with as_system():
        texts = BookingEvent.objects.filter(booking__array=array, kind="array_failures")
        # The second failure is announced an hour later.
        assert [each.text for each in texts] == [f"Failed elements of the array {array.label}: 1 of 10."]
    run(array, 3, State.ENDED)
    advanced(NOW + HOUR)
    with as_system():
        assert (stored(array).state, texts.all().count()) == ("ended", 2)
    assert held(lab) == Decimal(0)


@pytest.mark.parametrize("verdict", ["approve", "decline"])
def test_one_approval_decides_the_whole_array(lab: Lab, verdict: str) -> None:
    lead = an_actor(a_member(lab.project, Role.LEAD))
    with tenant_tx(lab.tenant_id):
        approval_rule_set(
            actor=an_actor(a_tenant_admin(lab.tenant)),
            terms=ApprovalRuleTerms(name="Costly", steps=[Step("lead")], min_cost=Decimal(100)),
            now=NOW,
        )
    small, array = arrayed(lab, 2), arrayed(lab, 30, 5)
    assert (len(elements(small)), elements(array)) == (2, [1])
    assert (stored(array).state, held(lab)) == ("awaiting_approval", 32 * PRICE)
    advanced()
    assert elements(array) == [1]
    with as_system():
        (approval,) = Approval.objects.all()
    with tenant_tx(lab.tenant_id):
        decision = Decision(verdict, approval.digest, "ok")  # type: ignore[arg-type]
        approval_decide(actor=lead, approval_id=approval.id, decision=decision, now=NOW)
    advanced()
    if verdict == "approve":
        assert elements(array, State.REQUESTED) == [1, 2, 3, 4, 5]
        with as_system():
            hashes = Booking.objects.filter(array=array).values_list("approved_hash", flat=True)
            assert set(hashes) == {approval.digest}
    else:
        assert (stored(array).outcome, elements(array)) == ("rejected", [1])
        assert held(lab) == 2 * PRICE


def test_an_array_ages_as_one_booking(lab: Lab) -> None:
    array = arrayed(lab, 10, 4)
    run(array, 1, State.ACTIVE)
    later = NOW + 30 * HOUR
    advanced(later)
    with as_system():
        rows = Booking.objects.filter(array=array, state=State.REQUESTED)
        assert set(rows.values_list("ranked_at", flat=True)) == {later}
    advanced(later + HOUR)
    with as_system():
        assert set(rows.values_list("ranked_at", flat=True)) == {later}


def test_an_array_stops_when_its_owner_may_no_longer_book_or_its_deadline_passes(
    lab: Lab,
) -> None:
    late = arrayed(lab, 10, 2, ask=an_ask(hours=1, deadline=NOW + 5 * HOUR))
    array = arrayed(lab, 10, 2)
    run(late, 1, State.ENDED)
    advanced(NOW + 4 * HOUR + MINUTE)
    assert (stored(late).outcome, elements(late)) == ("deadline", [1, 2])
    with as_system():
        Membership.objects.filter(user=lab.actor.user_id).update(role=Role.VIEWER)
    run(array, 1, State.ENDED)
    advanced()
    assert (stored(array).outcome, elements(array)) == ("owner_left", [1, 2])
    assert held(lab) == 2 * PRICE


def test_the_database_refuses_an_index_twice_or_without_its_array(lab: Lab) -> None:
    array = arrayed(lab, 3, 3)
    with as_system():
        rows = Booking.objects.filter(array=array)
        for change in ({"array_index": 2}, {"array_index": None}, {"array": None}):
            with pytest.raises(IntegrityError), transaction.atomic():
                rows.filter(array_index=1).update(**change)
        for wrong in ({"parallel": 4}, {"count": 0}, {"state": "ended"}, {"next_index": 5}):
            with pytest.raises(IntegrityError), transaction.atomic():
                BookingArray.objects.filter(id=array.id).update(**wrong)
        assert AuditEntry.objects.filter(action="array.request").count() == 1


def test_a_result_is_reported_from_the_start_until_ten_minutes_after_the_end(lab: Lab) -> None:
    array = arrayed(lab, 2)
    with as_system():
        row = Booking.objects.get(array=array, array_index=1)

    def reported(result: str, minutes: int = 0) -> str:
        with tenant_tx(lab.tenant_id):
            now = NOW + minutes * MINUTE
            return booking_result(actor=lab.actor, booking=row, result=result, now=now).result

    with pytest.raises(Refused) as early:
        reported("success")
    run(array, 1, State.ACTIVE)
    assert (early.value.code, reported("failure")) == ("no_run", "failure")
    run(array, 1, State.ENDED)
    assert reported("success", 9) == "success"
    with pytest.raises(Refused) as late:
        reported("failure", 10)
    assert late.value.code == "result_late"
