"""Sixteen writers at one GPU: the database says who has it, whatever anyone looked up before."""

import random
from threading import Barrier

import psycopg
import pytest
from django.db import transaction

from allocation.models import Allocation, Booking, Gpu
from allocation.services.decide.invariants import invariants_check
from tests.builders_allocation import HOUR, NOW, Lab, a_booking, a_lab, a_row, a_share_row
from tests.races.together import at_once
from tests.roles import as_system
from tests.servers.servers import Servers

pytestmark = pytest.mark.races
WRITERS = 16
# Ten places that all fit next to each other: seven slices now, three of other sizes later.
PLACES = [
    *(("1g.10gb", start, NOW) for start in range(7)),
    ("3g.40gb", 0, NOW + 2 * HOUR),
    ("3g.40gb", 4, NOW + 2 * HOUR),
    ("7g.80gb", 0, NOW + 4 * HOUR),
]
CONSTRAINTS = ("allocation_no_double_booking", "allocation_one_mode")


def a_crowd() -> tuple[Lab, list[Booking], Gpu]:
    """A booking for every writer, and the one GPU."""
    lab = a_lab("helix")
    bookings = [a_booking(lab.project, lab.actor.user_id) for _ in range(WRITERS)]
    with as_system():
        return lab, bookings, Gpu.objects.get()


def overlaps() -> int:
    with as_system():
        return sum(violation.promise == "P1" for violation in invariants_check())


def test_ten_places_are_given_ten_times_and_nobody_waits_in_a_circle(real_db: Servers) -> None:
    _, bookings, gpu = a_crowd()

    def write(number: int) -> int:
        wanted = random.Random(number).sample(PLACES, len(PLACES))  # noqa: S311 (only an order)
        won = 0
        for profile, start, starts in wanted:
            with transaction.atomic():
                row = a_row(bookings[number], gpu, profile=profile, start=start, starts=starts)
                Allocation.objects.bulk_create([row], ignore_conflicts=True)
                # More work with the row's lock held, as real cycles do.
                Booking.objects.filter(id=bookings[number].id).update(name=profile)
                won += Allocation.objects.filter(id=row.id).count()
        return won

    answers = at_once(write, WRITERS)
    assert sum(answers) == len(PLACES)
    assert overlaps() == 0
    with as_system():
        given = Allocation.objects.values_list("profile", "start", "period")
        assert len({(profile, start, period.lower) for profile, start, period in given}) == 10


def test_of_sixteen_whole_gpus_in_overlapping_windows_only_disjoint_ones_are_given(
    real_db: Servers,
) -> None:
    _, bookings, gpu = a_crowd()

    def write(number: int) -> int:
        # Each overlaps its two neighbours; every second one at most can be given.
        row = a_row(bookings[number], gpu, starts=NOW + number * HOUR)
        with transaction.atomic():
            Allocation.objects.bulk_create([row], ignore_conflicts=True)
        return Allocation.objects.filter(id=row.id).count()

    won = at_once(write, WRITERS)
    assert overlaps() == 0
    # Nobody was turned away for nothing: between two gaps of an hour there is always a winner.
    assert [1, 1] not in [won[at : at + 2] for at in range(WRITERS - 1)]
    assert [0, 0, 0] not in [won[at : at + 3] for at in range(WRITERS - 2)]


def test_a_gpu_is_never_given_whole_and_in_slices_at_once(real_db: Servers) -> None:
    _, bookings, gpu = a_crowd()

    def write(number: int) -> str:
        profile = None if number % 2 else "1g.10gb"
        row = a_row(bookings[number], gpu, profile=profile, start=0 if profile is None else 6)
        with transaction.atomic():
            Allocation.objects.bulk_create([row], ignore_conflicts=True)
        return "won" if Allocation.objects.filter(id=row.id).exists() else "lost"

    assert at_once(write, WRITERS).count("won") == 1
    assert overlaps() == 0


def test_eight_writers_of_shares_never_share_out_more_than_the_gpu(real_db: Servers) -> None:
    _, bookings, gpu = a_crowd()

    def write(number: int) -> int:
        # Thirds of the GPU for one, two and three hours, so that sums change within a window.
        won = 0
        for hours in (3, 1, 2):
            ends = NOW + hours * HOUR
            row = a_share_row(bookings[number], gpu, 330, starts=NOW + number % 2 * HOUR, ends=ends)
            if row.period.lower >= ends:
                continue
            with transaction.atomic():
                Allocation.objects.bulk_create([row], ignore_conflicts=True)
            won += Allocation.objects.filter(id=row.id).exists()
        return won

    assert sum(at_once(write, 8)) >= 3
    assert overlaps() == 0


@pytest.mark.parametrize("is_guarded", [False, True])
def test_looking_first_is_no_guard(real_db: Servers, is_guarded: bool) -> None:  # noqa: FBT001
    """The negative control: all look, see room, and write. Only the constraint stops them."""
    _, bookings, gpu = a_crowd()
    if not is_guarded:
        with psycopg.connect(real_db.owner_dsn) as owner:
            for name in CONSTRAINTS:
                owner.execute(f"ALTER TABLE allocation_allocation DROP CONSTRAINT {name}")
    looked = Barrier(WRITERS)

    def look_then_write(number: int) -> bool:
        with transaction.atomic():
            is_free = not Allocation.objects.filter(gpu=gpu, state__in=Allocation.LIVE).exists()
            looked.wait(timeout=30)
            Allocation.objects.bulk_create([a_row(bookings[number], gpu)], ignore_conflicts=True)
            return is_free

    assert at_once(look_then_write, WRITERS) == [True] * WRITERS
    # Each is found with the one before it in its slots.
    assert overlaps() == (0 if is_guarded else WRITERS - 1)
