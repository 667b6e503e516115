"""Work that takes longer on some classes, and series that are had whole or not at all."""

import random
from dataclasses import replace

import pytest

from solver import (
    Assign,
    Plan,
    QuoteRequest,
    Request,
    Snapshot,
    Waiting,
    encode,
    quote,
    solve,
)
from tests.solver.builders import (
    DAY,
    HOUR,
    NOON,
    POLICY,
    a_held,
    a_limit,
    a_planned_start,
    a_request,
    a_snapshot,
    an_ask,
    gpus,
    whole,
)

SITE = gpus(2) + gpus(2, "l40s", "l40s", node="n2", domains=None)


def work(
    booking: str = "b1",
    *,
    h100: float = 2,
    l40s: float = 6,
    first: str = "l40s",
    latest: int | None = None,
    cheapest: bool = False,
    **more: object,
) -> Request:
    """Work for one GPU that an L40S needs three times as long for, `first` the cheaper one."""
    classes = (first, "h100" if first == "l40s" else "l40s")
    lengths = {"h100": int(h100 * HOUR), "l40s": int(l40s * HOUR)}
    request = a_request(booking, an_ask(1, *classes), latest=latest, **more)  # type: ignore[arg-type]
    return replace(
        request,
        duration=min(lengths.values()),
        durations=tuple((name, lengths[name]) for name in classes),
        cheapest=cheapest,
    )


def decided(*requests: Request, held: tuple = (), limits: tuple = ()) -> Plan:  # type: ignore[type-arg]
    return solve(a_snapshot(*requests, fleet=SITE, held=held, limits=limits), POLICY)


def busy(node: str, ends: int) -> tuple:  # type: ignore[type-arg]
    return tuple(a_held(f"{node}-{index}", ends=ends) for index in range(2))


def test_work_goes_where_it_ends_first_and_takes_as_long_as_the_class_needs() -> None:
    (given,) = decided(work()).assigns
    assert (given.gpu_class, given.ends - given.starts) == ("h100", 2 * HOUR)
    (given,) = decided(work(), held=busy("n1", 5 * HOUR)).assigns
    assert (given.gpu_class, given.ends - given.starts) == ("l40s", 6 * HOUR)


def test_a_fast_class_that_frees_soon_beats_a_slow_one_that_is_free_now() -> None:
    (wait,) = decided(work(), held=busy("n1", 3 * HOUR)).waits
    assert (wait.gpu_class, wait.starts, wait.ends) == ("h100", NOON + 3 * HOUR, NOON + 5 * HOUR)


def test_of_two_that_end_together_the_first_class_is_taken() -> None:
    (given,) = decided(work(), held=busy("n1", 4 * HOUR)).assigns
    assert given.gpu_class == "l40s"
    (wait,) = decided(work(first="h100"), held=busy("n1", 4 * HOUR)).waits
    assert wait.gpu_class == "h100"


def test_with_a_deadline_the_cheapest_class_that_meets_it_is_taken() -> None:
    (given,) = decided(work(latest=8 * HOUR, cheapest=True)).assigns
    assert given.gpu_class == "l40s", "the dear one would end first, but nobody needs that"
    (given,) = decided(work(latest=5 * HOUR, cheapest=True)).assigns
    assert (given.gpu_class, given.ends) == ("h100", NOON + 2 * HOUR)
    (given,) = decided(work(latest=8 * HOUR, cheapest=True), held=busy("n2", 3 * HOUR)).assigns
    assert given.gpu_class == "h100", "the cheap one is free too late"


def test_a_class_too_slow_for_the_deadline_is_left_out_and_said_so() -> None:
    plan = decided(work(latest=5 * HOUR), held=busy("n1", 4 * HOUR))
    (refused,) = plan.refusals
    codes = [each.code for each in refused.reasons]
    assert codes == ["deadline_unreachable", "gpus_busy", "class_too_slow"]
    (wait,) = decided(work(latest=5 * HOUR), held=busy("n1", 2 * HOUR)).waits
    assert [each.code for each in wait.reasons] == ["gpus_busy", "class_too_slow"]


def test_a_planned_start_moves_earlier_only_if_it_ends_no_later() -> None:
    promised = work(first="h100", planned=a_planned_start(3 * HOUR, 2, whole("n1-0")))
    (wait,) = decided(promised, held=busy("n1", 3 * HOUR)).waits
    assert (wait.gpu_class, wait.starts) == ("h100", NOON + 3 * HOUR), "an L40S would end at 6 h"
    (given,) = decided(promised, held=busy("n1", 3 * HOUR)[:1]).assigns
    assert (given.gpu_class, given.starts) == ("h100", NOON)


def test_where_cost_decides_a_planned_start_never_moves_to_what_costs_more() -> None:
    cheap = work(latest=30 * HOUR, cheapest=True, planned=a_planned_start(5 * HOUR, 6, whole("n2-0")))
    (wait,) = decided(cheap, held=busy("n2", 5 * HOUR)).waits
    assert (wait.gpu_class, wait.starts) == ("l40s", NOON + 5 * HOUR)


def test_work_in_a_fixed_window_takes_what_its_class_needs() -> None:
    (given,) = decided(work(fixed=True, earliest=HOUR)).assigns
    assert (given.gpu_class, given.ends - given.starts) == ("l40s", 6 * HOUR)


def test_the_same_work_in_any_order_is_the_same_bytes() -> None:
    draw = random.Random(7)  # noqa: S311
    requests = [
        work(
            f"b{index:02}",
            h100=draw.choice([1, 2, 3]),
            l40s=draw.choice([2, 4, 9]),
            first=draw.choice(["h100", "l40s"]),
            latest=draw.choice([None, 20 * HOUR, 40 * HOUR]),
            cheapest=draw.choice([True, False]),
            submitted=index,
        )
        for index in range(16)
    ]
    plans = set()
    for _ in range(4):
        draw.shuffle(requests)
        plans.add(encode(decided(*requests)))
    assert len(plans) == 1


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 100))]
)
def test_work_never_ends_after_its_deadline_and_takes_exactly_its_length(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311
    requests = {
        f"b{index}": work(
            f"b{index}",
            h100=draw.randint(1, 6),
            l40s=draw.randint(1, 12),
            latest=draw.choice([None, draw.randint(6, 30) * HOUR]),
            cheapest=draw.random() < 0.5,
        )
        for index in range(12)
    }
    plan = decided(*requests.values())
    rows: list[Assign | Waiting] = [*plan.assigns, *plan.waits]
    for row in rows:
        asked = requests[row.booking]
        assert row.ends - row.starts == asked.length_on(row.gpu_class)
        assert asked.latest is None or row.ends <= asked.latest


# Series


def dates(*starts: int, series: str | None = "s", count: int = 1) -> tuple[Request, ...]:
    """One booking of two hours at each of these hours."""
    return tuple(
        replace(
            a_request(f"d{hour:02}", an_ask(count), hours=2, earliest=hour * HOUR, fixed=True),
            series=series,
        )
        for hour in starts
    )


def on(snapshot: Snapshot) -> Plan:
    return solve(snapshot, POLICY)


def test_all_dates_of_a_series_are_given_in_one_cycle() -> None:
    plan = on(a_snapshot(*dates(1, 25, 49), fleet=gpus(1)))
    assert [given.booking for given in plan.assigns] == ["d01", "d25", "d49"]


def test_one_date_that_is_taken_refuses_them_all_and_names_it() -> None:
    taken = a_held("n1-0", starts=25 * HOUR, ends=26 * HOUR)
    plan = on(a_snapshot(*dates(1, 25, 49), fleet=gpus(1), held=(taken,)))
    assert plan.assigns == ()
    codes = {refused.booking: refused.reasons[0].code for refused in plan.refusals}
    assert codes == {"d01": "series_conflict", "d25": "gpus_busy", "d49": "series_conflict"}
    numbers = dict(plan.refusals[0].reasons[0].numbers)
    assert numbers == {"conflicts": 1, "of": 3, "first_conflict": NOON + 25 * HOUR}


def test_room_that_a_refused_series_had_is_free_for_the_next_in_line() -> None:
    taken = a_held("n1-0", starts=25 * HOUR, ends=26 * HOUR)
    other = a_request("z", hours=2, earliest=HOUR, fixed=True, submitted=900)
    plan = on(a_snapshot(*dates(1, 25), other, fleet=gpus(1), held=(taken,)))
    assert [given.booking for given in plan.assigns] == ["z"]
    limits = (a_limit("lab", 1), a_limit("folding", 1, parent="lab"))
    plan = on(a_snapshot(*dates(1, 25), other, fleet=gpus(1), held=(taken,), limits=limits))
    assert [given.booking for given in plan.assigns] == ["z"], "its quota is free again too"


def test_dates_without_a_bond_are_decided_one_by_one() -> None:
    taken = a_held("n1-0", starts=25 * HOUR, ends=26 * HOUR)
    plan = on(a_snapshot(*dates(1, 25, 49, series=None), fleet=gpus(1), held=(taken,)))
    assert [given.booking for given in plan.assigns] == ["d01", "d49"]
    assert [refused.booking for refused in plan.refusals] == ["d25"]


def test_a_date_that_is_no_window_any_more_is_bound_to_nobody() -> None:
    one, *rest = dates(1, 25)
    anew = replace(one, fixed=False, latest=None)
    plan = on(a_snapshot(anew, *rest, fleet=gpus(1), held=(a_held("n1-0", ends=5 * HOUR),)))
    assert [wait.booking for wait in plan.waits] == ["d01"]
    assert [given.booking for given in plan.assigns] == ["d25"]


def test_a_date_beyond_the_horizon_refuses_the_series() -> None:
    plan = on(a_snapshot(*dates(1, 24 * 40), fleet=gpus(1)))
    assert plan.assigns == ()
    assert plan.refusals[1].reasons[0].code == "advance_window"


# Quotes


def asked(**more: object) -> QuoteRequest:
    values: dict[str, object] = {
        "ask": an_ask(1),
        "duration": 2 * HOUR,
        "earliest": NOON,
        "latest": None,
        "fixed": False,
        "tenant": "lab",
        "project": "folding",
        "rates": {"h100": 300, "l40s": 60},
    }
    return QuoteRequest(**{**values, **more})  # type: ignore[arg-type]


def test_work_is_offered_on_a_slower_class_for_longer_at_the_price_of_that() -> None:
    lengths = {"h100": 2 * HOUR, "l40s": 6 * HOUR}
    options = quote(a_snapshot(fleet=SITE), POLICY, asked(lengths=lengths)).options
    other = next(each for each in options if each.kind == "other_class")
    assert (other.ends - other.starts, other.speed) == (6 * HOUR, 333)
    assert other.weight == 60 * 56_000 * 6 * HOUR


def test_work_of_a_gang_is_offered_on_fewer_gpus_for_longer() -> None:
    taken = busy("n1", 4 * HOUR)[:1]
    question = asked(ask=an_ask(2), lengths={"h100": 2 * HOUR})
    options = quote(a_snapshot(fleet=SITE, held=taken), POLICY, question).options
    fewer = next(each for each in options if each.kind == "fewer")
    assert (fewer.count, fewer.starts, fewer.ends - fewer.starts) == (1, NOON, 4 * HOUR)


def test_what_is_no_better_in_start_price_risk_or_speed_is_hidden() -> None:
    pair = gpus(4, domains=2)
    question = asked(ask=an_ask(2, together="domain", required=True))
    kinds = [each.kind for each in quote(a_snapshot(fleet=pair), POLICY, question).options]
    assert "without_nvlink" not in kinds
    assert "split" not in kinds
    taken = (a_held("n1-0", ends=DAY), a_held("n1-2", ends=DAY))
    answer = quote(a_snapshot(fleet=pair, held=taken), POLICY, question)
    kinds = [each.kind for each in answer.options]
    assert "without_nvlink" in kinds, "now it starts sooner than as asked"
    assert "split" not in kinds


def test_a_risk_of_a_pause_keeps_the_surer_option_in_sight() -> None:
    risks = {("h100", False, quarter): 50 for quarter in range(4)}
    sure = quote(a_snapshot(fleet=SITE), POLICY, asked(risks=risks)).options
    assert sure[0].risk == 50
    assert [each.risk for each in sure if each.gpu_class == "l40s"] == [0]
