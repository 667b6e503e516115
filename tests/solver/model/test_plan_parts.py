"""What is left of a plan when some of it can't be written: nobody has less room for it."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from solver import (
    CHANGED,
    CONFLICT,
    LEFT,
    NEEDED,
    Assign,
    Group,
    Part,
    Parts,
    Pause,
    Plan,
    Snapshot,
    Waiting,
    in_halves,
    in_pieces,
    narrowed,
    solve,
    turns_of_tenants,
)
from solver.model.inputs import PlannedStart
from tests.solver import truth
from tests.solver.builders import HOUR, POLICY, a_request, a_snapshot, gpus, whole
from tests.solver.pausing import a_claim, a_site, running
from tests.solver.preemption.test_preemption_properties import cycles
from tests.solver.world import running_requests, with_room_made

pytestmark = pytest.mark.turn

WORLDS = range(7)


def test_who_leaves_takes_only_the_pause_for_it_along() -> None:
    held = (*running("one", whole("n1-0")), *running("two", whole("n1-1")))
    site = a_site(a_claim("claim"), a_claim("other"), held=held, fleet=gpus(2))
    at, ends = site.now + 600, site.now + 4_200
    plan = Plan(
        assigns=(
            Assign("claim", "h100", (whole("n1-0"),), at, ends),
            Assign("other", "h100", (whole("n1-1"),), at, ends),
        ),
        waits=(Waiting("one", "h100", (whole("n1-0"),), ends, ends + 60, ()),),
        refusals=(),
        extensions=(),
        pauses=(Pause("one", "claim", at, 0, ()), Pause("two", "other", at, 0, ())),
    )
    parts = Parts(plan, site)
    assert parts.withheld({("answer", "claim"): LEFT}) == {
        ("answer", "claim"): LEFT,
        ("pause", "one"): NEEDED,
        ("answer", "one"): NEEDED,
    }
    assert len(parts.groups()) == 2


def test_who_only_waits_behind_somebody_keeps_its_answer() -> None:
    site = a_snapshot(*(a_request(f"b{n}", submitted=n) for n in range(5)), fleet=gpus(1))
    plan = solve(site, POLICY)
    parts = Parts(plan, site)
    assert parts.withheld({("answer", "b0"): LEFT}) == {("answer", "b0"): LEFT}
    assert all(len(group) == 1 for group in parts.groups())


def test_nobody_waits_for_all_answers_of_another_tenant() -> None:
    """GPUs and first planned starts, by turns of the tenants; starts that moved come last."""
    others = [a_request(f"a{n}", submitted=n) for n in range(6)]
    site = a_snapshot(*others, fleet=gpus(3))
    moved = {f"a{n}" for n in (4, 5)}
    start = PlannedStart(site.now + 60 * HOUR, site.now + 61 * HOUR, (whole("n1-0"),))
    known = (replace(each, planned=start) if each.booking in moved else each for each in site.requests)
    one = a_request("b0", tenant="other", project="climate", submitted=9)
    site = replace(site, requests=(*known, one))
    plan = solve(site, POLICY)
    numbers = turns_of_tenants(plan, site)
    assert numbers == {"a0": 1, "a1": 2, "a2": 3, "a3": 4, "b0": 1}
    pieces = in_pieces(Parts(plan, site).groups(), numbers, (), 2)
    assert [names for _, names in pieces] == [{"a0", "b0"}, {"a1", "a2"}, {"a3", "a4"}, {"a5"}]


@pytest.mark.parametrize("bad", [set(), {3}, {0, 9}, {1, 2, 3}])
def test_halving_finds_what_fails_and_nothing_else(bad: set[int]) -> None:
    groups: list[Group] = [(("answer", str(n)),) for n in range(10)]
    failing = {str(n) for n in bad}
    done: list[str] = []

    def attempt(some: "list[Group]") -> str | None:
        names = [name for group in some for _, name in group]
        if failing & set(names):
            return "no"
        done.extend(names)
        return None

    failed, error = in_halves(groups, attempt, 64)  # type: ignore[arg-type]  # lists are sequences
    assert {name for group in failed for _, name in group} == failing
    assert sorted(done) == sorted(str(n) for n in range(10) if n not in bad)
    assert error is None


def _kept(site: Snapshot, plan: Plan, chance: Random) -> tuple[Plan, dict[Part, str], int]:
    """What is written when some leave, and some pauses can't be made any more."""
    parts = Parts(plan, site)
    able = [part for part in parts.all if part[0] in ("answer", "pause")]
    gone: dict[Part, str] = {
        part: CHANGED if part[0] == "pause" else chance.choice((LEFT, CONFLICT))
        for part in chance.sample(able, min(len(able), chance.randint(1, 3)))
    }
    withheld = parts.withheld(gone)
    kept = narrowed(plan, [part for part in parts.all if part not in withheld])
    return kept, gone, len(withheld) - len(gone)


def _written_in_part(seed: int, seen: Counter[str]) -> None:
    """A world lives, and each plan on the way is true in part; the oracle knows of no parts."""
    chance = Random(seed)  # noqa: S311 (a test)
    for _, before, plan in cycles(seed, 12):
        site = replace(before, running=tuple(running_requests(before)))
        kept, gone, needed = _kept(site, plan, chance)
        stay = {each.booking for each in plan.pauses} - {each.booking for each in kept.pauses}
        true = with_room_made(site, kept, stay)
        assert truth.overlaps(true, kept) == [], seed
        assert truth.overshared(true, kept) == [], seed
        assert not {("answer", each.beneficiary) for each in kept.pauses} & gone.keys(), seed
        seen.update(needed=needed, kept=len(Parts(kept, site).all), pauses=len(kept.pauses))


def _all_written_in_part() -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in WORLDS:
        _written_in_part(seed, seen)
    return seen


def test_in_dense_worlds_what_is_kept_never_overlaps() -> None:
    seen = _all_written_in_part()
    assert seen["needed"] > 4
    assert seen["pauses"] > 1
    assert seen["kept"] > seen["needed"]


def test_the_control_without_what_pauses_make_room_for_the_oracle_finds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Parts, "_pauses", lambda _: None)
    with pytest.raises(AssertionError):
        _all_written_in_part()
