"""Changes of bookings on the waiting list, and entries that are woken."""

from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from allocation.features.waiting_list.entries import entry_wake
from allocation.features.waiting_list.models import WaitEntry
from allocation.models import Booking
from allocation.services.bookings.change.changes import Patch, booking_patch
from allocation.services.bookings.checks.terms import target_of
from allocation.services.decide.invariants import invariants_check
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders_allocation import HOUR, NOW, Lab, a_lab
from tests.features.waiting_list.test_wait_list import (
    SECOND,
    TUESDAY,
    booked,
    cancelled,
    cycled,
    held,
    now_of,
    states,
)
from tests.roles import as_system
from tests.servers.servers import Servers

PRICE = Decimal("4.80")


@pytest.fixture
def lab(real_db: Servers) -> Lab:
    """One GPU."""
    return a_lab("helix")


@pytest.fixture
def first(lab: Lab) -> Booking:
    """Somebody has it on Tuesday for six hours."""
    return booked(lab, hours=6, waitlist="")


def waiting(lab: Lab, mode: str = "auto") -> Booking:
    made = booked(lab, waitlist=mode)
    cycled(NOW)
    assert states(made) == ["waitlisted"]
    return made


def changed(lab: Lab, booking: Booking, now: datetime = NOW + SECOND, **parts: Any) -> Booking:  # noqa: ANN401
    ask = replace(target_of(now_of(booking)).ask, **parts)
    with tenant_tx(lab.tenant_id):
        booking_patch(actor=lab.actor, booking=booking, patch=Patch(ask=ask), revision=1, now=now)
    return now_of(booking)


def entry_of(booking: Booking) -> WaitEntry:
    with as_system():
        return WaitEntry.objects.get(booking=booking)


@pytest.mark.parametrize("mode", ["auto", "offer"])
def test_what_is_waited_for_is_replaced_with_its_windows_and_its_money(
    lab: Lab, first: Booking, mode: str
) -> None:
    cycled(NOW)
    mine = waiting(lab, mode)
    before = held(lab)
    after = changed(lab, mine, starts=TUESDAY + 3 * HOUR, duration=3 * 3600)
    entry, at = entry_of(mine), TUESDAY + 3 * HOUR
    assert (after.state, after.revision, after.ranked_at) == ("waitlisted", 2, NOW + SECOND)
    assert entry.times == [(at, at + 3 * HOUR)]
    assert (entry.until, entry.cost) == (at, 3 * PRICE)
    is_held = mode == "auto"
    assert held(lab) - before == (PRICE if is_held else 0)
    assert after.hold_amount == (3 * PRICE if is_held else 0)
    cancelled(lab, first, NOW + 2 * SECOND)
    cycled(NOW + 3 * SECOND)
    assert states(mine) == ["scheduled" if is_held else "offered"]
    assert now_of(mine).planned_starts == at
    with as_system():
        assert invariants_check() == []


def test_less_keeps_the_rank_and_an_impossible_request_changes_nothing(lab: Lab, first: Booking) -> None:
    cycled(NOW)
    mine = waiting(lab)
    after = changed(lab, mine, duration=3600)
    assert (after.ranked_at, after.hold_amount) == (None, PRICE)
    assert entry_of(mine).times == [(TUESDAY, TUESDAY + HOUR)]
    other = waiting(lab)
    with pytest.raises(Refused) as refused:
        changed(lab, other, starts=None)
    assert refused.value.code == "wait_needs_window"
    assert (now_of(other).revision, entry_of(other).cost) == (1, 2 * PRICE)


@pytest.mark.long
def test_a_dormant_entry_is_woken_once_and_a_closed_one_not(lab: Lab, first: Booking) -> None:
    cycled(NOW)
    mine = waiting(lab, "offer")
    entry = entry_of(mine)
    with as_system():
        WaitEntry.objects.filter(id=entry.id).update(expired_count=2)
    cancelled(lab, first, NOW)
    cycled(NOW + SECOND)
    assert states(mine) == ["waitlisted"]
    for _ in range(2):
        with tenant_tx(lab.tenant_id):
            entry_wake(actor=lab.actor, entry_id=entry.id, now=NOW + SECOND)
    assert now_of(mine).version == 3
    cycled(NOW + 2 * SECOND)
    assert states(mine) == ["offered"]
    with pytest.raises(Refused) as refused:
        changed(lab, mine, duration=3600)
    assert refused.value.code == "offer_open"
    cancelled(lab, mine, NOW + 3 * SECOND)
    with tenant_tx(lab.tenant_id), pytest.raises(Refused) as refused:
        entry_wake(actor=lab.actor, entry_id=entry.id, now=NOW + 4 * SECOND)
    assert refused.value.code == "entry_over"
