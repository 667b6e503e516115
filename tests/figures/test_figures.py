"""Each figure is the same in all places that show it."""

import pytest

from tests.figures.places import differences
from tests.figures.sites import random_world

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("seed", range(3))
def test_all_places_of_a_random_site_show_the_same_figures(seed: int) -> None:
    assert differences(random_world(seed)) == []
