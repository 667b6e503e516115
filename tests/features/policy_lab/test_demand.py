"""Demand that never came is drawn from the past: more of it, larger, or at once, and always the same."""

from collections import Counter
from dataclasses import replace

import pytest

from allocation.features.policy_lab.demand import DemandTerms, history_under, source_of
from allocation.features.policy_lab.history import Names
from allocation.features.policy_lab.plays.jobs import DAY
from allocation.features.policy_lab.plays.past import History
from solver import Policy
from tests.features.policy_lab.test_play import a_past, a_site, outcomes

HOUR = 3_600
TENANTS = ("a", "b")


def a_history(days: int = 10, each_day: int = 40) -> History:
    past = tuple(
        a_past(day * 100 + n, day * DAY + n * 1_200, tenant=TENANTS[n % 2], hours=1 + n % 3, count=1 + n % 4)
        for day in range(days)
        for n in range(each_day)
    )
    site = a_site()
    return History(site, (replace(past[0], is_first=True), *past[1:]), site.now + days * DAY)


HISTORY = a_history()
ASKED = len(HISTORY.past)


def test_without_a_change_it_is_the_past() -> None:
    assert history_under(HISTORY, DemandTerms()) is HISTORY


@pytest.mark.parametrize("load", [50, 130, 250])
def test_more_work_is_like_that_of_the_past(load: int) -> None:
    found = history_under(HISTORY, DemandTerms(load=load))
    assert abs(len(found.past) - ASKED * load / 100) < ASKED * 0.1
    ids = [each.request.booking for each in found.past]
    assert len(set(ids)) == len(ids)
    by_id = {each.request.booking: each for each in HISTORY.past}
    for each in found.past:
        source, request = by_id[source_of(each.request.booking)], each.request
        same = source.request.tenant, source.request.ask, source.request.duration, source.really
        assert (request.tenant, request.ask, request.duration, each.really) == same
        assert request.earliest - request.submitted == source.request.earliest - source.request.submitted
        assert HISTORY.site.now <= request.submitted < HISTORY.ends
    assert found.past[0] == HISTORY.past[0], "what ran already is there once"
    assert found == history_under(HISTORY, DemandTerms(load=load))


def test_sizes_grow_on_average_and_none_is_empty() -> None:
    found = history_under(HISTORY, DemandTerms(sizes=150))
    before, after = (sum(each.request.ask.count for each in one.past) for one in (HISTORY, found))
    assert 1.4 < after / before < 1.6
    assert min(each.request.ask.count for each in history_under(HISTORY, DemandTerms(sizes=10)).past) == 1


def test_bursts_come_within_minutes_and_another_time_each_day() -> None:
    found = history_under(HISTORY, DemandTerms(bursts=80))
    times = Counter[int]()
    for each in found.past:
        times[each.request.submitted // 1_200] += 1
    largest = [times[slot] + times[slot + 1] for slot, _ in times.most_common(10)]
    assert min(largest) > 20
    assert len({slot % 72 for slot, _ in times.most_common(10)}) > 3


@pytest.mark.turn
def test_more_work_waits_longer() -> None:
    history = a_history(days=1)
    few, many = (outcomes(history_under(history, DemandTerms(load=load)), Policy(1)) for load in (50, 300))
    assert few.used.total() < many.used.total()
    assert sum(fate.started is None for fate in few.fates.values()) < sum(
        fate.started is None for fate in many.fates.values()
    )


def test_copies_are_named_after_what_they_are_like() -> None:
    found = history_under(HISTORY, DemandTerms(load=200))
    names = Names({each.request.booking: f"B-{each.request.booking}" for each in HISTORY.past}, {}, {})
    assert names.with_copies(found).bookings["b101~1"] == "like B-b101"
