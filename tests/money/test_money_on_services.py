"""The same games on the real services, agent and ledger, against the same count of what was had."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal

import pytest

import wire
from allocation.models import Booking, Gpu, GpuEvent
from allocation.rules.states import TERMINAL, State
from allocation.services.bookings.change.changes import booking_extend
from allocation.services.bookings.release import booking_cancel, booking_release
from allocation.services.runs.interrupt import Interruption, run_interrupt
from allocation.services.runs.pause_choices import booking_saved
from allocation.words.events import event_text
from billing.rates import peak_hours
from billing.services import Peaks
from tenants.models import Tier
from tenants.platform.errors import Refused
from tests.builders_allocation import PRICE, Lab, a_lab, an_ask
from tests.money.oracle import Oracle
from tests.prices import price_book_publish
from tests.roles import as_owner, as_system
from tests.services.pause_plans import pause_of, pause_plan, plan_written
from tests.services.paused import all_is_well, requested
from tests.services.plant import Plant, fresh, rows_of

MINUTE = timedelta(minutes=1)
GRACE = timedelta(minutes=4)
CAP = 10 * 60
PEAKS = peak_hours("UTC", [(day, hour, hour + 1) for day in range(7) for hour in range(1, 24, 2)])
RUNS = (State.ACTIVE, State.PAUSING)
OFF = Interruption("R62", event_text("node_off", node="n1"))


@dataclass
class Game:
    """One booking on a plant of two GPUs, and what an oracle counts of it, in seconds."""

    plant: Plant
    rng: random.Random
    people: tuple[Lab, Lab]
    price: Decimal
    rise: Decimal
    story: list[str] = field(default_factory=list)

    def play(self) -> None:
        plant, draw = self.plant, self.rng
        self.oracle, self.given_up = Oracle(CAP, is_fixed=False), 0
        ask = an_ask(1, hours=draw.choice((10, 20, 30)) / 60)
        self.booking = requested(plant, self.people[0], ask)
        plant.round()
        assert fresh(self.booking).state == "active"
        self.oracle.begin()
        for _ in range(60):
            if self._has_passed(draw.choice((1, 2, 5)) * MINUTE):
                break
            act = draw.choice(("save", "extend", "lie", "broken", "own", "other", "other", "end"))
            self.story.append(f"{act} at {plant.now:%H:%M:%S}")
            getattr(self, f"_{act}")()
        self._compare()

    def _has_passed(self, step: timedelta) -> bool:
        """Time goes by; True when the booking is over."""
        booking = fresh(self.booking)
        if booking.state in RUNS:
            (row,) = [row for row in rows_of(booking) if row.state == "active"]
            until = min(self.plant.now + step, row.period.upper)
            for second in range(int((until - self.plant.now).total_seconds())):
                at = self.plant.now + timedelta(seconds=second)
                # Every second hour is a peak hour.
                self.oracle.minute(is_peak=at.hour % 2 == 1)
        was, number = booking.state, booking.pauses.count
        with as_system():
            known = number()
        self.plant.later(step)
        booking = fresh(self.booking)
        if was == State.PAUSING and pause_of(booking).emptied_at is not None:
            assert known
            self.oracle.paused()
            if booking.state == State.ACTIVE:
                self.oracle.begin()
        elif was not in RUNS and booking.state == State.ACTIVE:
            self.oracle.begin()
        elif was == State.ACTIVE and State(booking.state) not in RUNS:
            self.oracle.over()
        return State(booking.state) in TERMINAL

    # What people and nodes do.

    def _save(self) -> None:
        booking = fresh(self.booking)
        if booking.state == State.ACTIVE:
            with as_system():
                booking_saved(actor=self.people[0].actor, booking=booking, now=self.plant.now)
            self.oracle.save()

    def _extend(self) -> None:
        booking = fresh(self.booking)
        if booking.state == State.ACTIVE and booking.planned_ends:
            until = booking.planned_ends + 5 * MINUTE
            try:
                with as_system():
                    booking_extend(
                        actor=self.people[0].actor,
                        booking=booking,
                        until=until,
                        now=self.plant.now,
                    )
            except Refused as refused:
                self.story.append(refused.code)
            self.plant.round()

    def _lie(self) -> None:
        """The node says that the run is over, and it is not."""
        booking = fresh(self.booking)
        if booking.state != State.ACTIVE:
            return
        (row,) = [row for row in rows_of(booking) if row.state == "active"]
        if row.period.upper <= self.plant.now + MINUTE:
            return
        state: wire.AllocationState = self.rng.choice(("empty", "failed"))
        said = wire.ReportedAllocation(id=row.id.hex, state=state, devices=(), error=None, since=1)
        assert self.plant.receive(self.plant.report(said)) == "applied"
        self.oracle.over()
        self._settles()

    def _broken(self) -> None:
        booking = fresh(self.booking)
        if booking.state != State.ACTIVE:
            return
        with as_system():
            run_interrupt(booking.id, OFF, self.plant.now)
        self.oracle.broke()
        self._settles()

    def _own(self) -> None:
        self._paused_for(self.people[0])

    def _other(self) -> None:
        self._paused_for(self.people[1])

    def _paused_for(self, lab: Lab) -> None:
        booking, plant = fresh(self.booking), self.plant
        rows = [row for row in rows_of(booking) if row.state == "active"]
        if booking.state != State.ACTIVE or rows[0].period.upper <= plant.now + GRACE:
            return
        strong = requested(plant, lab, an_ask(1, hours=5 / 60))
        with as_system():
            plan = pause_plan(booking, strong, plant.now + GRACE)
        plan_written(plan, plant.now)
        self.oracle.notified(own=lab is self.people[0])
        self._settles()

    def _end(self) -> None:
        booking = fresh(self.booking)
        if self.rng.random() < 0.5 or State(booking.state) in TERMINAL:
            return
        act: Callable[..., Booking] = self.rng.choice((booking_cancel, booking_release))
        if booking.state == State.PAUSED:
            self.given_up = pause_of(booking).remaining_seconds or 0
        elif booking.state in RUNS:
            (row,) = [row for row in rows_of(booking) if row.state == "active"]
            ends = row.period.upper
            if booking.state == State.PAUSING:
                ends = pause_of(booking).ends_before
            self.given_up = int((ends - self.plant.now).total_seconds())
            self.oracle.over()
        else:
            return
        with as_system():
            act(actor=self.people[0].actor, booking=booking, now=self.plant.now)
        self._settles(is_over=True)

    def _settles(self, *, is_over: bool = False) -> None:
        self.plant.round()
        if not is_over and not self.oracle.run and fresh(self.booking).state == State.ACTIVE:
            self.oracle.begin()

    def _compare(self) -> None:
        booking = fresh(self.booking)
        for _ in range(20):
            if State(booking.state) in TERMINAL:
                break
            self._has_passed(10 * MINUTE)
            booking = fresh(self.booking)
        assert booking.charged is not None, self.story
        owed = self.oracle.owes(given_up=self.given_up) * self.price / 3600
        owed += self.oracle.owed_peak * self.rise / 3600
        owed = min(owed, booking.hold_amount)
        assert abs(booking.charged - owed) < Decimal("0.0001"), (booking.charged, owed, self.story)
        least = min(booking.hold_amount, self.oracle.least() * self.price / 3600)
        assert booking.charged >= least - Decimal("0.0001"), self.story


def play(plant: Plant, games: int, seed: int) -> None:
    """One after the other, with prices that change and an operator who puts GPUs back."""
    people = a_lab("helix", gpus=0, money="100000"), a_lab("rivals", gpus=0, money="100000")
    with as_system():
        Tier.objects.update(pausable=True, credit_cap_seconds=CAP, grace_seconds=240)
    rng, price, rise = random.Random(seed), PRICE, Decimal(0)  # noqa: S311 (a game, not a secret)
    for _ in range(games):
        Game(plant, rng, people, price, rise).play()
        plant.later(20 * MINUTE)
        with as_owner():
            GpuEvent.objects.filter(kind="conflict").delete()
            Gpu.objects.update(**Gpu.health_columns(Gpu.Health.OK), drain_by=None, needs_operator=False)
            price = Decimal(rng.randrange(1, 9_0000)) / 10_000
            rise = Decimal(rng.randrange(1, 9_0000)) / 10_000
            key = ("h100", "standard")
            price_book_publish(
                actor_id=None,
                valid_from=plant.now,
                prices={key: price},
                peaks=Peaks(PEAKS, {key: price + rise}),
                now=plant.now,
            )
        plant.later(MINUTE)
    assert all_is_well()


def test_nobody_gets_time_for_less_than_its_price_on_the_real_services(plant: Plant) -> None:
    play(plant, 1, seed=1)


def test_what_begins_anew_has_the_time_that_it_was_extended_by(plant: Plant) -> None:
    lab = a_lab("helix", gpus=0)
    booking = requested(plant, lab, an_ask(1, hours=1))
    plant.round()
    ends = fresh(booking).planned_ends
    assert ends is not None
    with as_system():
        booking_extend(actor=lab.actor, booking=booking, until=ends + 30 * MINUTE, now=plant.now)
    plant.later(50 * MINUTE)
    (row,) = rows_of(booking)
    said = wire.ReportedAllocation(id=row.id.hex, state="empty", devices=(), error=None, since=1)
    assert plant.receive(plant.report(said)) == "applied"
    plant.round()
    again = fresh(booking)
    assert (again.state, again.planned_ends) == ("active", plant.now + 40 * MINUTE)


@pytest.mark.long
def test_hardware_that_broke_an_earlier_run_makes_the_next_ones_pause_no_cheaper(
    plant: Plant,
) -> None:
    """Found by the long games: the next run begins in the second in which the first broke off."""
    lab, rival = a_lab("helix", gpus=0), a_lab("rivals", gpus=0)
    with as_system():
        Tier.objects.update(pausable=True, credit_cap_seconds=CAP, grace_seconds=240)
    booking = requested(plant, lab, an_ask(1, hours=1))
    plant.round()
    plant.later(5 * MINUTE)
    with as_system():
        run_interrupt(booking.id, OFF, plant.now)
    plant.round()
    assert fresh(booking).ready_at == fresh(booking).hardware_lost_at == plant.now
    plant.later(20 * MINUTE)
    strong = requested(plant, rival, an_ask(1, hours=5 / 60))
    with as_system():
        plan = pause_plan(booking, strong, plant.now + GRACE)
    plan_written(plan, plant.now)
    plant.later(5 * MINUTE)
    # Of 20 minutes that were not saved ten are credited, as by any pause, and not all.
    assert fresh(booking).settled == 10 * PRICE / 60


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_nor_in_hundreds_of_games(plant: Plant, seed: int) -> None:
    play(plant, 30, seed)
