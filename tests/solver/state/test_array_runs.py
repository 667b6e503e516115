"""When the last of many equal runs ends, by the free room and quota of now."""

from dataclasses import replace

import pytest

from solver import Availability, Held, LastRun, Limit, QuoteRequest, Runs
from solver.state.array_runs import MOST_PLACED
from tests.solver.builders import HOUR, NOON, POLICY, a_held, a_limit, a_snapshot, an_ask, gpus
from tests.solver.cycle.test_quote import a_question

BUSY = tuple(a_held(f"n1-{index}", ends=4 * HOUR) for index in range(2))
SHORT = (a_limit("lab", 3),)


@pytest.mark.parametrize(
    ("runs", "held", "limits", "hours", "at_once"),
    [
        (Runs(8, 8), (), (), 2, 4),
        (Runs(8, 2), (), (), 4, 2),
        (Runs(7, 8), (), SHORT, 3, 3),
        # Two at a time until the others end after four hours.
        (Runs(12, 12), BUSY, (), 5, 4),
        # What has no place of its own follows at the same rate.
        (Runs(2 * MOST_PLACED, MOST_PLACED), (), (), 2 * MOST_PLACED // 4, 4),
    ],
)
def test_the_last_run_ends_by_room_quota_and_what_is_open_at_a_time(
    runs: Runs, held: tuple[Held, ...], limits: tuple[Limit, ...], hours: int, at_once: int
) -> None:
    site = Availability(a_snapshot(fleet=gpus(4), held=held, limits=limits), POLICY)
    question = a_question(hours=1)
    before = site.quote(question)
    assert site.last_run(question, runs) == LastRun(NOON + hours * HOUR, at_once)
    # Nothing stays reserved.
    assert site.quote(question) == before
    assert site.last_run(question, runs) == LastRun(NOON + hours * HOUR, at_once)


def test_runs_of_several_gpus_need_them_at_the_same_time() -> None:
    site = Availability(a_snapshot(fleet=gpus(4), held=BUSY[:1]), POLICY)
    question: QuoteRequest = replace(a_question(hours=1), ask=an_ask(2))
    # Three are free, so one run at a time has two of them for four hours.
    assert site.last_run(question, Runs(5, 5)) == LastRun(NOON + 5 * HOUR, 1)
    assert site.last_run(question, Runs(6, 6)) == LastRun(NOON + 5 * HOUR, 2)
