"""MIG geometry: legal placement and disjoint slots is the whole rule of the hardware."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from solver.fleet import pool as topology
from solver.fleet.fragmentation import Ints
from solver.fleet.mig_geometry import Best, Geometry, geometry_of, units_of
from solver.fleet.pool import Pool
from solver.model.demand import Demand
from solver.model.inputs import Model, Place, Placement
from solver.placement.gang import place
from tests.solver.builders import A30, A100_40, H100, H200, L40S, gpus


def sets_of(placements: tuple[Placement, ...]) -> list[tuple[Placement, ...]]:
    """All sets of placements that share no memory slot, the empty one too."""
    found: list[tuple[Placement, ...]] = [()]
    for placement in placements:
        mine = set(range(placement.start, placement.start + placement.size))
        found += [
            (*others, placement)
            for others in found
            if not any(mine & set(range(o.start, o.start + o.size)) for o in others)
        ]
    return found


def slots_of(placements: tuple[Placement, ...]) -> int:
    """Memory slots of disjoint placements as a mask."""
    return sum(((1 << p.size) - 1) << p.start for p in placements)


def plain(model: Model) -> tuple[Placement, ...]:
    """Without the media-engine twins."""
    return tuple(p for p in model.placements if "+" not in p.profile)


@pytest.mark.parametrize(
    ("model", "sets", "compute"), [(H100, 723, 7), (A100_40, 723, 7), (H200, 723, 7), (A30, 26, 4)]
)
def test_all_sets_of_disjoint_legal_placements_stay_within_the_compute_slices(
    model: Model, sets: int, compute: int
) -> None:
    found = sets_of(plain(model))
    assert len(found) == sets
    assert max(sum(p.compute for p in each) for each in found) == compute


@pytest.mark.parametrize("model", [H100, A100_40, A30])
def test_the_capacity_table_says_how_many_more_fit_beside_every_such_set(model: Model) -> None:
    geometry = geometry_of(model)
    busy_masks = {slots_of(taken) for taken in sets_of(plain(model))}
    for profile in {p.profile for p in plain(model)}:
        alike = sets_of(tuple(p for p in plain(model) if p.profile == profile))
        for busy in busy_masks:
            most = max(len(more) for more in alike if not busy & slots_of(more))
            assert geometry.capacity(profile)[busy] == most


UNITS = {
    ("h100-80gb", None): 56_000,
    ("h100-80gb", "1g.10gb"): 8_000,
    ("h100-80gb", "1g.20gb"): 14_000,
    ("h100-80gb", "2g.20gb"): 16_000,
    ("h100-80gb", "3g.40gb"): 28_000,
    ("h100-80gb", "4g.40gb"): 32_000,
    ("h100-80gb", "7g.80gb"): 56_000,
    ("a30", "1g.6gb"): 14_000,
    ("a30", "2g.12gb"): 28_000,
}


@pytest.mark.parametrize(("slug", "profile"), UNITS)
def test_a_slice_costs_its_larger_part_of_the_gpu(slug: str, profile: str | None) -> None:
    model = {model.slug: model for model in (H100, A30)}[slug]
    assert units_of(model, profile) == UNITS[slug, profile]


def test_a_profile_that_the_model_does_not_have_has_no_units() -> None:
    with pytest.raises(KeyError):
        units_of(L40S, "1g.10gb")


def put(*profiles: str) -> list[tuple[str, int]] | None:
    """Where the profiles go one after the other on an empty H100, None when one does not fit."""
    pool = Pool("h100", gpus(1), {H100.slug: H100})
    busy, found = np.zeros(1, dtype=np.uint16), []
    for profile in profiles:
        places = place(pool, Demand("h100", profile, 1, "any", 1, ()), busy)
        if places is None:
            return None
        busy[0] |= pool.mask_of(places[0])
        found.append((profile, places[0].start))
    return found


PACKED: dict[str, tuple[tuple[str, ...], list[tuple[str, int]] | None]] = {
    "a 3g leaves the first slots to a 4g": (("3g.40gb", "4g.40gb"), [("3g.40gb", 4), ("4g.40gb", 0)]),
    "a 1g leaves slot 7 to the only profile that reaches it": (("1g.10gb",), [("1g.10gb", 4)]),
    "what a 1g has broken is filled up first": (
        ("1g.10gb", "1g.10gb", "1g.20gb"),
        [("1g.10gb", 4), ("1g.10gb", 5), ("1g.20gb", 6)],
    ),
    "two 3g fill the memory, so a 1g finds no slot": (("3g.40gb", "3g.40gb", "1g.10gb"), None),
    "an eighth does not: slot 7 is out of its reach": (("1g.10gb",) * 8, None),
    "a 2g does not reach the last two slots": (("2g.20gb",) * 4, None),
    "one media engine is all there is": (("1g.10gb+me", "1g.10gb+me"), None),
    "a whole card's slice excludes everything": (("7g.80gb", "1g.10gb"), None),
    "a 4g, a 2g and a 1g fit together": (
        ("4g.40gb", "2g.20gb", "1g.10gb"),
        [("4g.40gb", 0), ("2g.20gb", 4), ("1g.10gb", 6)],
    ),
}


@pytest.mark.parametrize("sentence", PACKED)
def test_slices_are_packed_so_that(sentence: str) -> None:
    profiles, places = PACKED[sentence]
    assert put(*profiles) == places


def test_seven_of_the_smallest_fit_on_the_seven_slots_that_they_reach() -> None:
    places = put(*("1g.10gb",) * 7)
    assert places is not None
    assert sorted(start for _, start in places) == [0, 1, 2, 3, 4, 5, 6]


def test_every_order_of_a_full_mix_fits_because_big_slices_stay_possible() -> None:
    mixes = [("3g.40gb", "4g.40gb"), ("3g.40gb", "3g.40gb"), ("2g.20gb",) * 3]
    for mix in mixes:
        for order in set(product(mix, repeat=len(mix))):
            if sorted(order) == sorted(mix):
                assert put(*order) is not None, order


def test_without_the_worth_of_what_is_left_a_3g_bars_the_4g(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    best_of = Geometry.best_of

    def first(self: Geometry, profile: str, long_run: Ints, immediate: Ints, weight: int) -> Best:
        best = best_of(self, profile, long_run, immediate, weight)
        return replace(best, number=np.minimum(best.number, 0))

    monkeypatch.setattr(Geometry, "best_of", first)
    topology._best_of.cache_clear()
    request.addfinalizer(topology._best_of.cache_clear)
    assert put("3g.40gb", "4g.40gb") is None


def test_running_work_counts_as_it_is_even_where_it_could_not_be_placed() -> None:
    geometry = geometry_of(H100)
    assert geometry.mask_of(Place("g", "1g.10gb", 7, 1)) == 0b1000_0000
    assert not geometry.is_legal(Place("g", "1g.10gb", 7, 1))


def test_a_limit_that_masks_cannot_say_is_refused() -> None:
    odd = Model("odd", 8, 7, "online", tuple(Placement("1g", s, 1, 1, 1, 2) for s in range(7)))
    with pytest.raises(ValueError, match="limit 2 of 7"):
        Geometry(odd)
