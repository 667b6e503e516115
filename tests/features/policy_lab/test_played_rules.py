"""What depends on the time in a play: caps, exceptions, limits at some times, peaks, changes, arrays."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from allocation.features.policy_lab.past_rules import Prices
from allocation.features.policy_lab.plays.jobs import PeakSeconds
from allocation.features.policy_lab.plays.past import Changed, History, Past
from allocation.features.policy_lab.plays.rules_in_time import Foreseen, Granted, Rules
from allocation.services.snapshot.limits_in_time import GPU_HOUR, CapRule
from billing.rates import NO_PEAKS, PeakHours
from solver import UNITS_PER_GPU, Cap, Override, Policy, Used
from solver.model.inner_limits import Peak
from tests.features.policy_lab.test_play import (
    DAY,
    HOUR,
    SPOT,
    a_past,
    a_site,
    outcomes,
)
from tests.solver.builders import NOON, a_limit

PLAIN = Policy(1)
MIDNIGHT = NOON // DAY * DAY + DAY


def a_history(*past: Past, rules: Rules, days: int = 3, **facts: object) -> History:
    return replace(History(a_site(), past, NOON + days * DAY), rules=rules, **facts)  # type: ignore[arg-type]


def starts(history: History, policy: Policy = PLAIN) -> list[int | None]:
    fates = outcomes(history, policy).fates
    found = (fates[each.request.booking].started for each in history.past)
    return [None if at is None else at - NOON for at in found]


def test_a_rolling_cap_lets_the_next_booking_wait_for_another_day() -> None:
    past = (a_past(1, 0, hours=2, count=4), a_past(2, 3 * HOUR, hours=2, count=1))
    assert starts(a_history(*past, rules=Rules())) == [0, 3 * HOUR]
    capped = Rules(caps=(CapRule("a", "h100", 8, 1, carries=False),))
    first, second = starts(a_history(*past, rules=capped))
    assert first == 0
    assert second is not None
    assert second >= MIDNIGHT - NOON, "its organisation used all hours of a day"


def test_a_cap_of_months_counts_what_was_used_before_and_begins_anew() -> None:
    before = Used("a", "a-p", "h100", NOON // DAY * DAY, 10 * GPU_HOUR)
    rule = CapRule("a", "h100", 10, None, carries=False)
    at = datetime.fromtimestamp(NOON, UTC)
    site = replace(a_site(), used=(before,))
    days = (datetime(at.year, at.month + 1, 1, tzinfo=UTC) - at).days + 2
    history = replace(History(site, (a_past(1, 0),), NOON + days * DAY), rules=Rules(caps=(rule,)))
    (start,) = starts(history)
    assert start is not None
    assert datetime.fromtimestamp(NOON + start, UTC).day == 1


def test_only_use_of_its_class_and_month_counts_against_what_a_month_carries_over() -> None:
    now = datetime(2026, 11, 17, tzinfo=UTC)
    october = int(datetime(2026, 10, 5, tzinfo=UTC).timestamp())
    rows = (
        Used("a", "p", "h100", october, 3 * GPU_HOUR),
        Used("a", "p", "a100", october, 5 * GPU_HOUR),
        Used("a", "p", "h100", int(now.timestamp()), 5 * GPU_HOUR),
        Used("b", "q", "h100", october, 5 * GPU_HOUR),
    )
    rule = CapRule("a", "h100", 10, None, carries=True)
    caps: list[Cap] = list(rule.caps(rows, now))
    assert [each.most // GPU_HOUR for each in caps] == [17, 10, 10]
    lab = replace(rule, owner="lab", projects=frozenset({"q"}))
    assert next(lab.caps(rows, now)).most == 15 * GPU_HOUR


def test_an_exception_counts_from_when_it_was_granted() -> None:
    row = Override("one", "a", "h100", NOON, NOON + 2 * DAY, units=2 * UNITS_PER_GPU)
    site = replace(a_site(), limits=(a_limit("a", 2, borrow=0), a_limit("b", 2, borrow=0)))
    past = (a_past(1, 0, hours=8, count=2), a_past(2, 0, hours=8, count=2))
    history = History(site, past, NOON + DAY)
    assert starts(history) == [0, 8 * HOUR]
    granted = Rules(exceptions=(Granted(NOON + 2 * HOUR, None, row),))
    # An organisation's own guarantee does not rise, so it borrows what nobody else uses.
    spot = tuple(replace(each, request=replace(each.request, tier="spot", priority=10)) for each in past)
    assert starts(replace(history, past=spot, rules=granted))[1] == 2 * HOUR
    ended = Rules(exceptions=(Granted(NOON - HOUR, NOON, row),))
    assert starts(replace(history, past=spot, rules=ended))[1] == 8 * HOUR


def test_a_limit_at_some_times_keeps_work_out_of_them() -> None:
    step = Override("step", "a", "h100", NOON, NOON + 6 * HOUR, units=-4 * UNITS_PER_GPU)
    site = replace(a_site(), limits=(a_limit("a", 4, borrow=0), a_limit("b", 0)))
    history = History(site, (a_past(1, 0, tier=SPOT),), NOON + DAY)
    assert starts(history) == [0]
    assert starts(replace(history, rules=Rules(steps=(step,)))) == [6 * HOUR]


def test_headroom_is_kept_free_at_the_peaks_that_were_foreseen_then() -> None:
    peak = Peak("h100", NOON, NOON + 4 * HOUR)
    policy = Policy(1, headroom=(("h100", 2),))
    past = tuple(a_past(number, 0, tier=SPOT, hours=1) for number in range(4))
    assert starts(a_history(*past, rules=Rules()), policy) == [0, 0, 0, 0]
    foreseen = Rules(foreseen=(Foreseen(NOON, (peak,)),))
    assert starts(a_history(*past, rules=foreseen), policy).count(0) == 2
    assert starts(a_history(*past, rules=foreseen)) == [0, 0, 0, 0], "the other policy keeps nothing free"
    late = Rules(foreseen=(Foreseen(NOON + HOUR, (peak,)),))
    assert starts(a_history(*past, rules=late), policy) == [0, 0, 0, 0]


def test_a_pause_repeats_work_and_what_was_repeated_is_counted() -> None:
    long = a_past(1, 0, tenant="b", tier=SPOT, hours=10, count=4)
    claim = a_past(2, 2 * HOUR, hours=1, count=4)
    history = History(a_site(), (long, claim), NOON + 2 * DAY)
    plain = outcomes(history, Policy(1))
    again = outcomes(replace(history, repeated={"spot": HOUR}), Policy(1))
    assert (plain.fates["b001"].pauses, again.fates["b001"].pauses) == (1, 1)
    assert (plain.fates["b001"].lost, again.fates["b001"].lost) == (0, 4 * HOUR)
    assert again.used.total() - plain.used.total() == 4 * UNITS_PER_GPU * HOUR
    most = outcomes(replace(history, repeated={"spot": 9 * HOUR}), Policy(1))
    assert most.fates["b001"].lost <= 4 * 3 * HOUR, "never more than it had run"


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_use_in_peak_hours_is_counted_apart(zone: str) -> None:
    hours = PeakHours(zone, tuple((day, 8, 20) for day in range(7)))
    history = replace(History(a_site(), (a_past(1, 0, hours=24),), NOON + 2 * DAY), peak_hours=hours)
    outcome = outcomes(history, Policy(1))
    since, until = (datetime.fromtimestamp(NOON + at, UTC) for at in (0, DAY))
    (use,) = outcome.used
    assert outcome.peak[use] == hours.spell(since, until).peak * UNITS_PER_GPU
    assert outcome.used[use] == DAY * UNITS_PER_GPU
    found = PeakSeconds(hours, NOON, NOON + 9 * DAY)
    for begin in range(0, 3 * DAY, 7_001):
        span = (datetime.fromtimestamp(NOON + begin + add, UTC) for add in (0, 50_003))
        assert found.between(NOON + begin, NOON + begin + 50_003) == hours.spell(*span).peak


def test_a_slice_without_prices_costs_as_its_class() -> None:
    prices = Prices(NO_PEAKS, {("h100", "standard", ""): (5, 9), ("h100", "standard", "1g"): (7, 8)}, {})
    assert prices.rate(("h100", "standard", "1g")) == (7, 8)
    assert prices.rate(("h100", "standard", "2g")) == (5, 9)
    assert prices.rate(("a100", "standard", "")) == (0, 0)


def changed(past: Past, at: int, **facts: object) -> Past:
    request = replace(past.request, **facts)  # type: ignore[arg-type]
    return replace(past, changes=(*past.changes, Changed(NOON + at, request)))


def test_a_waiting_booking_asks_for_what_it_was_changed_to() -> None:
    runs, waits = a_past(1, 0, hours=6, count=3), a_past(2, 600, hours=2, count=4)
    asks = replace(waits.request.ask, count=1)
    history = History(a_site(), (runs, waits), NOON + DAY)
    assert starts(history) == [0, 6 * HOUR]
    less = replace(history, past=(runs, changed(waits, HOUR, ask=asks)))
    assert starts(less) == [0, HOUR]
    outcome = outcomes(less, Policy(1))
    assert outcome.used.total() == (3 * 6 + 1 * 2) * HOUR * UNITS_PER_GPU


def test_a_run_gives_up_gpus_and_time_when_it_did() -> None:
    runs, waits = a_past(1, 0, hours=6, count=4), a_past(2, 600, hours=2, count=2)
    less = changed(runs, HOUR, ask=replace(runs.request.ask, count=2))
    assert starts(History(a_site(), (less, waits), NOON + DAY)) == [0, HOUR]
    short = changed(runs, HOUR, duration=2 * HOUR)
    assert starts(History(a_site(), (short, waits), NOON + DAY)) == [0, 2 * HOUR]


def test_a_later_end_is_granted_where_the_policy_has_room() -> None:
    runs = replace(a_past(1, 0, hours=2, count=4), really=5 * HOUR)
    longer = changed(runs, HOUR, duration=5 * HOUR)
    history = History(a_site(), (longer, a_past(2, 90 * 60, hours=1, count=4)), NOON + DAY)
    assert starts(history) == [0, 5 * HOUR]
    kept = changed(replace(runs, really=3 * HOUR), 90 * 60, duration=3 * HOUR)
    other = a_past(2, 0, count=4)
    other = replace(other, request=replace(other.request, fixed=True, earliest=NOON + 2 * HOUR))
    outcome = outcomes(History(a_site(), (kept, other), NOON + DAY), Policy(1))
    assert outcome.fates["b002"].started == NOON + 2 * HOUR, "a window that was booked before it"
    assert outcome.used.total() == 4 * (2 + 2) * HOUR * UNITS_PER_GPU


def test_elements_of_an_array_come_when_those_before_them_are_over() -> None:
    elements = [replace(a_past(number, 0, hours=2), array="x", parallel=2) for number in range(1, 6)]
    elements[1] = replace(elements[1], really=HOUR)
    assert starts(History(a_site(), tuple(elements), NOON + DAY)) == [0, 0, HOUR, 2 * HOUR, 3 * HOUR]
    short = outcomes(History(a_site(), tuple(elements), NOON + HOUR // 2), Policy(1)).fates
    assert [short[f"b00{number}"].came for number in range(1, 6)] == [NOON, NOON, None, None, None]
    more = [replace(each, parallel=4) for each in elements]
    assert starts(History(a_site(), tuple(more), NOON + DAY)) == [0, 0, 0, 0, HOUR]
