"""Bookings of several GPU classes: quoted, held, run, charged and shown as one."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from allocation.models import Booking, Pause
from allocation.queries.bookings.money.statements import StatementOf, statement_lines
from allocation.rules.ask import AskDocument, AskGroup
from allocation.services.bookings.change.changes import Patch, booking_patch
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_release
from allocation.services.quotes.quotes import quote_make
from billing.rules import month_of
from tenants.models import Tier
from tenants.platform.errors import Refused
from tests.builders import a_gpu_class, a_quota, a_tier
from tests.builders_allocation import Lab, a_booking_request, a_lab, an_ask
from tests.prices import price_book_publish
from tests.roles import as_system
from tests.services.paused import all_is_well
from tests.services.plant import Plant, fresh, rows_of

pytestmark = pytest.mark.turn

HOUR = timedelta(hours=1)
H100, L40S = Decimal(3), Decimal(1)


def a_mixed_ask(h100: int = 1, l40s: int = 2, hours: float = 2) -> AskDocument:
    return replace(an_ask(h100, hours=hours), groups=(AskGroup("l40s", l40s),))


@pytest.fixture
def lab(mixed_plant: Plant) -> Lab:
    """A lab with a guarantee and a price of both classes."""
    now = mixed_plant.now
    with as_system():
        a_tier("flex", priority=40, pausable=True)
        Tier.objects.filter(slug="flex").update(protected_seconds=0)
        each = {"h100": H100, "l40s": L40S}
        prices = {(name, tier): each[name] for name in each for tier in ("standard", "flex")}
        price_book_publish(actor_id=None, valid_from=now, prices=prices, now=now)
    lab = a_lab("helix", gpus=0)
    a_quota(lab.tenant, a_gpu_class("l40s"), guaranteed=8)
    return lab


def booked(plant: Plant, lab: Lab, ask: AskDocument) -> Booking:
    with as_system():
        return booking_request(actor=lab.actor, request=a_booking_request(lab.project, ask), now=plant.now)


def classes_of(booking: Booking) -> list[str]:
    with as_system():
        rows = booking.allocations.exclude(state="superseded").select_related("model")
        return sorted(row.model.gpu_class_id for row in rows)


def test_one_price_and_one_run_on_all_classes(mixed_plant: Plant, lab: Lab) -> None:
    plant = mixed_plant
    with as_system():
        quote = quote_make(
            actor=lab.actor, request=a_booking_request(lab.project, a_mixed_ask()), now=plant.now
        )
    option = quote.options[0]
    assert (option.price, option.request) == (2 * H100 + 4 * L40S, "1 h100 + 2 l40s 2h")
    lines = [(each.gpu_class, each.count, each.price) for each in option.lines]
    assert lines == [("h100", 1, 2 * H100), ("l40s", 2, 4 * L40S)]
    booking = booked(plant, lab, a_mixed_ask())
    assert (booking.hold_amount, booking.price_per_hour) == (Decimal(10), Decimal(5))
    plant.round()
    assert fresh(booking).state == "active"
    assert classes_of(booking) == ["h100", "l40s", "l40s"]
    env = next(plant.folder.glob("bookings/*/env")).read_text()
    (visible,) = (line for line in env.splitlines() if "CUDA_VISIBLE_DEVICES" in line)
    of_class = {gpu.uuid: gpu.model.name for gpu in plant.hardware.gpus}
    names = sorted(of_class[uuid] for uuid in visible.partition("=")[2].split(","))
    assert names == ["NVIDIA H100 80GB HBM3", "NVIDIA L40S", "NVIDIA L40S"]
    assert all_is_well()
    plant.later(HOUR)
    with as_system():
        booking_release(actor=lab.actor, booking=fresh(booking), now=plant.now)
    plant.round()
    over = fresh(booking)
    assert (over.state, over.charged) == ("ended", Decimal(5))
    with as_system():
        (line,) = statement_lines(StatementOf(over.tenant_id, month_of(plant.now.date())))
    assert line.amount == Decimal(5)
    assert all_is_well()


def test_it_waits_as_a_whole_until_every_group_has_room(mixed_plant: Plant, lab: Lab) -> None:
    plant = mixed_plant
    alone = booked(plant, lab, an_ask(2, hours=1, classes=("l40s",)))
    plant.round()
    booking = booked(plant, lab, a_mixed_ask())
    plant.round()
    waits = fresh(booking)
    assert (fresh(alone).state, waits.state) == ("active", "queued")
    assert waits.planned_starts == fresh(alone).planned_ends
    assert rows_of(waits) == []
    assert any("l40s" in str(each) for each in waits.reasons)
    assert not any("h100" in str(each) for each in waits.reasons)
    plant.later(HOUR + timedelta(minutes=1))
    # The devices are cleared, then it starts on all of them.
    plant.later(timedelta(minutes=1))
    assert fresh(booking).state == "active"
    assert all_is_well()


def test_a_start_on_the_calendar_moves_and_gets_shorter_for_all_groups(mixed_plant: Plant, lab: Lab) -> None:
    plant = mixed_plant
    at = plant.now + 5 * HOUR
    booking = booked(plant, lab, replace(a_mixed_ask(), starts=at))
    plant.round()
    assert fresh(booking).state == "scheduled"
    for ask in (
        replace(a_mixed_ask(), starts=at + HOUR),
        replace(a_mixed_ask(hours=1), starts=at + HOUR),
    ):
        with as_system():
            booking_patch(
                actor=lab.actor,
                booking=fresh(booking),
                patch=Patch(ask=ask),
                revision=None,
                now=plant.now,
            )
        plant.round()
    changed = fresh(booking)
    assert (changed.planned_starts, changed.planned_ends) == (at + HOUR, at + 2 * HOUR)
    assert classes_of(booking) == ["h100", "l40s", "l40s"]
    assert changed.hold_amount == Decimal(5)
    assert all_is_well()


def test_a_group_that_is_not_possible_refuses_all(mixed_plant: Plant, lab: Lab) -> None:
    for ask, code in (
        (a_mixed_ask(1, 9), "guarantee_only"),
        (replace(a_mixed_ask(), groups=(AskGroup("b200"),)), "unknown_class"),
    ):
        with as_system(), pytest.raises(Refused) as refused:
            booking_request(actor=lab.actor, request=a_booking_request(lab.project, ask), now=mixed_plant.now)
        assert refused.value.code == code


def in_flex(plant: Plant, lab: Lab) -> Booking:
    """`1 h100 + 3 l40s` in a tier that may be paused, which runs; its quote says so."""
    request = a_booking_request(lab.project, a_mixed_ask(1, 3, hours=6), tier="flex")
    with as_system():
        option = quote_make(actor=lab.actor, request=request, now=plant.now).options[0]
        assert any("paused before bookings of one class" in str(each) for each in option.notes)
        booking = booking_request(actor=lab.actor, request=request, now=plant.now)
    plant.round()
    assert fresh(booking).state == "active"
    return booking


def test_where_it_may_be_paused_a_claim_on_one_class_takes_all_of_it(mixed_plant: Plant, lab: Lab) -> None:
    """It is notified before it is booked, leaves all its GPUs, and resumes on all classes."""
    plant, minute = mixed_plant, timedelta(minutes=1)
    rival = a_lab("rival", gpus=0)
    a_quota(rival.tenant, a_gpu_class("l40s"), guaranteed=1)
    booking = in_flex(plant, lab)
    plant.later(30 * minute)
    claim = booked(plant, rival, an_ask(1, hours=1, classes=("l40s",)))
    plant.round()
    assert (fresh(booking).state, fresh(claim).state) == ("pausing", "queued")
    with as_system():
        pause = Pause.objects.get(booking=booking)
    assert pause.sentence.startswith("A booking of one GPU class needs the GPUs.")
    plant.later(11 * minute)
    plant.later(minute)
    waits = fresh(booking)
    assert (waits.state, fresh(claim).state) == ("paused", "active")
    assert {row.state for row in rows_of(booking)} == {"ended"}
    assert "free_room_only" in {each["code"] for each in waits.reasons}
    assert all_is_well()
    plant.later(HOUR)
    plant.later(minute)
    assert (fresh(claim).state, fresh(booking).state) == ("ended", "active")
    live = [row.gpu.model.gpu_class_id for row in rows_of(booking) if row.state == "active"]
    assert sorted(live) == ["h100", "l40s", "l40s", "l40s"]
    assert all_is_well()
