"""A booking is offered only the later ends that every rule allows, and gets those."""

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import pytest

from allocation.models import Booking, Gpu
from allocation.rules.states import State
from allocation.services.bookings.change.changes import booking_extend
from allocation.services.decide.cycle import cycle_run
from allocation.services.policy.activations import policy_publish
from allocation.services.quotes.changes import LaterEnds, later_ends
from billing.services import Rung, hold_place, ladder_set
from tenants.models import Quota, Tier
from tenants.platform.wall import tenant_tx
from tests.builders import UNITS_PER_GPU
from tests.builders_allocation import HOUR, NOW, Lab, a_booking, a_budget, a_lab, an_allocation
from tests.roles import as_system
from tests.servers.servers import Servers
from tests.services.plant import fresh

ENDS = NOW + 2 * HOUR
TAKEN = "Another booking has the GPUs after this one."


def running(lab: Lab, gpu: Gpu) -> Booking:
    """From now for two hours."""
    booking = a_booking(lab.project, lab.actor.user_id, state=State.ACTIVE)
    an_allocation(booking, gpu, state="active")
    return booking


def offered(lab: Lab, booking: Booking) -> LaterEnds:
    with tenant_tx(lab.tenant_id):
        booking = Booking.objects.select_related("tier", "project").get(id=booking.id)
        return later_ends(actor=lab.actor, booking=booking, now=NOW)


def after(lab: Lab, gpu: Gpu, starts: datetime) -> None:
    """A fixed window of another tenant on the same GPU."""
    other = a_lab("other", gpus=0)
    booking = a_booking(other.project, other.actor.user_id, state=State.SCHEDULED, starts=starts, hours=1)
    an_allocation(booking, gpu, starts=starts, ends=starts + HOUR, state="planned")


def a_short_tier(lab: Lab, gpu: Gpu) -> None:
    with as_system():
        Tier.objects.update(max_duration_seconds=int(3.5 * 3600))


def a_full_quota(lab: Lab, gpu: Gpu) -> None:
    """Its tenant's one GPU is somebody else's of it from three hours on."""
    with as_system():
        Quota.objects.update(guaranteed_units=UNITS_PER_GPU, borrow_limit_units=0)
        second = Gpu.objects.order_by("index")[1]
    booking = a_booking(lab.project, lab.actor.user_id, state=State.SCHEDULED, starts=NOW + 3 * HOUR, hours=1)
    starts = NOW + 3 * HOUR
    an_allocation(booking, second, starts=starts, ends=starts + HOUR, state="planned")


def no_money(lab: Lab, gpu: Gpu) -> None:
    a_budget(lab.project, "20")


def a_ladder(lab: Lab, gpu: Gpu) -> None:
    with as_system():
        rungs = [Rung("committed", 1, "no_bookings")]
        ladder_set(actor_id=None, budget=lab.budget, rungs=rungs, now=NOW)
        hold_place(
            tenant_id=lab.tenant_id,
            project_id=lab.project.id,
            reference=uuid4(),
            amount=Decimal(900),
            starts=NOW,
            ends=ENDS,
            now=NOW,
        )


def on_loan(lab: Lab, gpu: Gpu) -> None:
    """Its tenant is guaranteed nothing, and its tier borrows for three hours and a half."""
    with as_system():
        Quota.objects.update(guaranteed_units=0, borrow_limit_units=2 * UNITS_PER_GPU)
        policy_publish(document={"borrow_windows": {"*": int(3.5 * 3600)}}, now=NOW)


def in_the_way(lab: Lab, gpu: Gpu) -> None:
    after(lab, gpu, NOW + 3.5 * HOUR)


def at_once(lab: Lab, gpu: Gpu) -> None:
    after(lab, gpu, ENDS)


@pytest.mark.parametrize(
    ("limit", "hours", "words"),
    [
        (None, (1, 2, 6, 24), ""),
        (in_the_way, (1, 1.5), TAKEN),
        (at_once, (), TAKEN),
        (a_short_tier, (1, 1.5), "may last 3 h 30 min"),
        (a_full_quota, (1,), "in use or booked"),
        (on_loan, (1, 1.5), "can borrow for at most 3 h 30 min"),
        (no_money, (1, 2, 13 / 6), "is left in the budget"),
        (a_ladder, (), "takes no new bookings from 1 % on, and no longer ones"),
    ],
)
def test_only_ends_that_every_rule_allows_are_offered_and_they_are_granted(
    real_db: Servers,
    limit: Callable[[Lab, Gpu], None] | None,
    hours: tuple[float, ...],
    words: str,
) -> None:
    lab = a_lab("helix", gpus=2)
    with as_system():
        gpu = Gpu.objects.order_by("index")[0]
    booking = running(lab, gpu)
    if limit is not None:
        limit(lab, gpu)
    found = offered(lab, booking)
    assert found.ends == tuple(ENDS + each * HOUR for each in hours)
    assert words in found.limit
    assert bool(found.limit) is bool(words)
    for until in found.ends[-1:]:
        with tenant_tx(lab.tenant_id):
            booking_extend(actor=lab.actor, booking=booking, until=until, now=NOW)
        with as_system():
            assert cycle_run(NOW + timedelta(seconds=1)).outcome == "decided"
        assert fresh(booking).planned_ends == until


def test_what_has_no_place_or_waits_for_an_answer_is_offered_nothing(real_db: Servers) -> None:
    lab = a_lab("helix")
    with as_system():
        gpu = Gpu.objects.get()
    booking = running(lab, gpu)
    with tenant_tx(lab.tenant_id):
        booking_extend(actor=lab.actor, booking=booking, until=ENDS + HOUR, now=NOW)
    assert offered(lab, booking) == LaterEnds((), "")
    waits = a_booking(lab.project, lab.actor.user_id, state=State.QUEUED)
    assert offered(lab, waits) == LaterEnds((), "")
