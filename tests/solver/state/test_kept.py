"""What is kept between cycles: the same beginning and the same plans as without it."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from unittest.mock import patch

import pytest

from solver import Held, Kept, Limit, Plan, Policy, Snapshot, encode, solve
from solver.model.ordering import in_order
from solver.state.cycle_state import CycleState
from solver.state.held_work import Piece, Series
from solver.state.kept import COMPARE_EVERY
from tests.solver.builders import HOUR, NOON, a_held, a_limit, a_request, a_snapshot, gpus
from tests.worlds.life import World

POLICY = Policy(1)


def perturbed(site: Snapshot, policy: Policy, dice: Random) -> Iterator[tuple[Snapshot, Policy]]:
    """The site as it may be at the next turn, in some ways at once or none."""
    later = replace(site, now=site.now + dice.choice((0, 7, 61, HOUR)))
    gone = {row.booking for row in site.held if dice.random() < 0.2}
    held = tuple(row for row in site.held if row.booking not in gone)
    limits = tuple(_other_limit(row, dice) for row in site.limits)
    fleet = tuple(gpu for gpu in site.gpus if dice.random() < 0.95)
    extended = tuple(_extended(row, dice) for row in held)
    yield later, policy
    yield replace(later, held=held), policy
    yield replace(later, held=extended, limits=limits), replace(policy, grid=policy.grid * 2)
    yield replace(later, gpus=fleet), policy


def _other_limit(row: Limit, dice: Random) -> Limit:
    return replace(row, guaranteed=row.guaranteed // 2) if dice.random() < 0.3 else row


def _extended(row: Held, dice: Random) -> Held:
    return replace(row, ends=row.ends + 1_234) if dice.random() < 0.3 else row


def begins_alike(site: Snapshot, policy: Policy, kept: Kept) -> bool:
    """Whether a cycle begins with the same state as one without anything kept."""
    site = in_order(site)
    mine, fresh = CycleState(site, policy, kept), CycleState(site, policy)
    return mine.begins_as(fresh) and fresh.begins_as(mine)


def decided(plan: Plan) -> tuple[Plan, list[str]]:
    """The plan without what a brief one does not say: why somebody waits, who borrows, and what else
    would work; with the codes of refusals."""
    waits = tuple(replace(row, reasons=()) for row in plan.waits)
    assigns = tuple(replace(row, reasons=()) for row in plan.assigns)
    refusals = tuple(replace(row, reasons=(), alternatives=()) for row in plan.refusals)
    changes = tuple(replace(row, reasons=(), alternatives=()) for row in plan.changes)
    codes = [each.code for row in plan.refusals for each in row.reasons]
    codes += [each.code for row in plan.changes for each in row.reasons]
    plain = replace(plan, assigns=assigns, waits=waits, refusals=refusals, changes=changes)
    return replace(plain, borrows=(), claims=()), codes


def lived(seed: int) -> int:
    """Live a world and compare each of its turns, and some that could have followed; how many."""
    kept, dice, turns = Kept(), Random(seed), 0  # noqa: S311 (not for secrets)

    def both(site: Snapshot, policy: Policy) -> Plan:
        nonlocal turns
        turns += 1
        plan = solve(site, policy, kept=kept)
        assert encode(plan) == encode(solve(site, policy)), (seed, turns)
        assert decided(plan) == decided(solve(site, policy, brief=True)), (seed, turns)
        if turns % 5 == 0:
            for other, rules in perturbed(site, policy, dice):
                assert begins_alike(other, rules, kept), (seed, turns)
        return plan

    with patch("tests.worlds.life.solve", both):
        for _ in World.of(seed).turns():
            pass
    assert kept.drifts_take() == 0
    return turns


def test_a_kept_state_gives_the_plans_of_a_fresh_one() -> None:
    assert sum(map(lived, range(1, 4))) > 60


def test_a_brief_plan_says_nothing_of_loans_and_reasons() -> None:
    rows = tuple(a_held(f"n1-{n}", ends=9 * HOUR, tenant="lab", tier="flex") for n in range(8))
    limits = (a_limit("lab", 4, borrow=None), a_limit("other", 4))
    site = a_snapshot(a_request(hours=2), held=rows, limits=limits)
    plan, brief = solve(site, POLICY), solve(site, POLICY, brief=True)
    assert plan.borrows
    assert plan.waits[0].reasons
    assert (brief.borrows, brief.claims, brief.waits[0].reasons) == ((), (), ())
    assert decided(plan) == decided(brief)


def test_a_comparison_is_as_rare_as_its_owner_says() -> None:
    often, rarely = Kept(), Kept(compare_every=24 * HOUR)
    assert [often.is_to_compare(NOON + at) for at in (0, HOUR, 2 * HOUR)] == [False, True, True]
    assert [rarely.is_to_compare(NOON + at) for at in (0, HOUR, 24 * HOUR)] == [False, False, True]
    assert not rarely.shard(["h100"]).is_to_compare(NOON)
    assert not rarely.shard(["h100"]).is_to_compare(NOON + HOUR)


@pytest.mark.long
def test_a_kept_state_gives_the_plans_of_a_fresh_one_in_many_worlds() -> None:
    assert sum(map(lived, range(1_000, 1_040))) > 1_000


def test_many_rows_that_come_and_go_leave_the_tables_of_a_fresh_state() -> None:
    fleet, dice, kept = gpus(40), Random(3), Kept()  # noqa: S311 (not for secrets)
    rows: dict[str, Held] = {}
    for turn in range(40):
        changes = dice.choice((0, 1, 3, 30, 400))
        for _ in range(changes):
            name = f"b{dice.randrange(600):03}"
            found = a_held(
                dice.choice(fleet).id,
                booking=name,
                tenant=f"t{dice.randrange(3)}",
                starts=NOON + dice.randrange(-2 * HOUR, 5 * HOUR),
                ends=NOON + dice.randrange(5 * HOUR, 9 * HOUR),
            )
            rows.pop(name, None)
            if dice.random() < 0.6:
                rows[name] = replace(found, id=name)
        site = replace(a_snapshot(fleet=fleet, held=tuple(rows.values())), now=NOON + 300 * turn)
        assert begins_alike(site, POLICY, kept), turn


def test_what_has_drifted_is_thrown_away_and_counted() -> None:
    held = tuple(a_held(gpu.id, ends=2 * HOUR) for gpu in gpus(40)[:30])
    site = in_order(a_snapshot(fleet=gpus(40), held=held))
    kept = Kept()
    solve(site, POLICY, kept=kept)
    work = kept.held_work(site.gpus, site.models, site.held)
    work.table.units[0] += 1
    # Nothing looks at it before a comparison is due.
    soon, due = (replace(site, now=site.now + each) for each in (7, COMPARE_EVERY))
    solve(soon, POLICY, kept=kept)
    assert kept.drifts_take() == 0
    assert encode(solve(due, POLICY, kept=kept)) == encode(solve(due, POLICY))
    assert (kept.drifts_take(), kept.drifts_take()) == (1, 0)
    assert begins_alike(due, POLICY, kept)


def test_a_series_without_the_last_row_of_a_kind_numbers_its_kinds_anew() -> None:
    one, two = (gpu.id for gpu in gpus(2))
    held = (a_held(one, booking="a", tenant="one"), a_held(two, booking="b"))
    pieces = CycleState(in_order(a_snapshot(fleet=gpus(2), held=held)), POLICY).work.pieces
    spliced, joined = Series[Piece](), Series[Piece]()
    spliced.join(pieces)
    spliced.splice(pieces[:1], ())
    joined.join(pieces[1:])
    assert spliced.is_same(joined)
    assert len(spliced.table.kinds) == 1
