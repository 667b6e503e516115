"""Operators read what a move would win, and have it done; nothing changes by reading."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest
from django.db import IntegrityError

from allocation.models import Allocation, Booking, CompactionOrder, Gpu
from allocation.rules.states import State
from allocation.services.bookings.release import booking_cancel, booking_release
from allocation.services.decide.compaction import compaction_order, compaction_proposals
from allocation.services.decide.invariants import invariants_check
from allocation.services.decide.replay import decision_replay
from allocation.services.snapshot.snapshot import CLEARING_SECONDS
from tenants.models import AuditEntry, Tier, User
from tenants.platform.errors import Refused
from tenants.platform.wall import operator_tx
from tests.builders import an_operator
from tests.builders_allocation import (
    HOUR,
    NOW,
    Lab,
    a_booking,
    a_lab,
    an_allocation,
    an_ask,
)
from tests.roles import as_system
from tests.services.pause_plans import pause_of
from tests.services.paused import requested, running
from tests.services.plant import Plant, fresh, rows_of

pytestmark = pytest.mark.turn

SLICE = "1g.10gb"
CLEARING = timedelta(seconds=CLEARING_SECONDS)


def a_full_site() -> Booking:
    """Two GPUs with a slice in each, both pausable, and a booking that waits for a whole one."""
    lab = a_lab("helix", gpus=2)
    with as_system():
        gpus = list(Gpu.objects.order_by("index"))
    for gpu in gpus:
        ask = an_ask(1, profile=SLICE, hours=6)
        booking = a_booking(
            lab.project,
            lab.actor.user_id,
            state=State.ACTIVE,
            hours=6,
            starts=NOW - 2 * HOUR,
            ask=ask,
        )
        an_allocation(
            booking,
            gpu,
            profile=SLICE,
            start=0,
            starts=NOW - 2 * HOUR,
            ends=NOW + 4 * HOUR,
            state=Allocation.State.ACTIVE,
        )
    waiting = a_booking(lab.project, lab.actor.user_id, hours=2)
    with as_system():
        Tier.objects.update(pausable=True, protected_seconds=600)
    return waiting


@pytest.mark.django_db
def test_a_waiting_gpu_is_won_by_moving_one_slice() -> None:
    waiting = a_full_site()
    with operator_tx():
        (found,) = compaction_proposals(NOW)
    assert found.booking == waiting
    # Counted from the end of the notice, which the tier of what moves gives.
    assert found.notice == "10m"
    assert found.sooner == "3h50m"
    (move,) = found.moves
    assert {move.source, move.target} <= {
        f"gpu-a1-01 GPU {index}, {SLICE} at slot {start}" for index in (0, 1) for start in range(7)
    }
    assert move.lost == "2h2m"
    assert found.proven


def key_of(now: datetime) -> str:
    with operator_tx():
        (found,) = compaction_proposals(now)
    return found.key


def ordered(operator: User, now: datetime, key: str = "") -> CompactionOrder:
    key = key or key_of(now)
    with operator_tx():
        return compaction_order(operator=operator, key=key, now=now)


def answered(order: CompactionOrder) -> CompactionOrder:
    with as_system():
        return CompactionOrder.objects.get(id=order.id)


@dataclass(frozen=True)
class Shop:
    """A plant of two GPUs with a slice on each, and a booking that waits for a whole one."""

    plant: Plant
    lab: Lab
    slices: tuple[Booking, Booking]
    waiting: Booking

    @classmethod
    def opened(cls, plant: Plant) -> "Shop":
        lab = a_lab("helix", gpus=0)
        first, filler, second = (
            running(plant, lab, an_ask(profile=profile, hours=6))
            for profile in ("3g.40gb", "4g.40gb", "3g.40gb")
        )
        with as_system():
            booking_release(actor=lab.actor, booking=filler, now=plant.now)
        plant.later(timedelta(minutes=30))
        rival = a_lab("rivals", gpus=0)
        with as_system():
            Tier.objects.update(pausable=True, grace_seconds=120, credit_cap_seconds=3600)
        return cls(plant, lab, (first, second), requested(plant, rival, an_ask(hours=2)))

    def places(self) -> set[int]:
        """The GPUs of the slices that run."""
        rows = [row for each in self.slices for row in rows_of(each) if row.state == "active"]
        return {row.gpu.index for row in rows}


@pytest.fixture
def shop(plant: Plant) -> Shop:
    shop = Shop.opened(plant)
    plant.round()
    assert shop.places() == {0, 1}
    assert fresh(shop.waiting).state == State.QUEUED
    return shop


@pytest.fixture
def operator(plant: Plant) -> User:
    return an_operator()


def test_an_order_moves_one_with_notice_credit_and_a_receipt_and_the_other_starts(
    shop: Shop, operator: User
) -> None:
    plant = shop.plant
    order = ordered(operator, plant.now)
    plant.round()
    moved = next(each for each in shop.slices if fresh(each).state == State.PAUSING)
    pause = pause_of(moved)
    assert (pause.rule, pause.deadline) == ("R81", plant.now + timedelta(seconds=120))
    assert pause.cause.beneficiary_id == shop.waiting.id
    done = answered(order)
    assert (done.declined, done.decision_id) == ("", pause.decision_id)
    starts = fresh(shop.waiting).planned_starts
    assert (fresh(shop.waiting).state, starts) == (State.SCHEDULED, pause.deadline)
    assert fresh(moved).planned_starts == starts
    assert "An operator moves it" in pause.sentence
    with as_system():
        entries = AuditEntry.objects.filter(action="compaction.order")
        assert {entry.actor_id for entry in entries} == {operator.id}
        assert {entry.tenant_id for entry in entries} == {
            shop.lab.tenant_id,
            shop.waiting.tenant_id,
        }
        assert pause.decision is not None
        assert decision_replay(pause.decision).is_equal
    plant.later_until(pause.deadline)
    plant.later(CLEARING)
    assert {fresh(each).state for each in (*shop.slices, shop.waiting)} == {State.ACTIVE}
    assert len(shop.places()) == 1
    receipt = pause_of(moved)
    assert receipt.resumed_at is not None
    assert receipt.credit_seconds == receipt.lost_seconds == 1800
    with as_system():
        assert invariants_check() == []


def test_a_proposal_that_is_none_any_more_is_refused_and_nothing_is_done(shop: Shop, operator: User) -> None:
    key = key_of(shop.plant.now)
    with as_system():
        booking_cancel(actor=shop.lab.actor, booking=shop.waiting, now=shop.plant.now)
    with pytest.raises(Refused) as refused:
        ordered(operator, shop.plant.now, key)
    assert (refused.value.code, refused.value.rule) == ("order_stale", "R82")
    with as_system():
        assert not CompactionOrder.objects.exists()
        assert not AuditEntry.objects.filter(action="compaction.order").exists()


def test_an_order_whose_ground_goes_before_the_decision_is_declined_with_the_reason(
    shop: Shop, operator: User
) -> None:
    order = ordered(operator, shop.plant.now)
    with as_system():
        booking_cancel(actor=shop.lab.actor, booking=shop.waiting, now=shop.plant.now)
    shop.plant.round()
    assert "is no longer waiting" in answered(order).declined
    assert {fresh(each).state for each in shop.slices} == {State.ACTIVE}
    with as_system():
        assert invariants_check() == []


def test_the_same_is_ordered_once(shop: Shop, operator: User) -> None:
    key = key_of(shop.plant.now)
    ordered(operator, shop.plant.now, key)
    # What is ordered is proposed no more.
    with pytest.raises(Refused) as refused:
        ordered(operator, shop.plant.now, key)
    assert refused.value.code == "order_stale"
    with as_system(), pytest.raises(IntegrityError, match="compaction_one_open"):
        CompactionOrder.objects.create(
            beneficiary=shop.waiting, document={}, created=NOW, created_by=operator
        )


def test_a_move_whose_beneficiary_goes_away_is_taken_back(shop: Shop, operator: User) -> None:
    ordered(operator, shop.plant.now)
    shop.plant.round()
    with as_system():
        booking_cancel(actor=shop.lab.actor, booking=fresh(shop.waiting), now=shop.plant.now)
    shop.plant.round()
    assert {fresh(each).state for each in shop.slices} == {State.ACTIVE}
    assert shop.places() == {0, 1}
    with as_system():
        assert invariants_check() == []
