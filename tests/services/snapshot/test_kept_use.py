"""Use that is kept between turns is what a reading of all use finds, to the second."""

import random
from datetime import datetime, timedelta

import pytest

from allocation.models import Allocation, Booking, Gpu
from allocation.services.snapshot.quota_rows import KeptUse, used_read
from solver import Snapshot
from solver.model.rows import table_of
from tests.builders_allocation import HOUR, NOW, Lab, a_booking, a_lab, an_allocation
from tests.roles import as_system

DAY, TICK = timedelta(days=1), timedelta(microseconds=1)


def a_run(dice: random.Random, lab: Lab, gpu: Gpu, since: datetime, until: datetime) -> Booking:
    """A run with odd microseconds; one that is not over has no release yet."""
    is_over = until <= NOW
    booking = a_booking(
        lab.project,
        lab.actor.user_id,
        starts=since,
        hours=(until - since) / HOUR,
        state="ended" if is_over else "active",
    )
    an_allocation(booking, gpu, starts=since, ends=until, state="ended" if is_over else "active")
    released = until - dice.randrange(10**9) * TICK if is_over else None
    ready = since + dice.randrange(10**7) * TICK
    Booking.objects.filter(id=booking.id).update(ready_at=ready, released_at=released)
    return booking


@pytest.mark.turn
@pytest.mark.django_db
def test_kept_use_is_what_all_use_is() -> None:
    dice = random.Random(7)  # noqa: S311 (not for secrets)
    labs = [a_lab("helix", gpus=2), a_lab("northlab", gpus=1)]
    with as_system():
        runs = []
        for gpu in Gpu.objects.order_by("id"):
            at = NOW - 66 * DAY
            while at < NOW:
                until = at + dice.randint(3, 200) * HOUR / 2
                runs.append(a_run(dice, dice.choice(labs), gpu, at, until))
                at = until + HOUR
        now, kept, read_again = NOW, KeptUse(NOW), 0
        for number in range(12):
            now += dice.choice((TICK, 7 * TICK + timedelta(seconds=15), HOUR, 5 * HOUR))
            changed = dice.sample(runs, 2)
            Booking.objects.filter(id=changed[0].id).update(
                released_at=now if changed[0].state == "active" else changed[0].planned_ends
            )
            Allocation.objects.filter(booking=changed[1]).update(units=1_000 * number + 8_000)
            if not kept.is_of(now):
                kept, read_again = KeptUse(now), read_again + 1
            before, old = dict(kept.rows), kept.advance((), now)
            true = table_of(Snapshot, "used", used_read(now), 0)
            assert kept.rows != true or read_again, "control: the changes are not read yet"
            put, gone = kept.advance([each.id for each in changed], now)
            assert kept.rows == true
            assert {**before, **old[0], **put}.keys() - set(old[1]) - set(gone) == true.keys()
    assert read_again == 1
    assert len(true) > 100
