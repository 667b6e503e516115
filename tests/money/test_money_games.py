"""Nobody gets GPU time for less than its price: random lives against the pure rule of charging."""

import dataclasses
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from allocation.rules import charging
from billing.price_lines import PriceLine, Size, lines_after, lines_cut
from billing.rates import Spell
from billing.rules import UNITS_PER_GPU
from tests.money import changes
from tests.money.games import play

GAMES, SEED = 100_000, 20_261_122
Lines = tuple[PriceLine, ...]


def test_nobody_gets_time_for_less_than_its_price_in_a_hundred_thousand_games() -> None:
    assert play(GAMES, SEED) > GAMES


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_nor_in_a_million(seed: int) -> None:
    assert play(GAMES, seed) > GAMES


Rule = Callable[..., Any]
Facts = Any  # what a faulty rule hands on to the right one
Time = Any  # that of the right one, changed
_bill, _end, _time, _fee = (
    charging.pause_bill,
    charging.end_time,
    charging.Run.time,
    charging.no_show_fee,
)


def _own_is_credited(run: charging.Run, **facts: Facts) -> charging.PauseBill:
    return _bill(dataclasses.replace(run, own=False), **facts)


def _cap_for_each_pause(run: charging.Run, **facts: Facts) -> charging.PauseBill:
    facts["before"] = dataclasses.replace(facts["before"], credited=0)
    return _bill(run, **facts)


def _credit_used_twice(run: charging.Run, **facts: Facts) -> charging.PauseBill:
    return dataclasses.replace(_bill(run, **facts), redo=0)


def _earlier_runs_forgotten(run: charging.Run, **facts: Facts) -> charging.PauseBill:
    facts["before"] = dataclasses.replace(facts["before"], uncharged=Spell())
    return _bill(run, **facts)


def _window_grows(run: charging.Run, **facts: Facts) -> charging.PauseBill:
    return _bill(run, **{**facts, "is_fixed": False})


def _waiting_is_free(run: Spell, before: charging.EarlierRuns, rest: int) -> Time:
    return _end(run, dataclasses.replace(before, uncharged=Spell()), rest)


def _given_up_keeps_the_credit(run: Spell, before: charging.EarlierRuns, rest: int) -> Time:
    return _end(run, before, 0)


def _broken_costs_all(run: charging.Run, until: datetime) -> Time:
    return _time(dataclasses.replace(run, broken=False), until)


def _own_grace_is_free(run: charging.Run, until: datetime) -> Time:
    return _time(dataclasses.replace(run, own=False), until)


def _a_second_less(run: charging.Run, until: datetime) -> Time:
    found = _time(run, until)
    return found - Spell(1) if found.seconds else found


def _peaks_at_the_plain_price(run: charging.Run, until: datetime) -> Time:
    return Spell(_time(run, until).seconds)


def _credit_in_peaks_is_plain(run: charging.Run, **facts: Facts) -> charging.PauseBill:
    bill = _bill(run, **facts)
    return dataclasses.replace(bill, charged=bill.charged + Spell(0, bill.credit.peak))


FAULTS: list[tuple[str, Rule]] = [
    ("pause_bill", _own_is_credited),
    ("pause_bill", _cap_for_each_pause),
    ("pause_bill", _credit_used_twice),
    ("pause_bill", _earlier_runs_forgotten),
    ("pause_bill", _window_grows),
    ("end_time", _waiting_is_free),
    ("end_time", _given_up_keeps_the_credit),
    ("Run.time", _broken_costs_all),
    ("Run.time", _own_grace_is_free),
    ("Run.time", _a_second_less),
    ("Run.time", _peaks_at_the_plain_price),
    ("pause_bill", _credit_in_peaks_is_plain),
    ("no_show_fee", lambda rest, share: 0),
    ("no_show_fee", lambda rest, share: rest),
]


@pytest.mark.parametrize(("name", "fault"), FAULTS)
def test_a_planted_fault_is_found(name: str, fault: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, _, method = name.rpartition(".")
    monkeypatch.setattr(charging.Run if owner else charging, method, fault)
    with pytest.raises(AssertionError):
        play(2_000, SEED)


def test_nobody_gains_by_changes_in_a_thousand_games() -> None:
    assert changes.play(1_000, SEED) > 1_000


def _old_price_for_all(lines: Lines, old: Size, new: Size, _: Decimal) -> Lines:
    return lines_after(lines, old, new, lines[0].per_hour * UNITS_PER_GPU / old.units)


def _moved_for_free(
    old: charging.Granted, new: charging.Granted | None, since: datetime, until: datetime
) -> Facts:
    is_moved = new is not None and new.starts != old.starts
    return charging.given_up(old, old if is_moved else new, since, until)


def _back_for_nothing(lines: Lines, spent: int, granted: int, will: int, was: int) -> Lines:
    cut = lines_cut(lines, 0, granted, will, was)
    return (*cut[:-1], dataclasses.replace(cut[-1], seconds=granted))


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("lines_after", _old_price_for_all),
        ("given_up", _moved_for_free),
        ("lines_cut", _back_for_nothing),
    ],
)
def test_a_planted_fault_of_changes_is_found(name: str, fault: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, name, fault)
    with pytest.raises(AssertionError):
        changes.play(200, SEED)
