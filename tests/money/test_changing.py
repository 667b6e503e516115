"""Nobody gets GPU time for less than its price by a change, an offer, an array or an early end."""

from datetime import timedelta

import pytest

from tenants.models import Tier
from tests.builders import a_gpu_class, a_quota
from tests.builders_allocation import PRICE, a_lab
from tests.money.changing import play
from tests.prices import price_book_publish
from tests.roles import as_system
from tests.services.plant import Plant

pytestmark = pytest.mark.turn


def games(plant: Plant, seeds: range, acts: int = 14, *, is_mixed: bool = False) -> None:
    """Each with people of its own, on one plant."""
    for seed in seeds:
        lab = a_lab(f"lab-{seed}", gpus=0, money="100000")
        with as_system():
            Tier.objects.update(notice_seconds=3_600, late_share=50)
        if is_mixed:
            a_quota(lab.tenant, a_gpu_class("l40s"), guaranteed=8)
        play(plant, lab, seed, acts, is_mixed=is_mixed)
        plant.later(timedelta(minutes=1))


def test_nobody_gains_by_changing_what_is_booked(plant: Plant) -> None:
    games(plant, range(1, 2), acts=6)


def test_nobody_gains_by_bookings_of_several_classes(mixed_plant: Plant) -> None:
    prices, now = {(name, "standard"): PRICE for name in ("h100", "l40s")}, mixed_plant.now
    with as_system():
        price_book_publish(actor_id=None, valid_from=now, prices=prices, now=now)
    games(mixed_plant, range(3, 4), acts=6, is_mixed=True)


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 10_000, 20))
def test_nor_in_ten_thousand_games(plant: Plant, first: int) -> None:
    games(plant, range(first, first + 20))
