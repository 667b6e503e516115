"""What a turn would have been with one thing more or less: the same inputs, decided again."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from random import Random

from solver import Ask, Availability, Plan, Policy, Request, Snapshot, Waiting, solve
from tests.solver import truth
from tests.solver.cycle.test_quote_pauses import as_asked, is_still, without_its_own_weight
from tests.worlds.life import Turn

LAST = "~"
"""The id of a booking that comes after all others."""


def is_true(turn: Turn, wait: Waiting, new: Collection[str], policy: Policy) -> bool:
    """Whether a start that was made later for others stays where it was without them.

    Where nobody is new in the turn the order itself has changed, and nothing can be left out. Who
    takes the guarantee of those that are left out, and so their part, is left out as well, and so
    is who was refused because of them. The resume of who is given notice is a cause by itself:
    without the claim, there is no resume.
    """
    planned = next(r.planned for r in turn.site.requests if r.booking == wait.booking)
    refused = {each.booking for each in turn.plan.refusals}
    others = {*new, *refused, *_claimants(turn.plan), *_came_ahead(turn.site, turn.plan)}
    others -= {wait.booking}
    if not others:
        return True
    while True:
        rest = tuple(row for row in turn.site.requests if row.booking not in others)
        changes = tuple(each for each in turn.site.changes if each.booking not in others)
        alone = solve(replace(turn.site, requests=rest, extensions=(), changes=changes), policy)
        given = [row.starts for row in truth.given_by(alone) if row.booking == wait.booking]
        if planned is not None and all(at <= max(planned.starts, turn.site.now) for at in given):
            return True
        instead = {*_claimants(alone, planned=True), *_came_ahead(turn.site, alone)}
        instead -= others | {wait.booking}
        if not instead:
            return _is_behind_resumes(turn, wait, policy)
        others |= instead


def _is_behind_resumes(turn: Turn, wait: Waiting, policy: Policy) -> bool:
    """Whether a start that was made later stays where it was if those ahead of it that get notice
    in this turn never resume."""
    planned = next(r.planned for r in turn.site.requests if r.booking == wait.booking)
    keys = {each.booking: each.key for each in turn.plan.waits}
    outs = {p.booking: p.at for p in turn.plan.pauses if keys.get(p.booking, wait.key) < wait.key}
    if not outs or planned is None:
        return False
    held = tuple(
        replace(row, ends=outs[row.booking], pausing=True) if row.booking in outs else row
        for row in turn.site.held
    )
    running = tuple(each for each in turn.site.running if each.booking not in outs)
    alone = solve(replace(turn.site, held=held, running=running), policy)
    starts = starts_of(alone).get(wait.booking)
    return starts is not None and starts <= max(planned.starts, turn.site.now)


def _claimants(plan: Plan, *, planned: bool = False) -> Iterator[str]:
    """Bookings for which somebody has notice, or is planned to have it."""
    yield from (pause.beneficiary for pause in plan.pauses)
    for wait in plan.waits if planned else ():
        if any(reason.code == "makes_room" for reason in wait.reasons):
            yield wait.booking


def _came_ahead(site: Snapshot, plan: Plan) -> Iterator[str]:
    """Bookings with an earlier start than before, or other places: since they were planned room has
    become free, so that nobody has to leave for them, or they have come inside their guarantee, or
    aged. Expected starts behind make way for them."""
    before = {r.booking: r.planned for r in site.requests if r.planned is not None}
    for given in truth.given_by(plan):
        old = before.get(given.booking)
        if old is not None and (given.starts < old.starts or given.places != old.places):
            yield given.booking


def said_again(turn: Turn, policy: Policy) -> Iterator[str]:
    """Bookings that change what they must not change: one that is refused, and the last in line;
    and a quote that the next cycle does not keep."""
    site = turn.site
    before = starts_of(turn.plan)
    impossible = _one_more(site, count=1_000)
    if not _are_alike(before, starts_of(solve(_with(site, impossible), policy), but=LAST), policy.grid):
        yield f"{site.now}: a booking that is refused changes others' starts"
    spot = {tier.slug for tier in site.tiers if not tier.counts}
    # Who has notice waits from now on, too.
    if not turn.plan.pauses and not any(row.tier in spot for row in site.requests):
        last = _one_more(site, count=1, tier="spot")
        with without_its_own_weight(LAST):
            plan = solve(_with(site, last), policy)
        if starts_of(plan, but=LAST) != before:
            yield f"{site.now}: the last in line changes others' starts"
    yield from _quoted(site, turn.plan, policy)


def _are_alike(before: Mapping[str, int], after: Mapping[str, int], step: int) -> bool:
    """Whether nobody starts later, and nobody earlier by more than a step of the grid: for so little a
    planned start does not move where it is kept, and a refused booking counts for what is kept."""
    same = before.keys() == after.keys()
    return same and all(0 <= starts - after[booking] <= step for booking, starts in before.items())


def _quoted(site: Snapshot, plan: Plan, policy: Policy) -> Iterator[str]:
    """A quote of a site at rest, and the next cycle."""
    # A quote does not see the places that are kept for who waits for an approval.
    if site.extensions or site.pending or site.changes or not is_still(site, plan):
        return
    availability = Availability(site, policy)
    for request in _requests(site):
        quoted = [option.starts for option in as_asked(availability, request)]
        with without_its_own_weight(LAST):
            given = truth.given_by(solve(_with(site, request), policy))
        starts = [row.starts for row in given if row.booking == LAST]
        if quoted != starts:
            yield f"{site.now}: {quoted} is quoted and {starts} is given to {request}"


def _requests(site: Snapshot) -> Iterator[Request]:
    """One GPU, then something less plain: a gang, a window, or never-paused work of any class."""
    plain = _one_more(site, count=1)
    yield plain
    chance = Random(site.now)  # noqa: S311  the same request each time
    kind = chance.choice(("gang", "window", "classes", "own guarantee"))
    if kind == "gang":
        yield replace(plain, ask=replace(plain.ask, count=2, together="node", required=True))
    elif kind == "window":
        yield replace(plain, earliest=site.now + chance.choice((900, 4_000)), fixed=True)
    elif kind == "classes":
        classes = tuple(sorted({gpu.gpu_class for gpu in site.gpus}))
        lengths = tuple((name, 5_000 + 1_000 * at) for at, name in enumerate(classes))
        durations = lengths if len(classes) > 1 else ()
        yield replace(plain, ask=replace(plain.ask, classes=classes), durations=durations)
    else:
        yield replace(_one_more(site, count=1, tier="std"), earliest=site.now + 1_500)


def _with(site: Snapshot, more: Request) -> Snapshot:
    return replace(site, requests=(*site.requests, more))


def _one_more(site: Snapshot, count: int, tier: str = "flex") -> Request:
    """A request for whole GPUs that nobody else has made."""
    tenants = sorted({row.owner for row in site.limits if row.parent is None})
    classes = sorted({gpu.gpu_class for gpu in site.gpus})
    rules = next(each for each in site.tiers if each.slug == tier)
    tenant = tenants[site.now % len(tenants)]
    return Request(
        booking=LAST,
        tenant=tenant,
        project=f"{tenant}-p",
        tier=tier,
        priority=rules.priority,
        submitted=site.now,
        ask=Ask(count, (classes[-1],), None, "any", required=False),
        duration=5_000,
        earliest=site.now,
        latest=None,
        fixed=False,
        planned=None,
        owner="zoe",
    )


def starts_of(plan: Plan, but: str = "") -> dict[str, int]:
    """When each booking starts."""
    return {row.booking: row.starts for row in truth.given_by(plan) if row.booking != but}
