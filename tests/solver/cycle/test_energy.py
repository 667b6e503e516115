"""Work whose tier may wait starts where and when energy is cheapest or cleanest, within its bound."""

from dataclasses import replace

import pytest

from solver import (
    Energy,
    PlannedStart,
    QuoteRequest,
    Request,
    Snapshot,
    Tier,
    Waiting,
    Where,
    encode,
    quote,
    solve,
)
from solver.model.sites.energy import EnergyCalendar
from tests.solver import truth
from tests.solver.builders import (
    HOUR,
    NOON,
    POLICY,
    TIERS,
    a_held,
    a_limit,
    a_request,
    a_snapshot,
    an_ask,
    gpus,
)

BASEL = tuple(replace(gpu, zone="basel") for gpu in gpus(2, node="n1", rack="r1"))
BERN = tuple(replace(gpu, zone="bern") for gpu in gpus(1, node="n2", rack="r2"))
NOW_HOUR = NOON // HOUR % 24
UTC = ((0, 0),)


def day(*cheap: int, dear: int = 3_100, low: int = 1_200) -> tuple[int, ...]:
    """A day that is cheap so many hours from NOON on."""
    hours = {(NOW_HOUR + each) % 24 for each in cheap}
    return tuple(low if hour in hours else dear for hour in range(24))


PRICES = (
    Energy("basel", day(4, 5), (40,) * 24, UTC),
    Energy("bern", (3_100,) * 24, day(2, low=9, dear=50), UTC),
)


def site(  # type: ignore[no-untyped-def]  # as a_snapshot
    *requests: Request, prefers: str = "price", shift: int = 8, energy: tuple[Energy, ...] = PRICES, **more
) -> Snapshot:
    tiers = (*TIERS[1:], Tier("standard", pausable=False, counts=True, prefers=prefers, shift=shift * HOUR))
    found = a_snapshot(*requests, **{"fleet": BASEL + BERN, "limits": (a_limit("lab", 3),), **more})
    return replace(found, tiers=tiers, energy=energy)


def start(found: Snapshot) -> tuple[int, str]:
    """When the only booking starts, in hours from NOON, and on which node."""
    (row,) = truth.given_by(solve(found, POLICY))
    return (row.starts - NOON) // HOUR, row.places[0].gpu.split("-")[0]


def waiting(found: Snapshot) -> Waiting:
    (wait,) = solve(found, POLICY).waits
    return wait


def test_work_that_may_wait_starts_when_energy_is_cheapest_and_says_so_with_numbers() -> None:
    wait = waiting(site(a_request()))
    (why,) = wait.reasons
    assert wait.starts == NOON + 4 * HOUR
    assert why.code == "energy"
    assert why.facts == {
        "prefers": "price",
        "cost": 1_200,
        "cost_before": 3_100,
        "zone": "basel",
        "zone_before": "bern",
        "clock": f"{NOW_HOUR + 4:02}:00",
        "clock_before": f"{NOW_HOUR:02}:00",
    }


def test_clean_energy_is_in_another_zone_at_another_hour() -> None:
    assert start(site(a_request(), prefers="carbon")) == (2, "n2")


def test_cheaper_energy_elsewhere_needs_no_waiting() -> None:
    energy = (PRICES[0], Energy("bern", (1_000,) * 24, (), UTC))
    assert start(site(a_request(), energy=energy)) == (0, "n2")


@pytest.mark.parametrize(
    "other",
    [
        site(a_request(), prefers=""),
        site(a_request(), shift=3),
        site(a_request(), energy=()),
        site(a_request(fixed=True)),
        site(a_request(latest=4 * HOUR)),
        site(a_request(), energy=(Energy("basel", (3_000, *(3_100,) * 23), (), UTC),)),
        site(a_request(ask=replace(an_ask(), where=Where(zones=("bern",))))),
        site(a_request(submitted=-5 * HOUR, earliest=-5 * HOUR)),
    ],
    ids=["no-preference", "too-short", "no-prices", "fixed", "deadline", "no-gain", "other-zone", "waited"],
)
def test_what_may_not_wait_or_gains_nothing_starts_at_once(other: Snapshot) -> None:
    assert start(other)[0] == 0


def test_a_planned_start_stays_and_its_reason_holds_for_the_hour() -> None:
    wait = waiting(site(a_request()))
    kept = PlannedStart(wait.starts, wait.ends, wait.places, wait.strength)
    again = waiting(replace(site(a_request(planned=kept)), now=NOON + 900))
    assert (again.starts, again.places, again.reasons) == (wait.starts, wait.places, wait.reasons)


def test_a_planned_start_never_gets_later_and_takes_what_is_cheaper_before() -> None:
    kept = waiting(site(a_request()))
    planned = PlannedStart(kept.starts, kept.ends, kept.places, kept.strength)
    bern = Energy("bern", (3_100,) * 24, (), ((0, HOUR),))
    later = (Energy("basel", day(6, low=100), (), UTC), bern)
    assert start(site(a_request(planned=planned), energy=later))[0] <= 4
    sooner = (Energy("basel", day(2, low=100), (), UTC), bern)
    assert start(site(a_request(planned=planned), energy=sooner)) == (2, "n1")


def test_without_a_gain_it_waits_no_longer() -> None:
    kept = waiting(site(a_request()))
    planned = PlannedStart(kept.starts, kept.ends, kept.places, kept.strength)
    assert start(site(a_request(planned=planned), energy=(Energy("basel", (5,) * 24, (), UTC),)))[0] == 0


@pytest.mark.parametrize("hours", [5, 9])
def test_a_start_beyond_its_bound_is_not_kept_for_energy(hours: int) -> None:
    """What was in its way has gone, and it has waited for longer than its tier may."""
    kept = waiting(site(a_request()))
    planned = PlannedStart(kept.starts, kept.ends, kept.places, kept.strength)
    asked = a_request(planned=planned, submitted=-hours * HOUR, earliest=-hours * HOUR)
    assert start(site(asked)) == (0, "n2")
    assert start(site(asked, shift=4 + hours)) == (4, "n1")


def test_it_takes_the_next_cheapest_hour_where_the_cheapest_is_taken() -> None:
    taken = tuple(a_held(f"n1-{n}", starts=4 * HOUR, ends=int(4.5 * HOUR)) for n in (0, 1))
    assert start(site(a_request(), held=taken)) == (5, "n1")


def test_a_quote_says_the_start_that_the_booking_gets() -> None:
    question = QuoteRequest(
        an_ask(), HOUR, NOON, None, fixed=False, tenant="lab", project="folding", tier="standard"
    )
    options = quote(site(), POLICY, question).options
    assert options[0].starts == waiting(site(a_request())).starts


def test_a_day_with_another_hour_counts_its_own_hours() -> None:
    """At NOON + 2 h the clocks go forward by one hour."""
    offsets = ((0, 0), (NOON + 2 * HOUR, HOUR))
    found = EnergyCalendar(Energy("x", tuple(range(24)), (), offsets), "price")
    assert [found.mean(NOON + n * HOUR, HOUR) - NOW_HOUR for n in range(4)] == [0, 1, 3, 4]
    assert found.mean(NOON + HOUR, 2 * HOUR) == (2 * NOW_HOUR + 4) // 2


def test_nothing_is_written_of_energy_where_no_tier_has_a_preference() -> None:
    assert b"energy" not in encode(a_snapshot(a_request()))
    assert b"shift" not in encode(a_snapshot(a_request()))
