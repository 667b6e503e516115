"""The world of a number: each part is drawn apart, so that a new one changes no other."""

from tests.worlds.conditions import with_conditions
from tests.worlds.cores import with_cores
from tests.worlds.draw import Drawn, world_draw
from tests.worlds.guarantees import with_guarantees, with_tier_parts
from tests.worlds.operations import with_operations
from tests.worlds.rare import with_rare
from tests.worlds.zones import with_zones


def drawn_of(seed: int) -> Drawn:
    """The world of this number, before anything has happened."""
    drawn = with_operations(seed, with_conditions(seed, with_rare(seed, world_draw(seed))))
    drawn = with_guarantees(seed, with_zones(seed, drawn))
    return with_cores(seed, with_tier_parts(seed, drawn))
