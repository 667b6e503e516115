"""The past of random worlds, played again: everybody has room, and equal policies differ nowhere."""

from dataclasses import replace

import pytest

from allocation.features.policy_lab.figures import Input, Report, Sides, report_of
from allocation.features.policy_lab.history import Names, lengths_of
from allocation.features.policy_lab.past_rules import NO_PRICES, Prices
from allocation.features.policy_lab.plays.past import History, Outage, Outcome, Past, Planned
from allocation.features.policy_lab.plays.play import Play, played
from allocation.features.policy_lab.results import csv_lines, text_lines
from billing.rates import NO_PEAKS
from solver import UNITS_PER_GPU, Ask, Held, Maintenance, Policy, Request, Snapshot, Tier, solve
from tests.solver.builders import MODELS, NOON, a_limit, gpus
from tests.worlds.draw import world_draw
from tests.worlds.jobs import Job

HOUR, DAY = 3_600, 86_400
STANDARD = Tier("standard", pausable=False, counts=True, priority=50)
SPOT = Tier("spot", pausable=True, counts=False, priority=10, grace=60)


def history_of(seed: int) -> History:
    """The past of a random world, with an outage and a maintenance."""
    drawn = world_draw(seed)
    past = tuple(_past(job) for job in drawn.jobs)
    site = Snapshot(
        now=NOON,
        models=MODELS,
        gpus=drawn.gpus,
        held=(),
        requests=(),
        extensions=(),
        limits=drawn.limits,
        tiers=drawn.tiers,
        hosts=drawn.hosts,
    )
    out = drawn.gpus[0].id
    return History(
        site,
        past,
        max(job.at for job in drawn.jobs) + 2 * DAY,
        (Outage(out, NOON + 2 * HOUR, NOON + 4 * HOUR),),
        (Planned(NOON + HOUR, Maintenance(drawn.gpus[-1].id, NOON + 5 * HOUR, NOON + 6 * HOUR)),),
    )


def _past(job: Job) -> Past:
    request = Request(
        booking=job.name,
        tenant=job.tenant,
        project=job.project,
        tier=job.tier.slug,
        priority=job.tier.priority,
        submitted=job.at,
        ask=job.ask,
        duration=job.seconds,
        earliest=max(job.at, job.earliest),
        latest=None,
        fixed=job.fixed,
        planned=None,
        owner=job.owner,
        durations=job.durations,
    )
    cancelled = None if job.cancelled_after is None else job.at + job.cancelled_after
    return Past(request, job.really if cancelled is None else None, cancelled)


def outcomes(history: History, policy: Policy) -> Outcome:
    return played(history, policy, lengths_of(history, 1))


def report(history: History, active: Outcome, candidate: Outcome) -> Report:
    ids = {each.request.booking: each.request for each in history.past}
    names = Names(
        {each: each for each in ids},
        {each.tenant: each.tenant for each in ids.values()},
        {each.project: each.project for each in ids.values()},
    )
    return report_of(Input(history, names, Sides((active,), (candidate,)), NO_PRICES, NO_PRICES, {}))


@pytest.mark.turn
@pytest.mark.parametrize(
    "seed", [*range(25), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(25, 200))]
)
def test_a_candidate_equal_to_the_active_version_differs_nowhere(seed: int) -> None:
    history = history_of(seed)
    active, candidate = (outcomes(history, Policy(number)) for number in (1, 2))
    assert candidate == active
    found = report(history, active, candidate)
    assert found["totals"]["active"] == found["totals"]["candidate"]
    assert found["longer"] == found["shorter"] == []
    for key in ("tiers", "tenants", "projects"):
        for row in found[key]:
            assert (row["active"], row["change"]) == (row["candidate"], 0)
            assert row["effect"] in ("none", "unknown")
    assert len(list(csv_lines(found))) > 1
    assert len(list(text_lines(found))) > 1


@pytest.mark.turn
@pytest.mark.parametrize("seed", range(25))
def test_nobody_has_a_gpu_twice_or_runs_longer_than_it_ran(seed: int) -> None:
    history = history_of(seed)
    lengths = lengths_of(history, 1)
    play = Play(history, Policy(1), lengths)
    jobs = vars(play)["_jobs"]
    for now in play.turns():
        rows = [row for job in jobs.values() for row in job.rows if row.starts <= now < row.ends]
        broken = {each.gpu for each in history.outages if each.starts <= now < each.ends}
        assert not {row.place.gpu for row in rows} & broken
        _apart(rows)
    used = play.outcome.used.total()
    asked = sum(lengths[each.request.booking] * _units(each.request.ask) for each in history.past)
    assert used <= asked


@pytest.mark.parametrize("seed", range(5))
def test_a_turn_in_which_nobody_waits_decides_nothing(seed: int) -> None:
    """So a play leaves it out."""
    history = history_of(seed)
    play, idle = Play(history, Policy(1), lengths_of(history, 1)), 0
    mine = vars(play)
    for _ in play.turns():
        if not mine["_waiting"]:
            idle += 1
            plan = solve(play._snapshot(), Policy(1))
            assert (plan.assigns, plan.moves, plan.pauses, plan.refusals, plan.waits) == ((), (), (), (), ())
    assert idle or seed


def _units(ask: Ask) -> int:
    return sum(each.count * UNITS_PER_GPU for each in (ask, *ask.groups))


def _apart(rows: list[Held]) -> None:
    slots: set[tuple[str, int]] = set()
    for row in rows:
        if row.place.share is None:
            mine = {(row.place.gpu, row.place.start + at) for at in range(row.place.size)}
            assert not mine & slots
            slots |= mine


def a_site(*, sure: int = 4, tenants: tuple[str, ...] = ("a", "b")) -> Snapshot:
    return Snapshot(
        now=NOON,
        models=MODELS,
        gpus=gpus(4),
        held=(),
        requests=(),
        extensions=(),
        limits=tuple(a_limit(each, sure, borrow=None, weight=1) for each in tenants),
        tiers=(STANDARD, SPOT),
    )


def a_past(
    number: int, at: int, *, tenant: str = "a", tier: Tier = STANDARD, hours: int = 2, count: int = 1
) -> Past:
    request = Request(
        booking=f"b{number:03}",
        tenant=tenant,
        project=f"{tenant}-p",
        tier=tier.slug,
        priority=tier.priority,
        submitted=NOON + at,
        ask=Ask(count, ("h100",), None, "any", required=False),
        duration=hours * HOUR,
        earliest=NOON + at,
        latest=None,
        fixed=False,
        planned=None,
        owner=f"{tenant}-o",
    )
    return Past(request, hours * HOUR)


def test_an_early_end_lets_others_start_at_the_next_step() -> None:
    first = replace(a_past(1, 0, hours=8, count=4), really=HOUR)
    history = History(a_site(), (first, a_past(2, 600, count=4)), NOON + DAY)
    fates = outcomes(history, Policy(1)).fates
    assert fates["b001"].started == NOON
    assert fates["b002"].started == NOON + HOUR


def test_a_cancelled_booking_that_would_have_started_runs_and_one_that_waits_goes() -> None:
    first = a_past(1, 0, hours=8, count=4)
    waits = replace(a_past(2, 600, count=4), really=None, cancelled=NOON + 2 * HOUR)
    history = History(a_site(), (first, waits, a_past(3, 900, count=4)), NOON + DAY)
    fates = outcomes(history, Policy(1)).fates
    assert (fates["b002"].cancelled, fates["b002"].started) == (True, None)
    assert fates["b003"].started == NOON + 8 * HOUR
    alone = History(a_site(), (waits,), NOON + DAY)
    fate = outcomes(alone, Policy(1)).fates["b002"]
    assert (fate.cancelled, fate.started) == (False, NOON + 600)


def test_an_outage_takes_work_away_and_its_rest_runs_later() -> None:
    out = tuple(Outage(gpu.id, NOON + HOUR, NOON + 3 * HOUR) for gpu in gpus(4))
    history = History(a_site(), (a_past(1, 0, hours=2, count=4),), NOON + DAY, out)
    outcome = outcomes(history, Policy(1))
    assert outcome.fates["b001"].pauses == 0
    assert outcome.used.total() == 4 * UNITS_PER_GPU * 2 * HOUR


def test_pauses_are_those_of_the_policy_and_a_tier_that_is_starved_is_seen() -> None:
    """Without rules that pause, who has a guarantee waits behind loans."""
    past = []
    for day in range(5):
        at = day * DAY
        past += [a_past(10 * day + n, at, tenant="b", tier=SPOT, hours=20) for n in range(4)]
        past += [a_past(10 * day + 5 + n, at + HOUR, hours=2) for n in range(4)]
    history = History(a_site(sure=2), tuple(past), NOON + 6 * DAY)
    active = outcomes(history, Policy(1))
    candidate = outcomes(history, Policy(2, victim_rules=()))
    found = report(history, active, candidate)
    assert found["totals"]["active"]["pauses"] > 0 == found["totals"]["candidate"]["pauses"]
    (standard,) = (row for row in found["tiers"] if row["name"] == "standard")
    assert standard["effect"] == "longer"
    assert standard["low"] > HOUR
    assert found["totals"]["candidate"]["guarantees_missed"] > found["totals"]["active"]["guarantees_missed"]
    assert found["longer"][0]["change"] == max(each["change"] for each in found["longer"])
    assert found == report(history, active, outcomes(history, Policy(2, victim_rules=())))


def test_who_has_fixed_windows_alone_is_in_the_report_with_what_they_spend() -> None:
    past = a_past(1, 0)
    fixed = replace(past, request=replace(past.request, fixed=True))
    history = History(a_site(), (fixed,), NOON + DAY)
    outcome = outcomes(history, Policy(1))
    names = Names({"b001": "b001"}, {"a": "a"}, {"a-p": "p"})
    prices = Prices(NO_PEAKS, {("h100", "standard", ""): (500, 500)}, {"standard": 7})
    found = report_of(Input(history, names, Sides((outcome,), (outcome,)), prices, prices, {}))
    (row,) = found["tenants"]
    assert (row["name"], row["asked"], row["active"]["p50"], row["effect"]) == ("a", 0, None, "unknown")
    assert row["active"]["money"] == 2 * 500 + 7
    assert len(list(csv_lines(found))) == 7
    assert any(line.startswith("a ") for line in text_lines(found))


def test_seeds_draw_unknown_lengths_from_what_others_used() -> None:
    known = tuple(replace(a_past(n, n), really=HOUR) for n in range(5))
    unknown = replace(a_past(9, 9, hours=4), really=None)
    history = History(a_site(), (*known, unknown), NOON + DAY)
    assert {lengths_of(history, seed)["b009"] for seed in range(5)} == {2 * HOUR}
    mixed = tuple(replace(each, really=(n + 1) * 600) for n, each in enumerate(known))
    history = History(a_site(), (*mixed, unknown), NOON + DAY)
    drawn = [lengths_of(history, seed)["b009"] for seed in range(9)]
    assert len(set(drawn)) > 1
    assert drawn == [lengths_of(history, seed)["b009"] for seed in range(9)]
