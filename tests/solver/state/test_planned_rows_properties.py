"""Random calendars of what has not begun: one more is let in whenever that is possible at all."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

import pytest

from solver import Held, Host, Place, Plan, Request, Snapshot, encode, solve
from solver.rebinding.rebinding import Rebinding
from tests.solver import truth
from tests.solver.builders import (
    H100,
    HOUR,
    NOON,
    POLICY,
    a_held,
    a_request,
    a_snapshot,
    an_ask,
    gpus,
)

SHAPES = ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", None)
CORES = 16_000
WORLDS = 30
MANY = 3_000
SEARCHED = range(198, 199)


@dataclass(frozen=True)
class Piece:
    """Something that needs a place of its shape in a window, and so many cores of its node."""

    profile: str | None
    starts: int
    ends: int
    cores: int


def spots(site: Snapshot, profile: str | None) -> list[Place]:
    """All legal places of a shape."""
    if profile is None:
        return [Place(gpu.id, None, 0, 8) for gpu in site.gpus]
    return [
        Place(gpu.id, profile, each.start, each.size)
        for gpu in site.gpus
        for each in H100.placements
        if each.profile == profile
    ]


def fits_somehow(site: Snapshot, pieces: list[Piece], done: tuple[tuple[Piece, Place], ...]) -> bool:
    """By trying everything, one piece after the other."""
    if not pieces:
        return True
    first, rest = pieces[0], pieces[1:]
    for place in spots(site, first.profile):
        if _is_free(site, first, place, done) and fits_somehow(site, rest, (*done, (first, place))):
            return True
    return False


def _is_free(site: Snapshot, piece: Piece, place: Place, done: tuple[tuple[Piece, Place], ...]) -> bool:
    node_of = {gpu.id: gpu.node for gpu in site.gpus}
    neighbours = [(p, at) for p, at in done if p.starts < piece.ends and piece.starts < p.ends]
    for _, at in neighbours:
        is_apart = at.start + at.size <= place.start or place.start + place.size <= at.start
        if at.gpu == place.gpu and not is_apart:
            return False
    here = [p for p, at in neighbours if node_of[at.gpu] == node_of[place.gpu]]
    for second in {piece.starts, *(p.starts for p in here)}:
        used = sum(p.cores for p in here if p.starts <= second < p.ends)
        if piece.starts <= second < piece.ends and used + piece.cores > CORES:
            return False
    return True


def a_site(chance: Random) -> Snapshot:
    """Up to three GPUs with slices and whole ones in the next hours, and one that wants a window
    that meets them all."""
    fleet = tuple(
        gpu for n in range(chance.randint(2, 3)) for gpu in gpus(1, node=f"n{chance.choice((n, 0))}")
    )
    fleet = tuple(replace(gpu, id=f"{gpu.node}-{n}", number=n) for n, gpu in enumerate(fleet))
    site = replace(
        a_snapshot(fleet=fleet),
        hosts=tuple(Host(n, CORES, 0) for n in sorted({g.node for g in fleet})),
    )
    rows: list[Held] = []
    for number in range(chance.randint(1, 4)):
        window = (HOUR + chance.choice((0, 600, 1_200)), 2 * HOUR + chance.choice((0, 900)))
        cores = chance.choice((0, 0, 0, 5_000, 9_000))
        row = _first_free(site, rows, chance, (chance.choice(SHAPES[:4]), window, cores))
        if row is not None:
            rows.append(replace(row, id=f"k{number}", booking=f"k{number}"))
    ask = replace(an_ask(profile=chance.choice(SHAPES[2:])), cores=chance.choice((0, 0, 4_000, 12_000)))
    new = a_request("new", ask, earliest=HOUR + 1_200, fixed=True)
    return replace(site, held=tuple(rows), requests=(new,))


def _first_free(
    site: Snapshot,
    rows: list[Held],
    chance: Random,
    spot: tuple[str | None, tuple[int, int], int],
) -> Held | None:
    profile, (starts, ends), cores = spot
    done = tuple((_piece(row), row.place) for row in rows)
    piece = Piece(profile, NOON + starts, NOON + ends, cores)
    able = [place for place in spots(site, profile) if _is_free(site, piece, place, done)]
    if not able:
        return None
    place = chance.choice(able)
    row = a_held(place.gpu, starts=starts, ends=ends, level="any")
    return replace(row, place=place, cores=cores)


def _piece(row: Held) -> Piece:
    return Piece(row.place.profile, row.starts, row.ends, row.cores)


def _wanted(request: Request) -> Piece:
    ends = request.earliest + request.duration
    return Piece(request.ask.profile, request.earliest, ends, request.ask.cores)


def checked(site: Snapshot) -> Plan:
    plan = solve(site, POLICY)
    assert truth.overlaps(site, plan) == []
    assert truth.beyond_hosts(site, plan) == []
    assert truth.illegal(site, plan) == []
    assert truth.moved_wrongly(site, plan, POLICY.freeze_horizon) == []
    assert not (plan.moves and plan.refusals)
    return plan


def worlds(seeds: range) -> Iterator[Snapshot]:
    """The same for the same seeds."""
    return (a_site(Random(seed)) for seed in seeds)  # noqa: S311  made up


def outcomes(seeds: range) -> Iterator[str]:
    """What became of the newcomer of each world: it is refused only where nothing fits."""
    for seed, site in zip(seeds, worlds(seeds), strict=True):
        plan = checked(site)
        pieces = [_wanted(site.requests[0]), *map(_piece, site.held)]
        assert bool(plan.assigns) == fits_somehow(site, pieces, ()), f"world {seed}"
        yield "refused" if plan.refusals else "moved" if plan.moves else "fitted"


def test_one_more_is_refused_only_if_no_way_to_lay_all_of_them_exists() -> None:
    found = Counter(outcomes(range(WORLDS)))
    assert min(found["refused"], found["moved"], found["fitted"]) > 2, found


@pytest.mark.long
def test_the_same_for_very_many_worlds() -> None:
    assert sum(1 for _ in outcomes(range(WORLDS, MANY))) == MANY - WORLDS


def test_worlds_in_any_order_of_rows_are_decided_alike() -> None:
    for site in worlds(range(12)):
        turned = replace(site, held=site.held[::-1], gpus=site.gpus[::-1], hosts=site.hosts[::-1])
        assert encode(solve(turned, POLICY)) == encode(solve(site, POLICY))


def test_where_no_simple_way_is_enough_the_search_finds_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert list(outcomes(SEARCHED)) == ["moved"]
    monkeypatch.setattr("solver.rebinding.rebinding.proven", lambda *_: None)
    with pytest.raises(AssertionError, match="world"):
        list(outcomes(SEARCHED))


def test_the_control_without_moves_many_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rebinding, "place_with_moves", lambda *_: None)
    with pytest.raises(AssertionError, match="world"):
        list(outcomes(range(WORLDS)))
