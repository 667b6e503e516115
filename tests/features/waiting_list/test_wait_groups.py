"""Entries of the waiting list that exclude each other: one gets its place, the others end."""

from dataclasses import replace
from datetime import datetime
from decimal import Decimal

import pytest

from allocation.features.waiting_list.groups import ExcludeTerms, entries_exclude
from allocation.features.waiting_list.models import WaitEntry
from allocation.models import Booking
from allocation.services.decide.cycle import is_anything_due
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders_allocation import HOUR, NOW, Lab, a_lab
from tests.features.waiting_list.test_wait_list import (
    SECOND,
    TUESDAY,
    all_is_well,
    booked,
    cancelled,
    cycled,
    held,
    kinds,
    now_of,
    states,
)
from tests.roles import as_system
from tests.servers.servers import Servers

pytestmark = pytest.mark.turn


@pytest.fixture
def lab(real_db: Servers) -> Lab:
    """One GPU."""
    return a_lab("helix")


def excluded(lab: Lab, *bookings: Booking, now: datetime = NOW) -> None:
    with as_system():
        rows = WaitEntry.objects.filter(booking__in=[each.id for each in bookings])
        ids = list(rows.values_list("id", flat=True))
    with tenant_tx(lab.tenant_id):
        entries_exclude(actor=lab.actor, terms=ExcludeTerms(entries=ids), now=now)


def test_the_first_that_gets_a_place_ends_the_others_even_in_one_turn(lab: Lab) -> None:
    """Both windows are free in the same turn: the database lets one of them be met."""
    first, second = booked(lab, waitlist=""), booked(lab, TUESDAY + 4 * HOUR, waitlist="")
    cycled(NOW)
    one, other = booked(lab), booked(lab, TUESDAY + 4 * HOUR)
    alone = booked(lab, TUESDAY + HOUR)
    cycled(NOW + SECOND)
    assert states(one, other, alone) == ["waitlisted"] * 3
    excluded(lab, one, other)
    before = kinds(one)
    excluded(lab, one, other)
    assert kinds(one) == before
    cancelled(lab, first, NOW + HOUR)
    cancelled(lab, second, NOW + HOUR)
    cycled(NOW + HOUR)
    assert sorted(states(one, other)) == ["scheduled", "waitlisted"]
    with as_system():
        assert is_anything_due(NOW + HOUR)
    cycled(NOW + HOUR + SECOND)
    assert sorted(states(one, other)) == ["cancelled", "scheduled"]
    lost = one if now_of(one).state == "cancelled" else other
    assert (now_of(lost).outcome, now_of(lost).charged) == ("other_met", Decimal(0))
    assert (
        held(lab) == sum(now_of(each).hold_amount for each in (one, other, alone)) - now_of(lost).hold_amount
    )
    with pytest.raises(Refused) as refused:
        excluded(lab, one, other)
    assert refused.value.code == "entry_over"
    all_is_well()


def test_only_open_entries_of_one_person_exclude_each_other_and_one_alone_none(lab: Lab) -> None:
    booked(lab, waitlist="")
    cycled(NOW)
    one, other = booked(lab), booked(lab, TUESDAY, hours=1)
    cycled(NOW + SECOND)
    excluded(lab, one, other)
    excluded(lab, one)
    with as_system():
        assert WaitEntry.objects.get(booking=one).any_of is None
        entry = WaitEntry.objects.get(booking=one).id
    other_lab = replace(lab, actor=a_lab("nimbus").actor)
    with pytest.raises(Refused) as refused, tenant_tx(lab.tenant_id):
        entries_exclude(actor=other_lab.actor, terms=ExcludeTerms(entries=[entry]), now=NOW)
    assert refused.value.code == "not_found"
    with pytest.raises(Refused) as refused, tenant_tx(lab.tenant_id):
        entries_exclude(actor=lab.actor, terms=ExcludeTerms(entries=[entry, entry]), now=NOW)
    assert refused.value.code == "entry_twice"
