"""Games with many bookings on the real services: they change, wait for offers, come in arrays, and
are given up early. An oracle counts what each had, second by second."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from uuid import uuid4

from allocation.features.arrays.services import array_cancel, array_request
from allocation.features.waiting_list.models import WaitOffer
from allocation.features.waiting_list.offers import offer_accept, offer_decline
from allocation.models import Booking, BookingArray
from allocation.rules.ask import AskGroup
from allocation.rules.states import TERMINAL, State
from allocation.services.bookings.change.changes import Patch, booking_patch
from allocation.services.bookings.change.undo import change_undo
from allocation.services.bookings.change.withdrawal import change_withdraw
from allocation.services.bookings.change_rows import Accept
from allocation.services.bookings.checks.terms import target_of
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel, booking_release
from allocation.services.bookings.requests import ArrayRequest
from allocation.services.runs.no_shows import booking_check_in
from billing.queries import budget_figures
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders_allocation import PRICE, Lab, a_booking_request, an_ask
from tests.roles import as_system
from tests.services.paused import all_is_well, money_of
from tests.services.plant import Plant, rows_of

MINUTE = timedelta(minutes=1)
NEARLY = Decimal("0.0001")
MOST = 6
"""So many bookings, or arrays, are asked for in a game."""


@dataclass
class Game:
    """Some people's bookings on a plant of two GPUs."""

    plant: Plant
    rng: random.Random
    lab: Lab
    acts: int
    bookings: list[Booking] = field(default_factory=list)
    arrays: list[BookingArray] = field(default_factory=list)
    had: dict[object, int] = field(default_factory=dict)
    story: list[str] = field(default_factory=list)
    is_mixed: bool = False
    """Some bookings have a group of L40S, too, at the same price."""

    def play(self) -> None:
        """From the first request until all are over."""
        acts = (
            self._ask,
            self._ask,
            self._edit,
            self._edit,
            self._undo,
            self._withdraw,
            self._end,
            self._answer,
            self._array,
        )
        for _ in range(self.acts):
            self._try(self.rng.choice(acts))
            self._pass(self.rng.choice((0, 1, 5, 20)))
        self._stop_all()
        self._pass(1)
        for _ in range(30):
            if not self._open():
                break
            self._pass(60)
        self._compare()

    def _stop_all(self) -> None:
        """Everybody goes home."""
        actor, now = self.lab.actor, self.plant.now
        acts: list[Callable[[], object]] = [
            partial(array_cancel, actor=actor, array=array, ranges=None, now=now) for array in self.arrays
        ]
        acts += [partial(self._stop, booking) for booking in self._open()]
        for act in acts:
            self._try(act)

    def _try(self, act: Callable[[], object]) -> None:
        try:
            with tenant_tx(self.lab.tenant_id):
                act()
        except Refused as refused:
            self.story.append(f"refused: {refused.code}")

    def _open(self) -> list[Booking]:
        with as_system():
            found = Booking.objects.filter(tenant_id=self.lab.tenant_id).order_by("number", "id")
            self.bookings = list(found)
        return [each for each in self.bookings if State(each.state) not in TERMINAL]

    def _pass(self, minutes: int) -> None:
        """Time goes by; what runs is counted."""
        step = minutes * MINUTE or timedelta(seconds=1)
        for booking in self._open():
            if booking.state in (State.ACTIVE, State.PAUSING):
                rows = [row for row in rows_of(booking) if row.state == "active"]
                ends = (min(row.period.upper, self.plant.now + step) for row in rows)
                seconds = sum(max(0, int((end - self.plant.now).total_seconds())) for end in ends)
                self.had[booking.id] = self.had.get(booking.id, 0) + seconds
        self.plant.later(step)

    # What people do.

    def _ask(self) -> None:
        if len(self.bookings) >= MOST:
            return
        draw, now = self.rng, self.plant.now
        starts = now + draw.choice((10, 40, 90)) * MINUTE if draw.random() < 0.5 else None
        ask = an_ask(draw.choice((1, 2)), hours=draw.choice((10, 30, 60)) / 60, starts=starts)
        if self.is_mixed and draw.random() < 0.7:
            ask = replace(ask, groups=(AskGroup("l40s", draw.choice((1, 2))),))
        wanted = a_booking_request(self.lab.project, ask)
        if starts is not None:
            modes = ("", "auto") if ask.groups else ("", "auto", "offer")
            wanted = replace(wanted, waitlist=draw.choice(modes))
        booking_request(actor=self.lab.actor, request=wanted, now=now)
        self.story.append(f"{ask.count} GPUs at {starts or 'any time'} {wanted.waitlist}")

    def _array(self) -> None:
        if self.arrays or len(self.bookings) >= MOST:
            return
        request = a_booking_request(self.lab.project, an_ask(hours=self.rng.choice((5, 20)) / 60))
        wanted = ArrayRequest(3, self.rng.choice((1, 2)), self.rng.random() < 0.5, None)
        first = array_request(
            actor=self.lab.actor, request=request, array=wanted, now=self.plant.now, key=uuid4()
        )
        assert first.array is not None
        self.arrays.append(first.array)
        self.story.append("an array")

    def _one(self, *states: State) -> Booking | None:
        found = [each for each in self._open() if State(each.state) in states]
        return self.rng.choice(found) if found else None

    def _edit(self) -> None:
        booking = self._one(State.REQUESTED, State.QUEUED, State.SCHEDULED, State.ACTIVE)
        if booking is None:
            return
        with as_system():
            seen = Booking.objects.select_related("tier", "project", "owner").get(id=booking.id)
        ask, draw = target_of(seen).ask, self.rng
        length = max(60, int((ask.duration or 3_600) * draw.choice((0.5, 0.8, 1.5, 2))))
        parts: dict[str, object] = {"duration": length}
        if draw.random() < 0.3 and seen.state != State.ACTIVE:
            parts = {"count": 3 - ask.count}
        elif draw.random() < 0.3 and ask.starts is not None and seen.state != State.ACTIVE:
            parts = {"starts": ask.starts + draw.choice((-5, 30)) * MINUTE}
        patch = Patch(ask=replace(ask, **parts), accept=Accept())  # type: ignore[arg-type]  # fields
        self.story.append(f"{seen.number} {seen.state} becomes {parts}")
        booking_patch(
            actor=self.lab.actor,
            booking=seen,
            patch=patch,
            revision=seen.revision,
            now=self.plant.now,
        )

    def _undo(self) -> None:
        booking = self._one(State.QUEUED, State.SCHEDULED, State.ACTIVE)
        if booking is not None:
            self.story.append(f"{booking.number} undone")
            change_undo(actor=self.lab.actor, booking=booking, now=self.plant.now)

    def _withdraw(self) -> None:
        booking = self._one(State.QUEUED, State.SCHEDULED)
        if booking is not None:
            self.story.append(f"{booking.number} withdrawn")
            change_withdraw(actor=self.lab.actor, booking=booking, now=self.plant.now)

    def _answer(self) -> None:
        with as_system():
            offer = WaitOffer.objects.filter(state="open", tenant_id=self.lab.tenant_id).first()
        if offer is not None:
            act = self.rng.choice((offer_accept, offer_accept, offer_decline))
            self.story.append(act.__name__)
            act(actor=self.lab.actor, offer_id=offer.id, now=self.plant.now)

    def _end(self) -> None:
        booking = self._one(*(set(State) - TERMINAL))
        if booking is not None:
            self.story.append(f"{booking.number} {booking.state} is given up")
            self._stop(booking)

    def _stop(self, booking: Booking) -> None:
        act = booking_cancel
        if booking.state == State.ACTIVE:
            act = self.rng.choice((booking_release, booking_cancel, booking_check_in))
        act(actor=self.lab.actor, booking=booking, now=self.plant.now)

    # What it costs.

    def _compare(self) -> None:
        assert self._open() == [], self.story
        spent = Decimal(0)
        for booking in self.bookings:
            held, charged = money_of(booking)
            owed = self.had.get(booking.id, 0) * PRICE / 3_600
            assert held == 0, (booking.number, self.story)
            assert charged >= owed - NEARLY, (booking.number, charged, owed, self.story)
            assert charged == (booking.charged or 0), (booking.number, charged, self.story)
            spent += charged
        with as_system():
            figures = budget_figures(project_id=self.lab.project.id, at=self.plant.now)
        assert figures is not None
        assert (figures.held, figures.spent) == (Decimal(0), spent), (figures, spent, self.story)
        assert all_is_well()


def play(plant: Plant, lab: Lab, seed: int, acts: int, *, is_mixed: bool = False) -> None:
    """One game of so many acts, with a lab of its own."""
    game = Game(plant, random.Random(seed), lab, acts)  # noqa: S311 (a game, not a secret)
    game.is_mixed = is_mixed
    game.play()
