"""An operator's order to move running work: carried out whole as it was shown, or not at all."""

from dataclasses import replace

import pytest

from solver import (
    Extension,
    Held,
    Maintenance,
    Order,
    Plan,
    PlannedStart,
    Relocation,
    Request,
    Snapshot,
    decode,
    encode,
    solve,
)
from solver.cycle.compaction import Proposal, propose
from solver.cycle.relocation_orders import GONE, LIMIT, MOVED, TAKEN, TOO_LATE
from tests.solver.builders import (
    HOUR,
    NOON,
    POLICY,
    a_held,
    a_limit,
    a_planned_start,
    a_request,
    an_ask,
    gpus,
    whole,
)
from tests.solver.cycle.test_compaction import SLICE
from tests.solver.pausing import GRACE, a_site, given, notices, rest_of, running

ENDS = 3 * HOUR


def a_slice(booking: str, gpu: str, saved: int) -> tuple[Held, ...]:
    """A slice that may be paused, for three hours more."""
    place = replace(whole(gpu), profile=SLICE, start=0, size=1)
    return running(booking, place, tenant="other", ends=ENDS, saved=saved)


def full(*requests: Request, count: int = 2, saved: int = -60) -> Snapshot:
    """A slice on every GPU, the first saved last, and a booking that waits for a whole GPU."""
    held = [a_slice(f"slice-{n}", f"n1-{n}", saved - n) for n in range(count)]
    request = a_request("claim", an_ask(1), hours=2)
    rows = [row for rows in held for row in rows]
    site = a_site(request, *requests, held=rows, fleet=gpus(count))
    return replace(site, running=tuple(rest_of(rows, NOON) for rows in held))


def ordered(site: Snapshot, now: int = 10) -> tuple[Snapshot, Proposal]:
    """The same site a little later with its one proposal ordered; planned starts are written."""
    plan = solve(site, POLICY)
    (found,) = propose(site, plan, POLICY)
    moves = tuple(Relocation(each.booking, each.source, each.target) for each in found.moves)
    order = Order("order", found.beneficiary, found.gpu_class, found.places, moves)
    planned_starts = {
        row.booking: PlannedStart(row.starts, row.ends, row.places, row.strength) for row in plan.waits
    }
    requests = tuple(replace(r, planned=planned_starts.get(r.booking)) for r in site.requests)
    rest = tuple(replace(request, duration=request.duration - now) for request in site.running)
    return replace(site, now=site.now + now, requests=requests, running=rest, orders=(order,)), found


def why_not(plan: Plan) -> str:
    """The problem of an order that was not carried out; nobody has notice."""
    (answer,) = plan.orders
    assert plan.pauses == ()
    assert plan.withdrawn == ()
    (why,) = answer.reasons
    assert (why.rule, why.code) == ("R82", "order_stale")
    return str(why.facts["problem"])


def test_the_beneficiary_gets_the_room_and_who_moved_goes_on_at_the_same_instant() -> None:
    site, proposal = ordered(full())
    plan = solve(site, POLICY)
    starts = 10 + GRACE
    assert plan.orders[0].reasons == ()
    assert notices(plan) == {"slice-0": ("claim", starts)}
    assert plan.pauses[0].reasons[0].rule == "R81"
    assert given(plan) == {"claim": ("assign", starts), "slice-0": ("wait", starts)}
    (assign,), (rest,) = plan.assigns, plan.waits
    assert assign.places == proposal.places == (whole("n1-0"),)
    assert rest.places == (proposal.moves[0].target,)
    assert rest.ends == NOON + ENDS
    # What was planned is what was shown.
    assert proposal.notice == GRACE
    assert decode(Plan, encode(plan)) == plan
    assert encode(decode(Snapshot, encode(site))) == encode(site)


def test_without_the_order_nobody_is_told() -> None:
    site, _ = ordered(full())
    plan = solve(replace(site, orders=()), POLICY)
    assert (plan.pauses, plan.orders) == ((), ())
    assert given(plan) == {"claim": ("wait", ENDS)}


def test_others_keep_the_starts_that_they_were_promised() -> None:
    other = a_request("other", an_ask(1, profile=SLICE), hours=1, earliest=HOUR)
    alone = solve(full(other), POLICY)
    site, _ = ordered(full(other))
    both = solve(site, POLICY)
    assert both.orders[0].reasons == ()
    assert given(both)["other"] == given(alone)["other"]


def gone(site: Snapshot) -> Snapshot:
    return replace(site, requests=())


def no_longer_there(site: Snapshot) -> Snapshot:
    return replace(site, held=tuple(row for row in site.held if row.booking != "slice-0"))


def just_started(site: Snapshot) -> Snapshot:
    return replace(site, held=tuple(replace(row, since=site.now) for row in site.held))


def paused_often(site: Snapshot) -> Snapshot:
    return replace(site, held=tuple(replace(row, pauses=3) for row in site.held))


def taken(site: Snapshot) -> Snapshot:
    """Somebody was given slices where the moved one was to go."""
    more = a_held("n1-1", starts=HOUR, ends=5 * HOUR)
    return replace(site, held=(*site.held, more))


def promised(site: Snapshot) -> Snapshot:
    """Somebody had a guaranteed start on the GPU that the other was to have."""
    planned = a_planned_start(ENDS, 1, whole("n1-0"), strength="guaranteed")
    request = a_request("first", an_ask(1), planned=planned, priority=90)
    claim = replace(site.requests[0], duration=4 * HOUR)
    return replace(site, requests=(request, claim))


def out_of_service(site: Snapshot) -> Snapshot:
    return replace(site, gpus=tuple(replace(g, usable=g.id != "n1-1") for g in site.gpus))


def target_silent(site: Snapshot) -> Snapshot:
    """The node to which a booking would move does not answer."""
    return replace(site, gpus=tuple(replace(g, silent=g.id == "n1-1") for g in site.gpus))


def source_silent(site: Snapshot) -> Snapshot:
    """The node on which a booking runs does not answer, so no notice reaches it."""
    return replace(site, gpus=tuple(replace(g, silent=g.id == "n1-0") for g in site.gpus))


def of_another_class(site: Snapshot) -> Snapshot:
    """The model of a GPU was given to another class."""
    gpus = (replace(g, gpu_class="other") if g.id == "n1-1" else g for g in site.gpus)
    return replace(site, gpus=tuple(gpus))


def in_maintenance(site: Snapshot) -> Snapshot:
    return replace(site, blackouts=(Maintenance("n1-0", NOON + HOUR, NOON + 2 * HOUR),))


def limited(site: Snapshot) -> Snapshot:
    limits = (a_limit("lab", 0), a_limit("other", 2))
    return replace(site, limits=limits)


def without_deadline_met(site: Snapshot) -> Snapshot:
    late = replace(site.requests[0], latest=NOON + 2 * HOUR, planned=None)
    return replace(site, requests=(late,))


def extended(site: Snapshot) -> Snapshot:
    return replace(site, extensions=(Extension("slice-0", NOON + ENDS + 600),))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (gone, GONE),
        (no_longer_there, MOVED),
        (just_started, MOVED),
        (paused_often, MOVED),
        (extended, MOVED),
        (taken, TAKEN),
        (promised, TAKEN),
        (out_of_service, TAKEN),
        (target_silent, TAKEN),
        (source_silent, MOVED),
        (of_another_class, TAKEN),
        (in_maintenance, TAKEN),
        (limited, LIMIT),
        (without_deadline_met, TOO_LATE),
    ],
)
def test_an_order_that_no_longer_holds_changes_nothing_and_says_why(change, problem: str) -> None:  # type: ignore[no-untyped-def]  # one of the functions above
    site, _ = ordered(full())
    changed = change(site)
    plan = solve(changed, POLICY)
    assert why_not(plan) == problem
    assert replace(plan, orders=()) == solve(replace(changed, orders=()), POLICY)


def test_two_that_swap_round_are_out_before_either_goes_on() -> None:
    """Both slices of one GPU go, to two other GPUs, and all three changes are one instant."""
    three = full(count=3)
    site, proposal = ordered(three)
    plan = solve(site, POLICY)
    starts = {each.at for each in plan.pauses} | {row.starts for row in plan.waits}
    assert starts == {plan.assigns[0].starts}
    assert len(plan.pauses) == len(proposal.moves)


def test_an_order_is_decided_the_same_whatever_the_order_of_rows() -> None:
    site, _ = ordered(full(count=3))
    turned = replace(site, held=site.held[::-1], gpus=site.gpus[::-1], running=site.running[::-1])
    assert encode(solve(site, POLICY)) == encode(solve(turned, POLICY))
