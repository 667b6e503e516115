"""Backlogs as sites have them, which random worlds do not draw: hundreds of alike jobs, slices on
half of the GPUs, windows and maintenance in the middle of a queue."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest

from solver import (
    Assign,
    Availability,
    Cap,
    Held,
    Maintenance,
    Place,
    Plan,
    Request,
    Snapshot,
    solve,
)
from tests.solver import truth
from tests.solver.builders import (
    DAY,
    HOUR,
    NOON,
    POLICY,
    a_held,
    a_limit,
    a_planned_start,
    an_ask,
    gpus,
    whole,
)
from tests.solver.cycle.test_quote_pauses import as_asked
from tests.solver.pausing import (
    GRACE,
    a_claim,
    a_site,
    given,
    later,
    notices,
    rest_of,
    rules,
    running,
)

MINUTE, LAST = 60, "claim"


def alike(
    count: int,
    name: str,
    tenant: str,
    tier: str,
    hours: float,
    *,
    owner: str = "ann",
    earliest: int = 0,
) -> list[Request]:
    """So many requests for one GPU, asked for one second after the other."""
    rows = (
        a_claim(f"{name}{n:03}", tier=tier, tenant=tenant, hours=hours, submitted=n, earliest=earliest)
        for n in range(count)
    )
    return [replace(row, owner=owner) for row in rows]


def run(name: str, number: int, tenant: str, tier: str, ends: int, **more: int) -> tuple[Held, ...]:
    """A booking on one GPU of node n1 that began an hour before noon."""
    return running(f"{name}{number:03}", whole(f"n1-{number}"), tenant=tenant, tier=tier, ends=ends, **more)


def planned(site: Snapshot, now: int = MINUTE) -> Snapshot:
    """The site with what its first cycle plans, and the rests of those that can be paused."""
    site = later(site, solve(site, POLICY), now)
    tiers = {tier.slug: tier for tier in site.tiers}
    by_name: dict[str, list[Held]] = {}
    for row in site.held:
        if row.started and tiers[row.tier].pausable:
            by_name.setdefault(row.booking, []).append(row)
    classes = {gpu.id: gpu.gpu_class for gpu in site.gpus}
    rests = []
    for rows in by_name.values():
        rest = rest_of(rows, site.now)
        ask = replace(rest.ask, classes=(classes[rows[0].place.gpu],))
        rests.append(replace(rest, ask=ask))
    return replace(site, running=tuple(rests))


def with_claim(site: Snapshot, claim: Request, owner: str = "zoe") -> Plan:
    """The plan with one request more, which was quoted as it is given."""
    claim = replace(claim, submitted=site.now, earliest=max(site.now, claim.earliest), owner=owner)
    quoted = [option.starts for option in as_asked(Availability(site, POLICY), claim)]
    plan = solve(replace(site, requests=(*site.requests, claim)), POLICY)
    assert quoted == [each.starts for each in truth.given_by(plan) if each.booking == claim.booking]
    assert not plan.dropped
    return plan


def moved(site: Snapshot, plan: Plan) -> dict[str, tuple[int, str]]:
    """Who starts later than planned: by how many seconds, and the rule."""
    planned_starts = {row.booking: row.planned.starts for row in site.requests if row.planned}
    return {
        row.booking: (
            row.starts - planned_starts[row.booking],
            str(dict(row.delayed_by.numbers)["rule"]),
        )
        for row in plan.waits
        if row.delayed_by is not None and row.starts > planned_starts.get(row.booking, row.starts)
    }


def test_hundreds_of_spot_jobs_make_way_for_a_gang_inside_its_guarantee() -> None:
    limits = (a_limit("lab", 8, borrow=0), a_limit("firm", 0, borrow=None))
    held = [row for n in range(16) for row in run("run", n, "firm", "spot", (n + 3) * HOUR)]
    site = a_site(*alike(120, "spot", "firm", "spot", 4), held=held, limits=limits, fleet=gpus(16))
    plan = with_claim(planned(site), a_claim(LAST, 8, hours=6))
    starts = next(row.starts for row in plan.assigns if row.booking == LAST) - NOON
    assert starts <= MINUTE + GRACE + 60
    assert Counter(rules(plan).values()) == {"taken_back": 8}
    assert {name for name, _ in notices(plan).values()} == {LAST}


def test_one_job_beside_two_hundred_of_a_colleague_starts_at_the_next_end() -> None:
    limits = (a_limit("lab", 4, borrow=0),)
    held = [row for n in range(4) for row in run("run", n, "lab", "standard", (n + 1) * HOUR)]
    held = [replace(row, owner="bob") for row in held]
    jobs = alike(200, "bob", "lab", "standard", 1, owner="bob")
    site = planned(a_site(*jobs, held=held, limits=limits, fleet=gpus(4)))
    plan = with_claim(site, a_claim(LAST, hours=1))
    assert given(plan)[LAST] == ("wait", HOUR)
    late = moved(site, plan)
    assert {rule for _, rule in late.values()} == {"share"}
    assert max(by for by, _ in late.values()) <= HOUR, "each of the others gets one step later"
    strengths = {row.strength for row in plan.waits}
    assert strengths == {"guaranteed"}


def test_borrowers_of_one_class_pause_nobody_for_a_guarantee_of_another() -> None:
    limits = (
        a_limit("firm", 1, borrow=None),
        a_limit("hub", 1, borrow=None),
        a_limit("lab", 2),
        a_limit("lab", 2, "l40s"),
        a_limit("firm", 0, "l40s", borrow=None),
    )
    fleet = (*gpus(8), *gpus(4, "l40s", "l40s", node="n2"))
    held = [
        row for n in range(8) for row in run("run", n, "firm" if n % 2 else "hub", "flex", (n + 2) * HOUR)
    ]
    held += [
        row for n in range(4) for row in running(f"l{n}", whole(f"n2-{n}"), tenant="firm", ends=9 * HOUR)
    ]
    jobs = [*alike(30, "f", "firm", "flex", 3), *alike(30, "h", "hub", "flex", 3)]
    site = planned(a_site(*jobs, held=held, limits=limits, fleet=fleet))
    before = given(solve(site, POLICY))
    plan = with_claim(site, a_claim(LAST, ask=an_ask(1, "l40s"), hours=2))
    assert set(notices(plan)) < {"l0", "l1", "l2", "l3"}
    assert len(notices(plan)) == 1
    assert {name: given(plan)[name] for name in before} == before, "the other class is as it was"


def sliced(*numbers: int) -> Iterable[Held]:
    """Two slices on each of these GPUs, which another tenant borrows; those on the first GPUs lose
    least."""
    for n in numbers:
        for start in (0, 4):
            place = Place(f"n1-{n}", "3g.40gb", start, 4)
            yield from running(f"s{n}-{start}", place, ends=8 * HOUR, since=-HOUR - n * 60)


def test_a_quote_of_several_classes_goes_before_who_waits_for_one_of_them() -> None:
    limits = tuple(
        a_limit(tenant, sure, name, borrow=None)
        for name in ("h100", "l40s")
        for tenant, sure in (("lab", 0), ("firm", 1))
    )
    fleet = (*gpus(1), *gpus(1, "l40s", "l40s", node="n2"))
    held = [
        *running("long", whole("n1-0"), tier="standard", ends=9 * HOUR),
        *running("short", whole("n2-0"), tier="standard", ends=2 * HOUR),
    ]
    spot = a_claim("spot", tier="spot", ask=an_ask(1, "l40s"), hours=3)
    site = planned(a_site(spot, held=held, limits=limits, fleet=fleet))
    claim = a_claim(LAST, tier="flex", ask=an_ask(1, "h100", "l40s"), hours=1)
    plan = with_claim(site, replace(claim, durations=(("h100", HOUR), ("l40s", HOUR + 300))))
    assert given(plan) == {LAST: ("wait", 2 * HOUR), "spot": ("wait", 3 * HOUR + 300)}


def test_a_quote_has_the_gpu_hours_of_who_is_behind_and_starts_later() -> None:
    cap = Cap("lab", "h100", 2 * HOUR * 56_000, 0, 0, rolling_days=2)
    spot = a_claim("spot", tier="spot", hours=2, earliest=5 * HOUR)
    site = a_site(spot, fleet=gpus(2), limits=(a_limit("lab", 1, borrow=None),), caps=(cap,))
    window = a_claim(LAST, tier="flex", hours=1, earliest=HOUR, fixed=True)
    plan = with_claim(planned(site), window)
    assert given(plan)[LAST] == ("assign", HOUR)
    assert given(plan)["spot"][1] > DAY


@pytest.mark.parametrize(("wanted", "paused"), [(4, 0), (6, 4), (8, 8)])
def test_slices_leave_only_as_many_gpus_as_a_guarantee_needs(wanted: int, paused: int) -> None:
    limits = (a_limit("lab", 8), a_limit("firm", 0, borrow=None))
    small = [
        a_claim(
            f"w{n:02}",
            tenant="firm",
            tier="flex",
            hours=2,
            submitted=n,
            ask=an_ask(1, profile="3g.40gb"),
        )
        for n in range(40)
    ]
    site = a_site(*small, held=[*sliced(0, 1, 2, 3)], limits=limits)
    plan = with_claim(replace(site, requests=()), a_claim(LAST, wanted, hours=4))
    given_at = next(row for row in truth.given_by(plan) if row.booking == LAST)
    assert given_at.starts - NOON == (GRACE if paused else 0)
    assert len(notices(plan)) == paused
    left = {name.split("-")[0] for name in notices(plan)}
    assert left == {f"s{n}" for n in range(paused // 2)}, "whole GPUs are cleared, the cheapest"
    behind = solve(replace(site, requests=(*small, a_claim(LAST, wanted, hours=4))), POLICY)
    assert given(behind)[LAST][1] == given_at.starts - NOON, "whatever waits for slices"


def test_a_deadline_behind_a_backlog_is_kept_inside_a_guarantee_and_told_when_it_is_overtaken() -> None:
    limits = (a_limit("lab", 2, borrow=None), a_limit("firm", 0, borrow=None))
    held = [row for n in range(2) for row in run("run", n, "firm", "standard", (n + 1) * HOUR)]
    jobs = alike(30, "firm", "firm", "flex", 2, earliest=HOUR)
    hopeful = a_claim("hopeful", tenant="firm", tier="flex", hours=1, latest=5 * HOUR // 2, submitted=-9)
    site = planned(a_site(*jobs, hopeful, held=held, limits=limits, fleet=gpus(2)))
    assert given(solve(site, POLICY))["hopeful"] == ("wait", HOUR)
    sure = a_claim(LAST, 2, hours=6, latest=9 * HOUR)
    plan = with_claim(site, sure)
    assert given(plan)[LAST] == ("wait", 2 * HOUR)
    assert given(plan)["hopeful"] == ("wait", HOUR), "its window ends before the claim starts"
    plan = with_claim(site, replace(sure, ask=an_ask(1)))
    assert given(plan)[LAST] == ("wait", HOUR)
    at_risk = next(row for row in plan.waits if row.booking == "hopeful")
    assert (at_risk.reasons[0].code, at_risk.starts) == ("deadline_at_risk", NOON + 3 * HOUR // 2)
    request = replace(hopeful, planned=a_planned_start(2 * HOUR, 1, strength="expected"))
    late = a_site(request, held=held, limits=limits, fleet=gpus(2), now=3 * HOUR // 2 + 1)
    refusal = next(row for row in solve(late, POLICY).refusals if row.booking == "hopeful")
    assert refusal.reasons[0].code == "missed"


def written(row: Assign, place: Place) -> Held:
    """The row of a window of the tenant that its name ends with."""
    starts, ends = row.starts - NOON, row.ends - NOON
    tenant = row.booking.removeprefix("window-")
    held = a_held(place.gpu, starts=starts, ends=ends, booking=row.booking, tenant=tenant)
    return replace(held, project=f"{tenant}-p")


def test_windows_in_the_middle_of_a_queue_stay_and_short_work_fills_the_time_before_them() -> None:
    limits = (
        a_limit("lab", 4, borrow=0),
        a_limit("hub", 4, borrow=0),
        a_limit("firm", 0, borrow=None),
    )
    held = [row for n in range(8) for row in run("run", n, "firm", "flex", (n % 4 + 1) * HOUR)]
    site = planned(a_site(*alike(30, "job", "firm", "flex", 3), held=held, limits=limits, fleet=gpus(8)))
    windows = [
        replace(a_claim(f"window-{t}", 4, tenant=t, hours=2, earliest=6 * HOUR, fixed=True), tenant=t)
        for t in ("lab", "hub")
    ]
    site = replace(site, requests=(*site.requests, *windows))
    plan = solve(site, POLICY)
    assert {given(plan)[f"window-{t}"] for t in ("lab", "hub")} == {("assign", 6 * HOUR)}
    rows = tuple(
        replace(
            held[0],
            id=f"{row.booking}/{place.gpu}",
            booking=row.booking,
            tenant=row.booking[7:],
            project=f"{row.booking[7:]}-p",
            place=place,
            starts=row.starts,
            ends=row.ends,
            started=False,
            since=None,
            tier="standard",
        )
        for row in plan.assigns
        for place in row.places
    )
    site = replace(later(site, plan, 2 * MINUTE), held=(*held, *rows))
    short = a_claim(LAST, tier="flex", tenant="firm", hours=1)
    after = with_claim(site, short, owner="ann")
    assert not set(moved(site, after)), "nobody is later for what fits before a window"
    assert not truth.overlaps(site, after)
    gang = solve(replace(site, requests=(*site.requests, a_claim("gang", 4, hours=3))), POLICY)
    assert given(gang)["gang"][1] <= 2 * MINUTE + GRACE + 60, "and a claim that ends before starts"


def test_early_ends_at_odd_seconds_make_no_guarantee_later_and_leave_no_gpu_idle() -> None:
    limits = (a_limit("lab", 3, borrow=None, weight=2), a_limit("firm", 1, borrow=None))
    jobs = [*alike(12, "lab", "lab", "flex", 2), *alike(12, "firm", "firm", "flex", 3)]
    held = [row for n in range(6) for row in run("run", n, "lab", "standard", (n + 4) * HOUR)]
    site = planned(a_site(*jobs, held=held, limits=limits, fleet=gpus(6)))
    now, rows = MINUTE, list(site.held)
    for number in range(4):
        now += 307 + 61 * number
        gone, rows = rows[0], rows[1:]
        site = replace(later(site, solve(site, POLICY), now), held=tuple(rows))
        plan = solve(site, POLICY)
        strengths = {row.booking: row.planned.strength for row in site.requests if row.planned}
        assert {strengths[booking] for booking in moved(site, plan)} <= {"expected"}
        first = [row for row in plan.assigns if row.starts == site.now]
        assert [place.gpu for row in first for place in row.places] == [gone.place.gpu]
        names = {row.booking: row for row in site.requests}
        for row in first:
            request = names[row.booking]
            rows += [
                replace(
                    gone,
                    id=row.booking,
                    booking=row.booking,
                    tenant=request.tenant,
                    project=request.project,
                    tier=request.tier,
                    starts=row.starts,
                    since=row.starts,
                    ends=row.ends,
                    place=place,
                )
                for place in row.places
            ]
        site = later(site, plan, now)
        site = replace(site, held=tuple(rows))


def test_maintenance_in_a_backlog_moves_what_it_must_and_its_cancellation_delays_nobody() -> None:
    fleet = (*gpus(4), *gpus(4, node="n2"))
    limits = (a_limit("lab", 4, borrow=None), a_limit("firm", 2, borrow=None))
    held = [row for n in range(4) for row in run("run", n, "firm", "flex", (n + 1) * HOUR)]
    held += [
        row
        for n in range(4)
        for row in running(f"l{n}", whole(f"n2-{n}"), tenant="lab", tier="standard", ends=(n + 1) * HOUR)
    ]
    jobs = [*alike(16, "firm", "firm", "flex", 2), *alike(6, "lab", "lab", "standard", 1)]
    site = planned(a_site(*jobs, held=held, limits=limits, fleet=fleet))
    closed = tuple(Maintenance(f"n2-{n}", NOON + 4 * HOUR, NOON + 6 * HOUR) for n in range(4))
    plan = solve(replace(site, blackouts=closed), POLICY)
    for row in plan.waits:
        meets = row.starts < closed[0].ends and closed[0].starts < row.ends
        assert not (meets and {place.gpu for place in row.places} & {c.gpu for c in closed})
    codes = {row.booking: row.delayed_by.code for row in plan.waits if row.delayed_by}
    assert "maintenance" in codes.values()
    overtaken = {name for name, code in codes.items() if code == "overtaken"}
    assert all(name.startswith("firm") for name in overtaken), "nobody with a guarantee"
    sure = {row.booking for row in plan.waits if row.strength == "guaranteed"}
    assert sure >= {f"lab{n:03}" for n in range(6)}
    again = solve(later(site, plan, 5 * MINUTE), POLICY)
    assert not moved(later(site, plan, 5 * MINUTE), again)
    assert sum(row.starts for row in again.waits) < sum(row.starts for row in plan.waits)


def test_asks_of_one_second_share_what_is_free_by_weight_and_nobody_pauses_in_a_ring() -> None:
    tenants = {"one": 1, "two": 2, "four": 3, "none": 0}
    limits = tuple(a_limit(t, 0, borrow=None, weight=w) for t, w in tenants.items())
    jobs = [row for t in tenants for row in alike(20, t, t, "flex", 4)]
    jobs = [replace(row, submitted=NOON) for row in jobs]
    site = a_site(*jobs, limits=limits, fleet=gpus(12))
    plan = solve(site, POLICY)
    got = Counter(row.booking.rstrip("0123456789") for row in plan.assigns)
    assert got == {"one": 2, "two": 4, "four": 6}
    rows = [
        row
        for a in plan.assigns
        for row in running(
            a.booking, *a.places, tenant=a.booking.rstrip("0123456789"), since=0, ends=4 * HOUR
        )
    ]
    quiet = replace(later(site, plan, 2 * HOUR), held=tuple(rows))
    assert not solve(quiet, POLICY).pauses
