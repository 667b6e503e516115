"""Changes of a series: one date, the following ones or all, together or in part."""

from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from allocation.features.approval_rules.services import ApprovalRuleTerms
from allocation.models import Approval, Booking, BookingChange, Series
from allocation.rules.approvals import Step
from allocation.rules.recurrence import recurrence_read
from allocation.rules.states import State
from allocation.services.bookings.approval.decisions import Decision, approval_decide
from allocation.services.bookings.change.series import (
    DateAnswer,
    Scope,
    SeriesPatch,
    series_patch,
    series_tag,
)
from allocation.services.bookings.change.withdrawal import change_withdraw
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel
from allocation.services.bookings.series import Repeat, series_request
from tenants.access import Actor
from tenants.models import Role
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders import a_member, a_tenant_admin, an_actor
from tests.builders_allocation import HOUR, NOW, Lab, a_booking_request, a_lab, an_ask
from tests.roles import as_system
from tests.servers.servers import Servers
from tests.services.bookings.test_approvals import ruled
from tests.services.bookings.test_changes import SOON, fresh, held, patched, turn

pytestmark = pytest.mark.turn

NINE = datetime(2026, 11, 18, 8, tzinfo=UTC)  # 09:00 in Berlin, the day after NOW
DAY = timedelta(days=1)
LATER = SOON + timedelta(seconds=30)


@pytest.fixture
def lab(real_db: Servers) -> Lab:
    return a_lab("helix", gpus=4)


@pytest.fixture
def series(lab: Lab) -> Series:
    """Three dates of two GPUs, from 9 to 11, each scheduled."""
    made = a_series(lab)
    turn(NOW)
    return made


def a_series(lab: Lab) -> Series:
    """Three dates of two GPUs, from 9 to 11, before any turn."""
    request = replace(
        a_booking_request(lab.project, an_ask(2, hours=2, starts=NINE)),
        zone="Europe/Berlin",
        name="runs",
    )
    repeat = Repeat(recurrence_read("FREQ=DAILY;COUNT=3"))
    with tenant_tx(lab.tenant_id):
        return series_request(actor=lab.actor, request=request, repeat=repeat, now=NOW)


def dates(series: Series) -> list[Booking]:
    with as_system():
        return list(Booking.objects.filter(series=series).order_by("starts"))


def changed(
    lab: Lab,
    series: Series,
    scope: str,
    date: Booking | None = None,
    now: datetime = SOON,
    **parts: Any,  # noqa: ANN401  fields of a SeriesPatch
) -> list[str]:
    """The outcome of each date."""
    with tenant_tx(lab.tenant_id):
        answers: list[DateAnswer] = series_patch(
            actor=lab.actor,
            series=series,
            date=date,
            patch=SeriesPatch(Scope(scope), **parts),
            tag=series_tag(series),
            now=now,
        )
    return [each.outcome for each in answers]


def windows(rows: list[Booking]) -> list[tuple[int, int, int]]:
    """Day after the first, local hour of the start, and GPUs of each date that is scheduled."""
    return [
        (
            (row.starts - NINE).days if row.starts else -1,
            row.starts.hour + 1 if row.starts else 0,
            row.ask["count"],
        )
        for row in rows
        if row.state == "scheduled"
    ]


def in_the_way(lab: Lab, day: int) -> Booking:
    """Somebody's firm window on all but two GPUs, from 12 to 14."""
    ask = an_ask(2, hours=2, starts=NINE + day * DAY + 3 * HOUR)
    with tenant_tx(lab.tenant_id):
        return booking_request(actor=lab.actor, request=a_booking_request(lab.project, ask), now=NOW)


def test_this_and_the_following_dates_become_a_series_of_their_own(lab: Lab, series: Series) -> None:
    first, second, third = dates(series)
    outcomes = changed(lab, series, "following", second, at=time(12), count=3)
    assert outcomes == ["asked", "asked"]
    # Nothing is cut before it is granted.
    assert [each.id for each in dates(series)] == [first.id, second.id, third.id]
    turn(LATER)
    with as_system():
        old, new = Series.objects.order_by("first")
    assert (old.rule, new.rule) == ("FREQ=DAILY;UNTIL=20261118", "FREQ=DAILY;COUNT=2")
    assert (windows(dates(old)), windows(dates(new))) == ([(0, 9, 2)], [(1, 12, 3), (2, 12, 3)])
    assert (new.name, new.first) == ("runs", NINE + DAY + 3 * HOUR)
    assert [held(each) for each in (first, second, third)] == [
        Decimal("19.20"),
        Decimal("28.80"),
        Decimal("28.80"),
    ]


@pytest.mark.parametrize("partial", [False, True])
def test_all_dates_change_or_none_does(lab: Lab, series: Series, partial: bool) -> None:  # noqa: FBT001
    in_the_way(lab, 1)
    turn(NOW)
    before = [(each.hold_amount, each.ranked_at) for each in dates(series)]
    assert changed(lab, series, "all", at=time(12), count=3, is_partial=partial) == ["asked"] * 3
    turn(LATER)
    rows = dates(series)
    moved = [(0, 12, 3), (1, 9, 2), (2, 12, 3)]
    assert windows(rows) == (moved if partial else [(day, 9, 2) for day in range(3)])
    with as_system():
        changes = BookingChange.objects.order_by("booking__starts")
        codes = [[why["code"] for why in each.reasons][:1] for each in changes]
        series.refresh_from_db()
    if partial:
        assert codes == [[], ["change_no_room"], []]
        assert series.first == NINE + 3 * HOUR
        return
    assert codes == [["series_conflict"], ["change_no_room"], ["series_conflict"]]
    assert [(each.hold_amount, each.ranked_at) for each in rows] == before
    assert [held(each) for each in rows] == [Decimal("19.20")] * 3


@pytest.mark.parametrize("partial", [False, True])
def test_dates_wait_for_room_together_or_each_on_its_own(
    lab: Lab,
    series: Series,
    partial: bool,  # noqa: FBT001
) -> None:
    other = in_the_way(lab, 1)
    turn(NOW)
    changed(lab, series, "all", at=time(12), count=3, is_partial=partial, waits=True)
    turn(SOON)
    first, second, third = dates(series)
    moved = [(0, 12, 3), (1, 9, 2), (2, 12, 3)]
    assert windows([first, second, third]) == (moved if partial else [(d, 9, 2) for d in range(3)])
    with as_system():
        open_ones = BookingChange.objects.filter(state="asked")
        waiting = {(each.booking_id, each.keep_trying_until) for each in open_ones}
        assert {each.is_waiting for each in open_ones} == {True}
    until = NINE + DAY + 3 * HOUR if partial else NINE
    assert waiting == {(row.id, until) for row in ([second] if partial else dates(series))}
    if not partial:
        with tenant_tx(lab.tenant_id):
            change_withdraw(actor=lab.actor, booking=first, now=SOON)
        with as_system():
            assert not BookingChange.objects.filter(state="asked").exists()
        changed(lab, series, "all", at=time(12), count=3, waits=True)
        turn(SOON)
    with tenant_tx(lab.tenant_id):
        booking_cancel(actor=lab.actor, booking=other, now=LATER)
    turn(LATER)
    assert windows(dates(series)) == [(day, 12, 3) for day in range(3)]


def test_dates_that_wait_together_stop_waiting_when_the_first_begins(lab: Lab, series: Series) -> None:
    in_the_way(lab, 1)
    turn(NOW)
    changed(lab, series, "all", at=time(12), count=3, waits=True)
    turn(SOON)
    turn(NINE)
    with as_system():
        assert set(BookingChange.objects.values_list("state", flat=True)) == {"kept"}
    assert [each.ask["count"] for each in dates(series)] == [2] * 3


@pytest.mark.long
def test_less_is_given_up_at_once_and_dates_of_their_own_stay_unless_overwritten(
    lab: Lab, series: Series
) -> None:
    first, second, third = dates(series)
    patched(lab, second, duration=5400)
    assert changed(lab, series, "all", duration=3600) == ["changed", "own", "changed"]
    assert [each.duration_seconds for each in dates(series)] == [3600, 5400, 3600]
    assert changed(lab, series, "this", third, count=1, now=LATER) == ["changed"]
    outcomes = changed(
        lab, series, "following", first, duration=2400, overwrite=True, now=LATER, name="short"
    )
    assert outcomes == ["changed"] * 3
    rows = dates(series)
    assert [(each.duration_seconds, each.ask["count"], each.name) for each in rows] == [
        (2400, 2, "short"),
        (2400, 2, "short"),
        (2400, 1, "short"),
    ]


def test_a_series_that_cannot_change_loses_nothing(lab: Lab, series: Series) -> None:
    first, second, _ = dates(series)

    def refusal(scope: str, date: Booking | None = None, **parts: Any) -> str:  # noqa: ANN401
        with pytest.raises(Refused) as refused:
            changed(lab, series, scope, date, **parts)
        return refused.value.code

    assert refusal("following", duration=3600) == "date_needed"
    assert refusal("all", count=0) == "count_out_of_bounds"
    assert refusal("all", duration=25 * 3600) == "series_overlap"
    assert refusal("all", tier="gold") == "unknown_tier"
    with tenant_tx(lab.tenant_id), pytest.raises(Refused) as refused:
        series_patch(
            actor=lab.actor,
            series=series,
            date=None,
            patch=SeriesPatch(Scope.ALL, count=1),
            tag="moved",
            now=SOON,
        )
    assert refused.value.code == "revision_moved"
    turn(NINE)
    assert fresh(first).state == "starting"
    assert refusal("following", first, duration=3600, now=NINE) == "date_begun"
    assert changed(lab, series, "all", duration=3600, now=NINE) == ["changed"] * 2
    assert [each.duration_seconds for each in dates(series)] == [7200, 3600, 3600]
    assert fresh(second).revision == 2


@pytest.mark.long
def test_all_or_none_asks_for_one_approval_and_in_part_each_date_asks(lab: Lab, series: Series) -> None:
    admin = an_actor(a_tenant_admin(lab.tenant))
    ruled(admin)
    assert changed(lab, series, "all", count=4, duration=6 * 3600) == ["asked"] * 3
    with as_system():
        approvals = list(Approval.objects.filter(state="open"))
        assert {each.change.state for each in approvals if each.change} == {"awaiting_approval"}
    assert len(approvals) == 3
    decision = Decision("approve", approvals[1].digest)
    with tenant_tx(lab.tenant_id):
        approval_decide(actor=admin, approval_id=approvals[1].id, decision=decision, now=SOON)
    with as_system():
        assert set(Approval.objects.values_list("state", flat=True)) == {"approved"}
        assert set(BookingChange.objects.values_list("state", flat=True)) == {"asked"}
    assert changed(lab, series, "all", count=5, duration=6 * 3600, is_partial=True) == ["asked"] * 3
    with as_system():
        states = set(BookingChange.objects.values_list("state", flat=True))
    assert states == {"awaiting_approval", "replaced"}


@pytest.mark.long
def test_a_series_that_waits_for_its_approval_keeps_it_if_it_shrinks_and_asks_anew_if_it_grows(
    lab: Lab,
) -> None:
    admin = an_actor(a_tenant_admin(lab.tenant))
    ruled(admin, ApprovalRuleTerms(name="All", steps=(Step("lead"), Step("admin")), min_gpus=1))
    lead = an_actor(a_member(lab.project, Role.LEAD))
    series = a_series(lab)
    first, second, _ = dates(series)

    def opened() -> dict[UUID, Approval]:
        with as_system():
            return {each.booking_id: each for each in Approval.objects.filter(state="open")}

    def decided(actor: Actor, digest: str) -> None:
        with tenant_tx(lab.tenant_id):
            approval_decide(
                actor=actor,
                approval_id=opened()[first.id].id,
                decision=Decision("approve", digest),
                now=SOON,
            )

    asked = opened()
    decided(lead, asked[first.id].digest)
    assert changed(lab, series, "this", second, duration=3600) == ["changed"]
    kept = opened()
    assert {each.id for each in kept.values()} == {each.id for each in asked.values()}
    assert kept[second.id].covers == [asked[second.id].digest]
    assert kept[second.id].step == 2
    assert fresh(second).state == State.AWAITING_APPROVAL

    assert changed(lab, series, "this", second, count=3) == ["changed"]
    anew = opened()
    assert len(anew) == 3
    assert {each.step for each in anew.values()} == {1}
    with pytest.raises(Refused) as refused:
        decided(lead, asked[first.id].digest)
    assert refused.value.code == "approval_changed"
    decided(lead, anew[first.id].digest)
    decided(admin, anew[first.id].digest)
    assert {fresh(each).state for each in dates(series)} == {State.REQUESTED}


@pytest.mark.parametrize(("keeps_end", "hours"), [(True, [3, 3, 3]), (False, [3, 4, 3])])
def test_other_times_of_the_day_keep_the_end_or_the_length(
    real_db: Servers, *, keeps_end: bool, hours: list[int]
) -> None:
    """Clocks go back in Berlin in the second night, which is an hour longer."""
    before = datetime(2026, 10, 23, 10, tzinfo=UTC)
    lab = a_lab("helix", now=before)
    ask = an_ask(hours=3, starts=datetime(2026, 10, 23, 23, tzinfo=UTC))
    request = replace(a_booking_request(lab.project, ask), zone="Europe/Berlin")
    repeat = Repeat(recurrence_read("FREQ=DAILY;COUNT=3"), keeps_end=True)
    with tenant_tx(lab.tenant_id):
        series = series_request(actor=lab.actor, request=request, repeat=repeat, now=before)
    turn(before)
    assert [each.duration_seconds / 3600 for each in dates(series)] == [3, 4, 3]
    with as_system():
        Series.objects.update(keeps_end=keeps_end)
        series.refresh_from_db()
    patch = SeriesPatch(Scope.ALL, at=time(12))
    with tenant_tx(lab.tenant_id):
        series_patch(actor=lab.actor, series=series, date=None, patch=patch, tag=None, now=before)
    turn(before + timedelta(minutes=1))
    assert [each.duration_seconds / 3600 for each in dates(series)] == hours


def test_a_length_takes_the_place_of_an_end(real_db: Servers, lab: Lab) -> None:
    series = a_series(lab)
    with as_system():
        Series.objects.update(keeps_end=True)
    turn(NOW)
    with tenant_tx(lab.tenant_id):
        series.refresh_from_db()
        patch = SeriesPatch(Scope.ALL, duration=3 * 3600)
        series_patch(actor=lab.actor, series=series, date=None, patch=patch, tag=None, now=SOON)
    with as_system():
        assert not Series.objects.get().keeps_end
