"""Proposals to move running work: worth it, whole, legal, and never a surprise."""

from dataclasses import replace

from solver import Assign, Held, Place, Snapshot, Tier, solve
from solver.cycle.compaction import RESUME_SECONDS, Proposal, propose
from solver.model.inputs import Change
from solver.model.plan import ChangeAnswer
from tests.solver.builders import HOUR, NOON, POLICY, a_held, a_request, a_snapshot, an_ask, gpus

FLEX = Tier("flex", pausable=True, counts=True, grace=120, protected=600)
SLICE = "1g.10gb"


def a_running(gpu: str, start: int, *, since: int = -HOUR, saved: int | None = None) -> Held:
    """One slice of a tier that may be paused, for three hours more."""
    held = a_held(gpu, starts=since, ends=3 * HOUR, profile=SLICE, start=start, size=1, tier="flex")
    return replace(held, since=NOON + since, saved=None if saved is None else NOON + saved)


def a_site(*held: Held, count: int = 2) -> Snapshot:
    """A lab that waits for one whole GPU."""
    request = a_request(ask=an_ask(1), hours=2)
    snapshot = a_snapshot(request, fleet=gpus(count), held=held)
    return replace(snapshot, tiers=(FLEX, *(t for t in snapshot.tiers if t.slug != "flex")))


def proposals(snapshot: Snapshot) -> tuple[Proposal, ...]:
    return propose(snapshot, solve(snapshot, POLICY), POLICY)


def test_two_slices_on_two_gpus_move_together() -> None:
    saved_late = a_running("n1-0", 2, saved=-60)
    (found,) = proposals(a_site(saved_late, a_running("n1-1", 5)))
    assert found.beneficiary == "b1"
    assert [each.gpu for each in found.places] == ["n1-0"]
    (move,) = found.moves
    assert (move.booking, move.source.gpu, move.target.gpu) == (saved_late.booking, "n1-0", "n1-1")
    assert (move.cost, found.cost) == (60 + RESUME_SECONDS, 60 + RESUME_SECONDS)
    assert (found.notice, found.sooner) == (120, 3 * HOUR - 120)
    assert found.proven


def test_what_was_just_started_is_left_alone() -> None:
    held = (a_running("n1-0", 0, since=-60), a_running("n1-1", 0, since=-60))
    assert proposals(a_site(*held)) == ()


def test_what_is_never_paused_is_left_alone() -> None:
    held = (replace(a_running(f"n1-{gpu}", 0), tier="standard") for gpu in range(2))
    assert proposals(a_site(*held)) == ()


def test_a_gang_is_left_alone() -> None:
    held = (replace(a_running(f"n1-{gpu}", 0), booking="gang") for gpu in range(2))
    assert proposals(a_site(*held)) == ()


def test_nothing_is_proposed_when_nobody_waits() -> None:
    snapshot = a_site(a_running("n1-0", 0), a_running("n1-1", 0))
    assert proposals(replace(snapshot, requests=())) == ()


def test_what_moves_does_not_go_where_somebody_is_promised_to_be() -> None:
    """The only other place is free now, but not for as long as the moved work runs."""
    later = a_held("n1-1", starts=HOUR, ends=5 * HOUR)
    assert proposals(a_site(a_running("n1-0", 0), later)) == ()


def test_rows_in_any_order_give_the_same_proposals() -> None:
    snapshot = a_site(*(a_running(f"n1-{gpu}", gpu) for gpu in range(4)), count=4)
    turned = replace(snapshot, held=snapshot.held[::-1], gpus=snapshot.gpus[::-1])
    assert proposals(snapshot) == proposals(turned)
    assert len(proposals(snapshot)) == 1


def test_who_has_changed_in_the_same_plan_is_in_the_way_of_a_move() -> None:
    """Its change was granted: it is no request of the queue any more."""
    site = a_site(a_running("n1-0", 2, saved=-60), a_running("n1-1", 5))
    target = replace(a_request("change of b2", an_ask(1, profile=SLICE)), duration=4 * HOUR)
    site = replace(site, changes=(Change("b2", target),))
    plan = solve(replace(site, changes=()), POLICY)
    place = Place("n1-1", SLICE, 0, 1)
    given = Assign("b2", "h100", (place,), NOON + 60, NOON + 60 + 4 * HOUR, ())
    answer = ChangeAnswer("b2", "change of b2")
    (found,) = propose(site, replace(plan, assigns=(given,), changes=(answer,)), POLICY)
    assert place not in {move.target for move in found.moves}


def test_a_mixed_booking_that_waits_keeps_its_planned_places_of_both_classes() -> None:
    ask = replace(an_ask(1), groups=(an_ask(1, "l40s"),))
    site = a_site(a_running("n1-0", 2, saved=-60), a_running("n1-1", 5))
    both = replace(a_request("mixed", ask), submitted=NOON)
    fleet = (*site.gpus, *gpus(1, "l40s", "l40s", node="n2"))
    site = replace(site, requests=(*site.requests, both), gpus=fleet)
    plan = solve(site, POLICY)
    (wait,) = (each for each in plan.waits if each.booking == "mixed")
    assert {place.gpu[:2] for place in wait.places} == {"n1", "n2"}
    assert [each.beneficiary for each in propose(site, plan, POLICY)] == ["b1"]
