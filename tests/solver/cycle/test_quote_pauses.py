"""What is quoted is what the next cycle gives, if nothing else happens: also by a pause."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver import (
    Availability,
    Option,
    Plan,
    QuoteRequest,
    Request,
    Snapshot,
    Used,
    solve,
)
from solver.cycle.order.guaranteed_use import GuaranteedUse
from solver.cycle.quote import QuoteWalk
from solver.fleet.demand_mix import HeldKind, Mix, mixes_of
from solver.model.inputs import Strength
from solver.preemption.search import Preemption
from tests.solver import truth
from tests.solver.builders import HOUR, NOON, POLICY, a_limit, a_request, a_snapshot, gpus, whole
from tests.solver.pausing import GRACE, a_claim, a_site, later, running
from tests.solver.preemption.test_preemption_properties import cycles
from tests.solver.state.test_planned_rows_properties import worlds
from tests.solver.world import an_arrival, planned_start_of, running_requests

LIMITS = (a_limit("lab", 3, borrow=0), a_limit("firm", 0, borrow=None))
HELD = (
    *running("lent", whole("n1-0"), whole("n1-1")),
    *running("own", whole("n1-2"), tenant="lab", tier="spot"),
    *running("stays", whole("n1-3"), tier="standard"),
)


def question(request: Request) -> QuoteRequest:
    """The same request, as a quote."""
    return QuoteRequest(
        request.ask,
        request.duration,
        request.earliest,
        request.latest,
        request.fixed,
        request.tenant,
        request.project,
        tier=request.tier,
        owner=request.owner,
        priority=request.priority,
        lengths=dict(request.durations),
        within=request.within,
    )


def is_still(site: Snapshot, plan: Plan) -> bool:
    """Nothing happens in this cycle: planned starts stay as they are."""
    planned_starts = {request.booking: request.planned for request in site.requests}
    moved = [row for row in plan.waits if planned_start_of(row) != planned_starts.get(row.booking)]
    return not (plan.assigns or plan.pauses or plan.refusals or moved)


@dataclass
class Seen:
    """Quotes compared with the plan: all; where others leave; behind others in line, and of these
    those that come later for it; where what is written has moved; the strengths of their starts."""

    compared: int = 0
    pausing: int = 0
    behind: int = 0
    later: int = 0
    moving: int = 0
    strengths: Counter[Strength] = field(default_factory=Counter)


def agree(seed: int, arrivals: int, seen: Seen) -> None:
    """A quote on each site at rest, some with others in line, and then the cycle."""
    chance = Random(seed)  # noqa: S311  made-up requests
    for world, _, _ in cycles(seed, arrivals):
        site = replace(world.site, running=tuple(running_requests(world.site)))
        if chance.random() > 0.3 or not is_still(site, solve(site, world.policy)):
            continue
        line = [
            replace(an_arrival(chance, 90 + number, site.now), submitted=site.now - number)
            for number in range(chance.choice((0, 1, 2, 4)))
        ]
        new = replace(an_arrival(chance, 99, site.now), submitted=site.now)
        alone = Availability(site, world.policy)
        site = replace(site, requests=(*site.requests, *line))
        with without_its_own_weight("b99"):
            plan = solve(replace(site, requests=(*site.requests, new)), world.policy)
        mine = {(row.starts, row.ends) for row in truth.given_by(plan) if row.booking == "b99"}
        availability = Availability(site, world.policy)
        quoted = as_asked(availability, new)
        assert {(option.starts, option.ends) for option in quoted} == mine
        assert [option.strength for option in quoted] == strengths_of(plan, "b99")
        seen.strengths.update(option.strength for option in quoted)
        as_asked(availability, replace(new, priority=0))
        assert as_asked(availability, new) == quoted, "asking changes nothing"
        seen.compared += 1
        seen.pausing += any(option.pauses for option in quoted)
        seen.behind += bool(line)
        seen.later += quoted != as_asked(alone, new)
        seen.moving += bool(plan.moves)


def strengths_of(plan: Plan, booking: str) -> list[Strength | None]:
    """What the plan says of its start, if it has one; what is assigned is firm."""
    assigned: list[Strength | None] = ["firm" for row in plan.assigns if row.booking == booking]
    return assigned + [row.strength for row in plan.waits if row.booking == booking]


@contextmanager
def without_its_own_weight(newcomer: str) -> Iterator[None]:
    """What is asked for lately weighs where others lie. In the cycle the newcomer's own ask is one
    of that; a quote is made before anybody asks."""

    def mixes(held: Mapping[HeldKind, int], requests: Iterable[Request]) -> dict[str, Mix]:
        return mixes_of(held, [each for each in requests if each.booking != newcomer])

    with patch("solver.state.held_space.mixes_of", mixes):
        yield


def as_asked(availability: Availability, request: Request) -> list[Option]:
    """The start that is quoted."""
    options = availability.quote(question(request)).options
    return [option for option in options if option.kind == "as_asked"]


def test_the_quoted_start_is_the_one_that_the_next_cycle_gives() -> None:
    seen = Seen()
    agree(13, 5, seen)
    assert seen.compared > 4
    assert seen.pausing, "nobody is asked to leave: this shows nothing"
    assert seen.behind
    assert seen.later, "nobody in line is in the way: this shows nothing"


def test_the_quoted_strength_is_the_one_that_the_next_cycle_states() -> None:
    seen = Seen()
    agree(4, 8, seen)
    agree(9, 8, seen)
    # Here the queue frees a start twice before the quote.
    agree(6, 8, seen)
    assert set(seen.strengths) == {"firm", "guaranteed", "expected"}, seen.strengths


def test_the_control_without_the_guarantee_the_strength_differs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(GuaranteedUse, "is_inside", lambda *_: False)
    with pytest.raises(AssertionError):
        test_the_quoted_strength_is_the_one_that_the_next_cycle_states()


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**9), st.integers(4, 16))
def test_the_same_for_very_many_sites(seed: int, arrivals: int) -> None:
    agree(seed, arrivals, Seen())


def let_in(sites: Iterable[Snapshot]) -> Iterator[tuple[bool, bool]]:
    """Of sites with one that wants a window: whether it is quoted, and let in by moves."""
    for site in sites:
        (new,) = site.requests
        plan = solve(site, POLICY)
        quoted = as_asked(Availability(replace(site, requests=()), POLICY), new)
        assert bool(quoted) == bool(plan.assigns)
        yield bool(quoted), bool(plan.moves)


def test_a_window_that_the_cycle_lets_in_by_moving_others_is_quoted() -> None:
    found = Counter(let_in(worlds(range(60))))
    assert min(found[True, True], found[True, False], found[False, False]) > 5, found


def test_the_control_without_moves_such_a_window_is_told_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Availability, "_beside", lambda *_: None)
    with pytest.raises(AssertionError):
        Counter(let_in(worlds(range(60))))


def test_the_control_without_the_line_the_quote_names_an_earlier_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(QuoteWalk, "run_until", lambda *_: None)
    with pytest.raises(AssertionError):
        test_the_quoted_start_is_the_one_that_the_next_cycle_gives()


def test_a_lower_tier_in_line_is_not_waited_for() -> None:
    site = a_snapshot(fleet=gpus(1))
    mine = a_request("mine", priority=50)
    for priority, starts in ((51, HOUR), (50, HOUR), (49, 0)):
        other = a_request("other", priority=priority)
        availability = Availability(replace(site, requests=(other,)), POLICY)
        (option,) = as_asked(availability, mine)
        assert option.starts == NOON + starts, priority


def test_an_option_says_how_many_leave_and_by_which_rule_and_nobody_is_told() -> None:
    site = a_site(held=HELD, fleet=gpus(4), limits=LIMITS)
    availability = Availability(site, POLICY)
    asked = question(a_claim(count=3))
    (option, *_) = availability.quote(asked).options
    assert (option.starts - NOON, option.pauses) == (GRACE, (("higher_tier", 1), ("taken_back", 1)))
    assert availability.quote(asked).options[0] == option
    assert "firm" not in repr(replace(option, strength="expected")), "the other tenant's name"


def test_a_claim_that_may_have_nobody_paused_is_quoted_the_end_of_others() -> None:
    site = a_site(held=HELD, fleet=gpus(4), limits=LIMITS)
    (option, *_) = Availability(site, POLICY).quote(question(a_claim(count=3, tier="spot"))).options
    assert (option.starts - NOON, option.pauses) == (6 * HOUR, ())


def test_the_control_without_the_search_the_quote_names_a_later_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Preemption, "_earliest_paused", lambda *_: None)
    site = a_site(held=HELD, fleet=gpus(4), limits=LIMITS)
    (option, *_) = Availability(site, POLICY).quote(question(a_claim(count=3))).options
    assert option.starts == NOON + 6 * HOUR


def quoted_and_given(site: Snapshot, asked: Request) -> tuple[list[int], list[int]]:
    """The quoted starts and those of the next cycle, from NOON."""
    quoted = [option.starts - NOON for option in as_asked(Availability(site, POLICY), asked)]
    plan = solve(replace(site, requests=(*site.requests, asked)), POLICY)
    mine = [row.starts - NOON for row in truth.given_by(plan) if row.booking == asked.booking]
    return quoted, mine


def planned(site: Snapshot) -> Snapshot:
    """The site a minute later, with the planned starts of this cycle."""
    return later(site, solve(site, POLICY), 60)


def test_a_quote_knows_that_its_request_lowers_the_parts_of_others() -> None:
    """With one more borrower the one in the queue is over its part, and so behind."""
    limits = (a_limit("lab", 2), a_limit("firm", 0, borrow=None), a_limit("hub", 0, borrow=None))
    held = running("busy", whole("n1-1"), tenant="lab", tier="standard")
    waits = a_claim("waits", tier="flex", tenant="firm", earliest=HOUR // 2)
    used = (Used("firm", "firm-p", "h100", NOON - HOUR, 10 * HOUR * 56_000),)
    site = planned(a_site(waits, held=held, fleet=gpus(2), limits=limits, used=used))
    asked = replace(a_claim("~", tier="flex", tenant="hub", hours=2), submitted=site.now)
    assert quoted_and_given(site, asked) == ([60], [60])


def test_a_quote_frees_what_is_in_the_way_of_work_that_moves_for_it() -> None:
    """Written work moves to a GPU that a booking behind is planned on after the quote's own end."""
    written = replace(
        running("written", whole("n1-0"), since=HOUR, ends=4 * HOUR)[0],
        started=False,
        since=None,
        level="any",
    )
    busy = running("busy", whole("n1-1"), tier="standard", ends=HOUR - 600)
    spot = a_claim("spot", tier="spot", tenant="firm", earliest=3 * HOUR)
    limits = (a_limit("lab", 0, borrow=None), a_limit("firm", 0, borrow=None))
    site = planned(a_site(spot, held=(written, *busy), fleet=gpus(2), limits=limits))
    asked = replace(a_claim("~", tier="flex", hours=2), submitted=site.now)
    assert quoted_and_given(site, asked) == ([60], [60])
