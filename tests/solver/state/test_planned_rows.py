"""Written rows that have not begun change their places, not their times, so that more fits."""

from dataclasses import replace

import pytest

from solver import (
    Extension,
    Held,
    Host,
    Place,
    Plan,
    PlannedStart,
    Policy,
    Snapshot,
    encode,
    solve,
)
from solver.model.inputs import Maintenance, Together
from tests.solver import truth
from tests.solver.builders import (
    HOUR,
    NOON,
    POLICY,
    a_held,
    a_limit,
    a_planned_start,
    a_request,
    a_share,
    a_snapshot,
    an_ask,
    gpus,
    whole,
)

SLICE = "1g.10gb"
WINDOW = a_request("new", earliest=HOUR, fixed=True)


def a_row(
    gpu: str,
    start: int = 0,
    *,
    starts: int = HOUR,
    level: Together | None = "any",
    booking: str = "",
) -> Held:
    """A slice for an hour, an hour from now."""
    return a_held(
        gpu,
        starts=starts,
        ends=starts + HOUR,
        profile=SLICE,
        start=start,
        size=1,
        level=level,
        booking=booking,
    )


def a_whole(gpu: str, *, starts: int = HOUR, hours: int = 1, booking: str = "") -> Held:
    """A whole GPU that may lie anywhere."""
    return a_held(gpu, starts=starts, ends=starts + hours * HOUR, level="any", booking=booking)


def scattered(*held: Held, count: int = 2) -> Snapshot:
    """Slices on different GPUs, and somebody who wants a whole one at the same time."""
    rows = held or tuple(a_row(f"n1-{n}") for n in range(count))
    return a_snapshot(WINDOW, fleet=gpus(count), held=rows)


def checked(site: Snapshot, policy: Policy = POLICY) -> Plan:
    """The plan, held against the truth."""
    plan = solve(site, policy)
    assert truth.overlaps(site, plan) == []
    assert truth.overshared(site, plan) == []
    assert truth.mixed(site, plan) == []
    assert truth.beyond_hosts(site, plan) == []
    assert truth.moved_wrongly(site, plan, policy.freeze_horizon) == []
    return plan


def refused(plan: Plan) -> list[str]:
    return [row.booking for row in plan.refusals]


def test_a_window_is_let_in_when_written_slices_can_lie_beside_each_other() -> None:
    plan = checked(scattered())
    (move,) = plan.moves
    assert refused(plan) == []
    assert [row.booking for row in plan.assigns] == ["new"]
    assert (move.starts, move.ends) == (NOON + HOUR, NOON + 2 * HOUR)
    assert {place.gpu for place in (*move.source, *move.places)} == {"n1-0", "n1-1"}
    assert [(why.rule, why.code) for why in move.reasons] == [("R73", "laid_anew")]


def test_the_control_a_row_without_a_level_stays_and_the_window_is_refused() -> None:
    rows = tuple(a_row(f"n1-{n}", level=None) for n in range(2))
    plan = checked(scattered(*rows))
    assert (refused(plan), plan.moves) == (["new"], ())


def test_nothing_moves_when_everybody_fits() -> None:
    plan = checked(scattered(*(a_row(f"n1-{n}") for n in range(2)), count=3))
    assert (refused(plan), plan.moves) == ([], ())


def test_nothing_moves_when_that_lets_nobody_in() -> None:
    site = scattered()
    site = replace(site, requests=(replace(WINDOW, ask=an_ask(2)),))
    plan = checked(site)
    assert (refused(plan), plan.moves) == (["new"], ())


@pytest.mark.parametrize("seconds", [POLICY.freeze_horizon, POLICY.freeze_horizon - 1])
def test_inside_the_freeze_horizon_nothing_moves(seconds: int) -> None:
    rows = tuple(a_row(f"n1-{n}", starts=seconds) for n in range(2))
    plan = checked(scattered(*rows))
    assert (refused(plan), plan.moves) == (["new"], ())
    rows = tuple(a_row(f"n1-{n}", starts=POLICY.freeze_horizon + 1) for n in range(2))
    assert len(checked(scattered(*rows)).moves) == 1


def test_what_runs_is_never_moved() -> None:
    runs = tuple(replace(a_row(f"n1-{n}", starts=-60), ends=NOON + 2 * HOUR) for n in range(2))
    assert all(row.started for row in runs)
    assert refused(checked(scattered(*runs))) == ["new"]


def test_who_asks_for_more_time_stays_until_that_is_answered() -> None:
    rows = tuple(a_row(f"n1-{n}", booking=f"k{n}") for n in range(2))
    asked = tuple(Extension(row.booking, NOON + 3 * HOUR) for row in rows)
    plan = checked(replace(scattered(*rows), extensions=asked))
    assert (refused(plan), plan.moves) == (["new"], ())


def test_a_chain_moves_when_no_single_move_is_enough() -> None:
    """To free four adjacent slots a 2g must leave, and a 1g must make room for it."""
    rows = (
        a_held("n1-0", starts=HOUR, ends=2 * HOUR, profile="3g.40gb", size=4, level="any"),
        a_held("n1-0", starts=HOUR, ends=2 * HOUR, profile="2g.20gb", start=4, size=2, level="any"),
        a_held("n1-1", starts=HOUR, ends=2 * HOUR, profile="2g.20gb", start=0, size=2, level="any"),
        a_held("n1-1", starts=HOUR, ends=2 * HOUR, profile=SLICE, start=4, size=1, level="any"),
    )
    demand = replace(WINDOW, ask=an_ask(profile="4g.40gb"))
    plan = checked(a_snapshot(demand, fleet=gpus(2), held=rows))
    assert refused(plan) == []


def test_a_gang_moves_whole_and_stays_together() -> None:
    """Two GPUs of a node for a gang that is apart; the gang of the other node must stay in one."""
    fleet = (*gpus(3), *gpus(3, node="n2"))
    gang = tuple(a_held(f"n1-{n}", starts=HOUR, ends=2 * HOUR, level="node", booking="gang") for n in (0, 1))
    one = a_held("n2-0", starts=HOUR, ends=2 * HOUR, level="any")
    demand = replace(WINDOW, ask=an_ask(3, together="node", required=True))
    plan = checked(a_snapshot(demand, fleet=fleet, held=(*gang, one)))
    assert refused(plan) == []
    # Only the one can go: the gang would have to be torn, or to go to the other node whole.
    moved = {move.booking: {place.gpu[:2] for place in move.places} for move in plan.moves}
    assert moved in ({one.booking: {"n1"}}, {"gang": {"n2"}})


def test_a_gang_that_would_be_torn_stays() -> None:
    fleet = (*gpus(2), *gpus(1, node="n2"), *gpus(1, node="n3"))
    gang = tuple(a_held(f"n1-{n}", starts=HOUR, ends=2 * HOUR, level="node", booking="gang") for n in (0, 1))
    demand = replace(WINDOW, ask=an_ask(2, together="node", required=True))
    plan = checked(a_snapshot(demand, fleet=fleet, held=gang))
    assert (refused(plan), plan.moves) == (["new"], ())
    loose = tuple(replace(row, level="any") for row in gang)
    assert refused(checked(a_snapshot(demand, fleet=fleet, held=loose))) == []


def test_a_gang_of_many_nodes_has_several_of_them_cleared() -> None:
    fleet = tuple(gpu for n in range(4) for gpu in gpus(2, node=f"n{n}"))
    rows = tuple(a_whole(f"n{n}-0") for n in range(2))
    rack = (*gpus(2, node="n8", rack="r2"), *gpus(2, node="n9", rack="r2"))
    ask = an_ask(8, together="rack", required=True)
    demand = replace(WINDOW, ask=ask)
    plan = checked(a_snapshot(demand, fleet=(*fleet, *rack), held=rows))
    assert refused(plan) == []
    assert {place.gpu[:2] for move in plan.moves for place in move.places} <= {"n8", "n9"}
    assert len(plan.moves) == 2


def test_more_slices_than_are_moved_one_by_one_are_packed_closer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = tuple(a_row(f"n1-{gpu}", start) for gpu in range(8) for start in (0, 2, 4))
    demand = replace(WINDOW, ask=an_ask(4, together="node", required=True))
    site = a_snapshot(demand, fleet=gpus(8), held=rows)
    plan = checked(site)
    assert refused(plan) == []
    assert len(plan.moves) >= 12
    monkeypatch.setattr("solver.rebinding.rebinding.packed", lambda *_: None)
    assert refused(checked(site)) == ["new"]


def test_cores_of_the_node_that_it_would_go_to_are_asked_for() -> None:
    fleet = (*gpus(1), *gpus(1, node="n2"))
    row = replace(a_whole("n1-0"), cores=8_000)
    pin = replace(WINDOW, ask=replace(an_ask(), cores=32_000))
    hosts = (Host("n1", 32_000, 0), Host("n2", 8_000, 0))
    site = a_snapshot(pin, fleet=fleet, held=(row,), hosts=hosts)
    assert [move.places for move in checked(site).moves] == [(whole("n2-0"),)]
    poor = replace(site, hosts=(hosts[0], Host("n2", 7_999, 0)))
    plan = checked(poor)
    assert (refused(plan), plan.moves) == (["new"], ())


def test_a_share_goes_only_to_shares_of_its_owner() -> None:
    def a_shared(gpu: str, owner: str, start: int) -> Held:
        row = replace(a_whole(gpu, booking=f"{gpu}{owner}{start}"), owner=owner)
        return replace(row, id=row.booking, place=Place(gpu, None, 0, 8, 300))

    rows = (a_shared("n1-0", "ann", 0), a_shared("n1-1", "bob", 0))
    plan = checked(scattered(*rows))
    assert (refused(plan), plan.moves) == (["new"], ())
    rows = (a_shared("n1-0", "ann", 0), a_shared("n1-1", "ann", 0))
    assert len(checked(scattered(*rows)).moves) == 1
    share = a_request("new", a_share(800), earliest=HOUR, fixed=True)
    site = a_snapshot(replace(share, owner="bob"), fleet=gpus(2), held=rows)
    assert refused(checked(site)) == []


def test_a_place_in_maintenance_is_no_place_to_go_to() -> None:
    away = Maintenance("n1-1", NOON + HOUR, NOON + 2 * HOUR)
    site = scattered(a_row("n1-0"), count=3)
    site = replace(site, requests=(replace(WINDOW, ask=an_ask(2)),), blackouts=(away,))
    plan = checked(site)
    assert (refused(plan), plan.moves) == (["new"], ())
    assert refused(checked(replace(site, blackouts=()))) == []


def test_a_row_that_late_work_reaches_into_is_left_to_lie() -> None:
    """Its bits are not its own: to take it off the calendar would free the other's room."""
    late = replace(a_held("n1-0", starts=-HOUR, ends=HOUR + 600), started=True)
    site = scattered(late, a_row("n1-0"), a_row("n1-1"))
    plan = checked_but_late(site)
    assert (refused(plan), plan.moves) == (["new"], ())


def checked_but_late(site: Snapshot) -> Plan:
    plan = solve(site, POLICY)
    assert len(truth.overlaps(site, plan)) == len(truth.overlaps(site, Plan((), (), (), ())))
    return plan


def test_nobody_is_over_quota_by_a_move_and_quota_is_not_made_by_one() -> None:
    rows = tuple(replace(a_row(f"n1-{n}"), tenant="lab", project="folding") for n in range(2))
    site = replace(scattered(*rows), limits=(a_limit("lab", 1),))
    plan = checked(site)
    assert (refused(plan), plan.moves) == (["new"], ())
    assert truth.over_limit(site, plan) == []


def test_a_flexible_booking_starts_at_its_start_and_not_after_what_can_lie_elsewhere() -> None:
    site = scattered()
    site = replace(site, requests=(a_request("new", hours=2),))
    plan = checked(site)
    assert [row.starts for row in plan.assigns] == [NOON]
    assert len(plan.moves) == 1


def test_a_planned_start_gets_earlier_when_what_is_in_its_way_can_lie_elsewhere() -> None:
    site = scattered()
    late = a_request("new", hours=2)
    held = tuple(a_row(f"n1-{n}", level=None) for n in range(2))
    (wait,) = solve(replace(site, requests=(late,), held=held), POLICY).waits
    assert wait.starts == NOON + 2 * HOUR
    from_before = replace(late, planned=PlannedStart(wait.starts, wait.ends, wait.places, wait.strength))
    plan = checked(replace(site, requests=(from_before,)))
    assert [row.starts for row in truth.given_by(plan)] == [NOON]
    assert len(plan.moves) == 1


def test_a_planned_start_whose_device_is_lost_keeps_its_start_by_moving_others() -> None:
    fleet = gpus(3)
    lost = tuple(replace(gpu, usable=gpu.id != "n1-2") for gpu in fleet)
    promised = a_request("p", earliest=HOUR, planned=a_planned_start(HOUR, 1, whole("n1-2")))
    rows = (a_row("n1-0"), a_row("n1-1"))
    plan = checked(a_snapshot(promised, fleet=lost, held=rows))
    assert [(row.starts, row.delayed_by) for row in plan.waits] == [(NOON + HOUR, None)]
    assert len(plan.moves) == 1


def test_two_windows_asked_for_at_once_move_each_other() -> None:
    """What was given in the same cycle is as little frozen as what was given before."""
    slices = [
        replace(a_request(f"s{n}", an_ask(profile="3g.40gb"), earliest=HOUR, fixed=True), submitted=n)
        for n in range(2)
    ]
    wide = replace(a_request("w", earliest=HOUR, fixed=True), submitted=9)
    plan = checked(a_snapshot(*slices, wide, fleet=gpus(2)))
    assert refused(plan) == []


def test_a_series_that_is_refused_leaves_everything_where_it_was() -> None:
    dates = tuple(
        replace(a_request(f"d{n}", earliest=at, fixed=True), series="s")
        for n, at in ((0, HOUR), (1, 4 * HOUR))
    )
    taken = tuple(a_held(f"n1-{n}", starts=4 * HOUR, ends=5 * HOUR) for n in range(2))
    site = replace(scattered(*(a_row(f"n1-{n}") for n in range(2)), *taken), requests=dates)
    plan = checked(site)
    assert (refused(plan), plan.moves) == (["d0", "d1"], ())
    free = replace(site, held=site.held[:2])
    assert (refused(checked(free)), len(checked(free).moves)) == ([], 1)


def test_rows_in_any_order_move_alike() -> None:
    site = scattered(*(a_row(f"n1-{n}") for n in range(4)), count=4)
    site = replace(site, requests=(replace(WINDOW, ask=an_ask(2)),))
    turned = replace(site, held=site.held[::-1], gpus=site.gpus[::-1])
    assert encode(solve(turned, POLICY)) == encode(checked(site))
    assert refused(checked(site)) == []


def test_the_policy_says_how_much_is_tried_in_a_cycle() -> None:
    assert refused(checked(scattered(), Policy(1, neighbourhoods=1))) == []
    none = replace(POLICY, neighbourhoods=0, exact_neighbourhoods=0)
    assert refused(checked(scattered(), none)) == ["new"]
