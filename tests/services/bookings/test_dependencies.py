"""Bookings that depend on others: planned after their ends, cancelled with their failures."""

from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from allocation.models import Booking
from allocation.queries.bookings import after_parents
from allocation.queries.bookings.after_parents import estimated_end, estimated_starts
from allocation.rules.states import State
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.dependencies import (
    dependencies_add,
    dependencies_advance,
    dependencies_due,
)
from allocation.services.bookings.release import booking_cancel
from allocation.services.snapshot.snapshot import requests_read
from billing.queries import budget_figures
from billing.services import hold_release
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders_allocation import HOUR, NOW, Lab, a_booking_request, a_lab, an_ask
from tests.roles import as_system

pytestmark = pytest.mark.turn

MINUTE = timedelta(minutes=1)


def booked(lab: Lab, *parents: tuple[str, str], starts: datetime | None = None) -> Booking:
    with tenant_tx(lab.tenant_id):
        request = a_booking_request(lab.project, an_ask(hours=1, starts=starts))
        booking = booking_request(actor=lab.actor, request=request, now=NOW)
        if parents:
            dependencies_add(lab.actor, booking, parents)
    return booking


def ended(booking: Booking, state: State = State.ENDED, result: str = "") -> None:
    with as_system():
        path = [State.QUEUED, State.SCHEDULED, State.STARTING, State.ACTIVE, State.ENDING, state]
        for each in path:
            Booking.objects.filter(id=booking.id).update(state=each)
        hold_release(tenant_id=booking.tenant_id, reference=booking.id, now=NOW)
        Booking.objects.filter(id=booking.id).update(charged=0, ended_at=NOW, result=result)


def advanced(booking: Booking, now: datetime = NOW) -> tuple[str, bool]:
    """Its state after a step, and whether the solver sees it."""
    with as_system():
        dependencies_advance(now)
        booking = Booking.objects.get(id=booking.id)
        seen = str(booking.id) in {row.booking for row in requests_read(now)}
    return booking.state, seen


@pytest.mark.parametrize(
    ("needs", "state", "result", "minutes", "answer"),
    [
        ("end", State.ENDED, "", 0, ("queued", True)),
        ("end", State.ENDED, "failure", 0, ("queued", True)),
        ("end", State.FAILED, "", 0, ("cancelled", False)),
        ("success", State.ENDED, "success", 0, ("queued", True)),
        ("success", State.ENDED, "failure", 0, ("cancelled", False)),
        ("success", State.ENDED, "", 9, ("queued", False)),
        ("success", State.ENDED, "", 10, ("cancelled", False)),
    ],
)
def test_a_booking_is_planned_or_cancelled_by_what_its_parents_did(
    lab: Lab, needs: str, state: State, result: str, minutes: int, answer: tuple[str, bool]
) -> None:
    parent, other = booked(lab), booked(lab)
    child = booked(lab, (parent.label, needs), (other.label, "end"))
    assert advanced(child) == ("queued", False)
    ended(other)
    assert advanced(child) == ("queued", False)
    ended(parent, state, result)
    now = NOW + minutes * MINUTE
    with as_system():
        # The other parent is over, so a turn is due until something follows from both.
        assert dependencies_due(now).count() == (1 if minutes == 9 else 2)
    assert advanced(child, now) == answer
    with as_system():
        child = Booking.objects.get(id=child.id)
        figures = budget_figures(project_id=lab.project.id, at=NOW)
    assert figures is not None
    if answer[0] == "cancelled":
        assert (child.outcome, child.charged, figures.held) == (
            "dependency",
            Decimal(0),
            Decimal(0),
        )
        assert child.reasons[0]["rule"] == "R99"
    elif answer[1]:
        assert child.ranked_at == NOW


def test_a_bad_dependency_is_refused(lab: Lab) -> None:
    parent, gone, foreign = booked(lab), booked(lab), booked(a_lab("nimbus"))
    with tenant_tx(lab.tenant_id):
        booking_cancel(actor=lab.actor, booking=gone, now=NOW)
    many = tuple((f"BK-{n}", "end") for n in range(21))
    for parents, starts, code in (
        (((f"bk_{foreign.id.hex}", "end"),), None, "not_found"),
        ((("BK-999", "end"),), None, "not_found"),
        (((parent.label, "end"), (parent.label, "success")), None, "depends_twice"),
        (((parent.label, "end"),), NOW + HOUR, "depends_fixed"),
        (((gone.label, "end"),), None, "parent_failed"),
        (many, None, "too_many_parents"),
    ):
        with pytest.raises(Refused) as refused:
            booked(lab, *parents, starts=starts)
        assert refused.value.code == code


def test_the_estimated_start_follows_planned_ends_through_chains(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, planned, early = booked(lab), booked(lab), booked(lab)
    ended(over)
    child = booked(lab, (planned.label, "end"), (early.label, "end"))
    last = booked(lab, (child.label, "end"), (planned.label, "success"))

    def starts() -> list[datetime | None]:
        with as_system():
            found = estimated_starts(Booking.objects.all())
        assert found.keys() <= {child.id, last.id}
        return [found.get(child.id), found.get(last.id)]

    with as_system():
        Booking.objects.filter(id=early.id).update(planned_ends=NOW + HOUR)
    assert starts() == [None, None]
    with as_system():
        Booking.objects.filter(id=planned.id).update(planned_ends=NOW + 3 * HOUR)
    assert starts() == [NOW + 3 * HOUR, NOW + 4 * HOUR]
    with as_system():
        Booking.objects.filter(id=child.id).update(not_before=NOW + 5 * HOUR)
        over, child = (Booking.objects.get(id=each.id) for each in (over, child))
        assert estimated_end([over]) == NOW
        assert estimated_end([over, child]) == NOW + 6 * HOUR
    assert starts() == [NOW + 5 * HOUR, NOW + 6 * HOUR]
    # A start that no plan proves is no planned end.
    with as_system():
        unproven = Booking.objects.filter(id=planned.id)
        unproven.update(reasons=[{"code": "none_in_service", "numbers": {}}])
    assert starts() == [None, None]
    with as_system():
        unproven.update(reasons=[])
        # Without its own parents a chain that is too deep has no end.
        monkeypatch.setattr(after_parents, "DEEPEST", 1)
        assert estimated_starts([Booking.objects.get(id=last.id)]) == {}
