"""A neighbour learns from quotes until when a GPU is taken, and nothing else.

Worlds that differ only in what another tenant's work is give the same bytes, whatever GPU is named
in whatever tier.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest
from django.db import connection
from django.db.backends.postgresql.psycopg_any import DateTimeTZRange

from allocation.models import Allocation, Booking, BookingEvent, Gpu
from allocation.rules.ask import AskDocument
from allocation.rules.states import State
from allocation.services.quotes.quotes import quote_make
from allocation.services.snapshot.published import published_snapshot
from billing.models import PriceBook
from solver import Policy
from tenants.models import Quota, Tier
from tenants.platform.errors import Refused
from tenants.platform.wall import tenant_tx
from tests.builders import UNITS_PER_GPU, a_tier
from tests.builders_allocation import (
    HOUR,
    NOW,
    Lab,
    a_booking,
    a_booking_request,
    a_lab,
    a_row,
    an_ask,
)
from tests.prices import price_add
from tests.roles import as_system
from tests.servers.servers import Servers

pytestmark = pytest.mark.turn

TIERS = ("standard", "spot", "assured")


class World:
    """Four GPUs, three of another tenant's: a gang of two, a slice and a planned start."""

    def __init__(self) -> None:
        self.mine, self.other, self.third = a_lab("mine", gpus=4), a_lab("other"), a_lab("third")
        a_tier("flex", pausable=True, priority=40)
        a_tier("spot", pausable=True, priority=10)
        a_tier("assured", priority=90)
        with as_system():
            Tier.objects.filter(slug="spot").update(counts_against_guarantee=False)
            book = PriceBook.objects.get()
            for tier in ("flex", "spot", "assured"):
                price_add(book=book, gpu_class_id="h100", tier_id=tier, per_gpu_hour=3)
            Quota.objects.update(guaranteed_units=2 * UNITS_PER_GPU, borrow_limit_units=None)
            self.gpus = list(Gpu.objects.order_by("index"))
        one, two, three, _ = self.gpus
        self.gang = self._running(self.other, "flex")
        self.small = self._running(self.other, "standard")
        with as_system():
            a_row(self.gang, one, ends=NOW + 5 * HOUR, state="active").save()
            a_row(self.gang, two, ends=NOW + 5 * HOUR, state="active").save()
            a_row(self.small, three, profile="3g.40gb", ends=NOW + 7 * HOUR, state="active").save()
        self.waits = a_booking(self.other.project, self.other.actor.user_id, state=State.QUEUED)
        places = [{"gpu": str(three.id), "profile": None, "start": 0, "size": 8}]
        self.change(
            self.waits,
            planned_starts=NOW + 7 * HOUR,
            planned_ends=NOW + 9 * HOUR,
            planned_class="h100",
            planned_places=places,
        )

    def _running(self, lab: Lab, tier: str) -> Booking:
        booking = a_booking(lab.project, lab.actor.user_id, state=State.ACTIVE, hours=7, starts=NOW - HOUR)
        self.change(booking, tier=tier)
        return booking

    def change(self, booking: Booking, **fields: object) -> None:
        with as_system():
            Booking.objects.filter(id=booking.id).update(**fields)

    def answers(self) -> Iterator[str]:
        """The quotes of the neighbour, for each GPU and for any, in each tier."""
        pins = [(), *((f"{gpu.node.name}/{gpu.index}",) for gpu in self.gpus)]
        asks = [an_ask(hours=1), an_ask(hours=1, starts=NOW + HOUR)]
        with tenant_tx(self.mine.tenant_id):
            for tier, pin, ask in product(TIERS, pins, asks):
                yield self._answer(tier, pin, ask)
            for tier, count in product(TIERS, (2, 3, 4)):
                yield self._answer(tier, (), an_ask(count, hours=1))
            yield self._answer("spot", (), an_ask(profile="3g.40gb"))

    def _answer(self, tier: str, pin: tuple[str, ...], ask: AskDocument) -> str:
        request = a_booking_request(self.mine.project, replace(ask, pin=pin), tier=tier)
        try:
            # The lock is a signature with the time of signing in it.
            return repr(replace(quote_make(actor=self.mine.actor, request=request, now=NOW), lock=""))
        except Refused as refused:
            return repr(refused)


def another_tier(world: World) -> None:
    world.change(world.gang, tier="spot")
    world.change(world.small, tier="assured")
    world.change(world.waits, tier="flex")


def borrowed(world: World) -> None:
    """What the one is guaranteed is now the third's: all that it runs is borrowed."""
    world.change(world.gang, borrowed_units=2 * UNITS_PER_GPU)
    with as_system():
        Quota.objects.filter(tenant=world.other.tenant).update(guaranteed_units=0)
        Quota.objects.filter(tenant=world.third.tenant).update(guaranteed_units=4 * UNITS_PER_GPU)


def longer_at_it(world: World) -> None:
    """Protected, saved and paused before, or not."""
    for booking in (world.gang, world.small):
        world.change(
            booking,
            ready_at=NOW - timedelta(seconds=5),
            saved_at=NOW - timedelta(seconds=2),
            pause_count=3,
        )


def not_a_gang(world: World) -> None:
    """The second GPU is another booking's, of a third tenant."""
    lone = world._running(world.third, "flex")
    with as_system():
        row = Allocation.objects.get(booking=world.gang, gpu=world.gpus[1])
        Allocation.objects.filter(id=row.id).update(state="ended")
        a_row(lone, world.gpus[1], ends=NOW + 5 * HOUR, state="active").save()


def claimed(world: World) -> None:
    world.change(world.waits, reclaims_from=NOW + 2 * HOUR, tier="assured")


def asked_for(world: World) -> None:
    """Somebody has asked and is not decided."""
    a_booking(world.other.project, world.other.actor.user_id, ask=an_ask(4, hours=3))


def with_a_past(world: World) -> None:
    """Many that were paused."""
    for _ in range(30):
        booking = a_booking(world.other.project, world.other.actor.user_id, state=State.ENDED)
        world.change(booking, tier="spot", planned_class="h100", ready_at=NOW - HOUR, ended_at=NOW - HOUR)
        with as_system():
            BookingEvent.objects.create(
                tenant_id=booking.tenant_id, booking=booking, at=NOW, kind="paused", state="paused"
            )


OTHERWISE: tuple[Callable[[World], None], ...] = (
    another_tier,
    borrowed,
    longer_at_it,
    not_a_gang,
    claimed,
    asked_for,
    with_a_past,
)


@pytest.mark.long
def test_quotes_are_the_same_bytes_whatever_the_work_of_others_is(real_db: Servers) -> None:
    world = World()
    before = list(world.answers())
    assert len(set(before)) > 20, "they differ by what is asked"
    for made in OTHERWISE:
        made(world)
        assert list(world.answers()) == before, made.__name__


def test_the_control_a_later_end_is_told(real_db: Servers) -> None:
    world = World()
    before = list(world.answers())
    with as_system():
        row = Allocation.objects.get(booking=world.small)
        row.period = DateTimeTZRange(row.period.lower, row.period.upper - HOUR)
        row.save(update_fields=["period"])
    assert any(now != then for now, then in zip(world.answers(), before, strict=False))


def test_of_other_tenants_places_and_times_are_read_and_nothing_else(real_db: Servers) -> None:
    world = World()
    with as_system():
        secrets = [str(each) for each in Booking.objects.values_list("id", flat=True)]
    for lab in (world.other, world.third):
        secrets += [str(lab.tenant_id), str(lab.project.id)]
    with tenant_tx(world.mine.tenant_id), connection.cursor() as cursor:
        snapshot = repr(published_snapshot(NOW, Policy(1)))
        cursor.execute(
            "SELECT proname FROM pg_proc WHERE proname = ANY(%s)",
            [["portal_beside", "portal_waiting", "portal_asked", "portal_limits", "portal_claims"]],
        )
        assert cursor.fetchall() == []
    assert snapshot.count("busy-") == 2 * 4, "four rows, no gang among them"
    assert not [secret for secret in secrets if secret in snapshot]
