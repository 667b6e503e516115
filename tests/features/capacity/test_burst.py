"""Bookings that may burst: in words and documents, in quotes, and with a machine of their own."""

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from allocation.errors import AskError
from allocation.features.capacity.burst import burst_advice
from allocation.features.capacity.models import CapacityPlan
from allocation.models import Booking
from allocation.points import Quoted
from allocation.rules.ask import AskDocument, parse_ask
from allocation.rules.ask.line.text import document_text
from tests.builders_allocation import HOUR, NOW, Lab, an_ask
from tests.features.capacity.builders import FakeCloud, joined, machines, providers_file, states, turned
from tests.features.capacity.test_turns import queued
from tests.roles import as_owner, as_system
from tests.rules.ask_corpus import SITE

BERLIN = ZoneInfo("Europe/Berlin")
MINUTE = timedelta(minutes=1)


@pytest.fixture
def cloud(settings: Any, tmp_path: Path) -> FakeCloud:  # noqa: ANN401 (pytest-django's)
    providers_file(settings, tmp_path)
    return FakeCloud()


def bursting(lab: Lab, most: str, *, hours: float = 0.5) -> Booking:
    booking = queued(lab, hours=hours)
    with as_owner():
        ask = AskDocument.from_json(booking.ask)
        changed = replace(ask, most_cost=Decimal(most)).to_json()
        Booking.objects.filter(id=booking.id).update(ask=changed)
    return booking


def plans() -> list[CapacityPlan]:
    with as_system():
        return list(CapacityPlan.objects.select_related("booking"))


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("2 h100 6h may burst up to EUR 60", "60"),
        ("may burst up to 60.50 eur 2 h100 6h", "60.50"),
        ("2 h100 6h, can burst for at most €12", "12"),
    ],
)
def test_the_words_say_what_a_machine_may_cost(text: str, most: str) -> None:
    parsed = parse_ask(text, catalogue=SITE, now=NOW, zone=BERLIN)
    assert (parsed.problems, parsed.missing, parsed.most_cost) == ((), None, Decimal(most))
    ask = parsed.document()
    assert (ask.count, ask.duration, ask.may_burst) == (2, 6 * 3_600, True)
    again = parse_ask(document_text(ask, BERLIN), catalogue=SITE, now=NOW, zone=BERLIN)
    assert again.document() == ask


def test_a_document_has_both_or_none() -> None:
    plain = an_ask().to_json()
    ask = AskDocument.from_json({**plain, "may_burst": True, "most_cost": "60"})
    assert (ask.most_cost, ask.may_burst) == (Decimal(60), True)
    assert AskDocument.from_json(ask.to_json()) == ask
    assert "may_burst" not in AskDocument.from_json({**plain, "may_burst": False}).to_json()
    for wrong in (
        {"may_burst": True},
        {"most_cost": "60"},
        {"may_burst": True, "most_cost": "-1"},
        {"may_burst": True, "most_cost": "0"},
        {"may_burst": True, "most_cost": 1.5},
        {"may_burst": 1, "most_cost": "60"},
    ):
        with pytest.raises(AskError):
            AskDocument.from_json({**plain, **wrong})


@pytest.mark.django_db
def test_a_quote_says_what_a_machine_costs_where_own_gpus_are_late(cloud: FakeCloud) -> None:
    def advice(starts: datetime, **changes: Any) -> list[str]:  # noqa: ANN401 (of any field)
        ask = replace(an_ask(2), **changes)
        quoted = Quoted(None, ask, "standard", "", "Europe/Berlin", starts, 3_600)
        found = list(burst_advice(quoted, NOW))
        assert [each.ask for each in found] == [replace(ask, most_cost=Decimal(14)) for _ in found]
        return [each.sentence for each in found]

    (said,) = advice(NOW + 20 * HOUR)
    assert said.endswith("A rented machine: in 1 min, for €14.00 at most.")
    assert advice(NOW + MINUTE) == []
    assert advice(NOW + 20 * HOUR, most_cost=Decimal(5)) == []
    assert advice(NOW + 20 * HOUR, classes=("b200",)) == []


def test_a_booking_that_may_burst_gets_a_machine_of_its_own(cloud: FakeCloud, lab: Lab) -> None:
    other, booking = queued(lab, hours=0.5), bursting(lab, "30")
    turned(cloud, NOW)
    (plan,) = plans()
    assert (plan.state, plan.source, plan.booking) == ("active", "person", booking)
    (machine,) = machines()
    joined(cloud, machine, NOW + MINUTE)
    turned(cloud, NOW + MINUTE)
    assert states() == ["ready"]
    with as_system():
        assert Booking.objects.get(id=booking.id).pool == plan.pool
        assert Booking.objects.get(id=other.id).pool == ""


def test_a_machine_that_costs_more_is_not_rented_and_the_plan_says_why(cloud: FakeCloud, lab: Lab) -> None:
    bursting(lab, "11")
    for _ in range(2):
        turned(cloud, NOW)
    (plan,) = plans()
    assert (plan.state, states()) == ("refused", [])
    assert plan.note == "A machine for it costs €12.00, which is more than it may cost."


def test_a_booking_that_starts_soon_rents_nothing(cloud: FakeCloud, lab: Lab) -> None:
    booking = bursting(lab, "30")
    with as_owner():
        Booking.objects.filter(id=booking.id).update(
            planned_starts=NOW + MINUTE, announced_from=NOW + MINUTE, announced_until=NOW + MINUTE
        )
    turned(cloud, NOW)
    assert plans() == []
