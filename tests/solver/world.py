"""A small site that lives: plans are made true, time passes, bookings end."""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from random import Random

from solver import (
    Ask,
    Held,
    Host,
    Place,
    Plan,
    PlannedStart,
    Policy,
    Request,
    Snapshot,
    Waiting,
    encode,
    solve,
)
from solver.model.inputs import Together
from tests.solver import truth
from tests.solver.builders import H100, HOUR, NOON, a_limit, gpus
from tests.solver.pausing import GRACE, PRIORITY, a_claim, a_site
from tests.solver.standing import Block, inside_of, potential_of, units_of

TENANTS = ("lab", "firm", "inst")
# Nothing but the rules themselves keeps a pause from being taken back.
RESTLESS = Policy(1, cool_down=1)


@dataclass
class World:
    """What is true between cycles. `log` has (now, victim, beneficiary) of every pause."""

    site: Snapshot
    policy: Policy = RESTLESS
    log: list[tuple[int, str, str]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def cycle(self) -> Plan:
        """Decide, check against the truth, and make it so."""
        site = self.site = replace(self.site, running=tuple(running_requests(self.site)))
        plan = solve(site, self.policy)
        check(site, plan)
        self.log += [(site.now, each.booking, each.beneficiary) for each in plan.pauses]
        self.lost += [each.booking for each in plan.refusals]
        self.site = after(site, plan)
        return plan

    def until(self, now: int) -> list[str]:
        """Time passes: what is due starts or ends. Returns what has ended by itself."""
        done = {row.booking for row in self.site.held if row.ends <= now and not row.pausing}
        held = tuple(
            replace(row, started=True, since=row.since or row.starts) if row.starts <= now else row
            for row in self.site.held
            if row.ends > now
        )
        self.site = replace(self.site, now=now, held=held)
        return sorted(done)

    def next_event(self) -> int:
        """The next second at which something starts or ends, or is promised to; at least 5 on."""
        now = self.site.now
        times = [time for row in self.site.held for time in (row.starts, row.ends)]
        times += [row.planned.starts for row in self.site.requests if row.planned]
        return min((time for time in times if time > now + 5), default=now + HOUR)


def running_requests(site: Snapshot) -> Iterable[Request]:
    """What is left of each running booking that may be paused."""
    tiers = {tier.slug: tier for tier in site.tiers}
    gangs: dict[str, list[Held]] = {}
    for row in site.held:
        if tiers[row.tier].pausable and row.started and not row.pausing:
            gangs.setdefault(row.booking, []).append(row)
    for rows in gangs.values():
        yield left_of(rows, site.now)


def left_of(rows: list[Held], now: int) -> Request:
    """The request behind these rows from now on, without its places."""
    row = rows[0]
    ask = Ask(
        len(rows),
        ("h100",),
        row.place.profile,
        "any",
        required=False,
        share=row.place.share,
        cores=row.cores,
        memory=row.memory,
    )
    request = a_claim(row.booking, tier=row.tier, tenant=row.tenant, ask=ask)
    return replace(request, duration=row.ends - now, pauses=row.pauses)


def after(site: Snapshot, plan: Plan) -> Snapshot:
    """The site with the plan made true at the same instant."""
    asked = {request.booking: request for request in site.requests}
    notified = {each.booking: each.at for each in plan.pauses}
    given = [
        Held(
            id=f"{row.booking}/{place.gpu}/{place.start}/{row.starts}",
            booking=row.booking,
            tenant=asked[row.booking].tenant,
            project=asked[row.booking].project,
            place=place,
            starts=row.starts,
            ends=row.ends,
            started=row.starts <= site.now,
            since=row.starts if row.starts <= site.now else None,
            tier=asked[row.booking].tier,
            pauses=asked[row.booking].pauses,
            cores=asked[row.booking].ask.cores,
            memory=asked[row.booking].ask.memory,
            level=level_of(asked[row.booking]),
            granted=(site.now, position),
        )
        for position, row in enumerate(plan.assigns)
        for place in row.places
    ]
    held = [
        replace(row, ends=notified[row.booking], pausing=True) if row.booking in notified else row
        for row in moved(site.held, plan)
    ]
    paused = {
        request.booking: replace(
            request,
            duration=request.duration - (notified[request.booking] - site.now),
            earliest=notified[request.booking],
            paused=True,
            pauses=request.pauses + 1,
        )
        for request in site.running
        if request.booking in notified
    }
    promised = {row.booking: planned_start_of(row) for row in plan.waits}
    gone = {row.booking for row in plan.assigns} | {row.booking for row in plan.refusals}
    waiting = {name: row for name, row in asked.items() if name not in gone} | paused
    requests = tuple(replace(row, planned=promised.get(name)) for name, row in waiting.items())
    return replace(site, held=(*held, *given), requests=requests)


def level_of(request: Request) -> Together | None:
    """The level of its gang; a booking that resumes after a pause is not moved."""
    ask = request.ask
    if request.paused:
        return None
    return ask.together if ask.required and ask.count > 1 else "any"


def moved(held: Iterable[Held], plan: Plan) -> list[Held]:
    """The rows with their places after the plan's moves."""
    places = {move.booking: list(move.places) for move in plan.moves}
    return [replace(row, place=places[row.booking].pop()) if row.booking in places else row for row in held]


def planned_start_of(row: Waiting) -> PlannedStart | None:
    """As the services store it: without places there is none."""
    return PlannedStart(row.starts, row.ends, row.places, row.strength) if row.places else None


def standing(plan: Plan) -> list[Waiting]:
    """Planned starts with victims, with or without notice."""
    return [row for row in plan.waits if any(why.code == "makes_room" for why in row.reasons)]


def with_room_made(site: Snapshot, plan: Plan, but: Container[str] = ()) -> Snapshot:
    """The site as the plan leaves it: victims of pauses and of planned starts end then.

    `but` are those that get no notice after all.
    """
    leaves = {each.booking: each.at for each in plan.pauses if each.booking not in but}
    return _left(site, plan, leaves | _leaves_unnotified(site, plan))


def _left(site: Snapshot, plan: Plan, leaves: dict[str, int]) -> Snapshot:
    held = tuple(replace(row, ends=min(row.ends, leaves.get(row.booking, row.ends))) for row in site.held)
    return replace(site, held=held, requests=(*site.requests, *resumed(site, plan)))


def _leaves_unnotified(site: Snapshot, plan: Plan) -> dict[str, int]:
    """When the victims of planned starts that have no notice yet leave.

    Those in the way on a GPU must. For host cores the plan does not name them: the fewest whose
    leaving is enough.
    """
    notified = {each.booking: each.at for each in plan.pauses}
    leaves: dict[str, int] = {}
    for wait in standing(plan):
        for row in _may_leave(site, plan):
            if any(_meet(row, place) for place in wait.places) and row.ends > wait.starts:
                leaves[row.booking] = min(leaves.get(row.booking, row.ends), wait.starts)
    others = sorted({row.booking for row in _may_leave(site, plan) if row.cores})
    starts = sorted({wait.starts for wait in standing(plan)})
    for count, at in product(range(len(others) + 1), starts):
        for some in combinations(others, count):
            more = leaves | {name: min(leaves.get(name, at), at) for name in some}
            if not truth.beyond_hosts(_left(site, plan, notified | more), plan):
                return more
    return leaves


def _may_leave(site: Snapshot, plan: Plan) -> list[Held]:
    notified = {each.booking for each in plan.pauses}
    return [row for row in site.held if row.since is not None and row.booking not in notified]


def resumed(site: Snapshot, plan: Plan) -> list[Request]:
    """The requests of those with notice."""
    notified = {each.booking for each in plan.pauses}
    return [request for request in site.running if request.booking in notified]


def check(site: Snapshot, plan: Plan) -> None:
    """Everything that must hold of one plan with pauses."""
    true = with_room_made(site, plan)
    assert truth.overlaps(true, plan) == []
    assert truth.overshared(true, plan) == []
    assert truth.beyond_hosts(true, plan) == []
    assert truth.illegal(true, plan) == []
    assert truth.torn(true, plan) == []
    # Before notice the plan does not state whose quota a planned start uses.
    notified = {each.beneficiary for each in plan.pauses}
    if {row.booking for row in standing(plan)} <= notified:
        assert truth.over_limit(true, plan) == []
    sure = replace(plan, waits=tuple(row for row in plan.waits if row.booking in notified))
    assert truth.over_limit(true, sure) == []
    assert encode(solve(site, RESTLESS)) == encode(plan)
    tiers = {tier.slug: tier for tier in site.tiers}
    for pause in plan.pauses:
        rows = [row for row in site.held if row.booking == pause.booking]
        assert rows
        assert all(row.since is not None and not row.pausing for row in rows)
        tier = tiers[rows[0].tier]
        assert tier.pausable
        assert site.now + tier.grace <= pause.at < rows[0].ends
        assert is_allowed(site, plan, pause.booking, pause.beneficiary)
        assert is_needed(site, plan, pause.booking) or is_needed(
            site, until_placed(plan, pause.beneficiary), pause.booking
        )
    assert plan.dropped == ()
    assert not plan.pauses or raises_potential(site, plan)
    assert not [row for row in plan.refusals if is_paused(site, row.booking)]
    check_worth(site, plan)


def check_worth(site: Snapshot, plan: Plan) -> None:
    """Without the pauses it would have started later, by more than a notice if it can wait.

    Looked at only where one booking has others paused and all who start now do so without the
    pauses, too: who is ahead in the queue may take its place just because it can pause.
    """
    winners = {pause.beneficiary for pause in plan.pauses}
    if len(winners) != 1 or {row.booking for row in standing(plan)} - winners:
        return
    alone = replace(site, held=tuple(replace(row, since=None) for row in site.held))
    others = {row.booking: row.starts for row in truth.given_by(solve(alone, RESTLESS))}
    if any(row.starts != others.get(row.booking) for row in plan.assigns):
        return
    (mine,) = (row for row in truth.given_by(plan) if row.booking in winners)
    request = next(row for row in site.requests if row.booking == mine.booking)
    if mine.booking in others:
        assert mine.starts + (0 if request.fixed else 30) < others[mine.booking]


def is_paused(site: Snapshot, booking: str) -> bool:
    """True for one that waits to resume."""
    return any(row.booking == booking and row.paused for row in site.requests)


def is_needed(site: Snapshot, plan: Plan, victim: str) -> bool:
    """Putting this one back breaks the plan: a slot twice, or somebody over a limit."""
    back = with_room_made(site, plan, but={victim})
    only = replace(plan, waits=tuple(row for row in plan.waits if row.booking != victim))
    return bool(
        truth.overlaps(back, only)
        or truth.over_limit(back, only, always=True)
        or truth.beyond_hosts(back, only)
    )


def until_placed(plan: Plan, booking: str) -> Plan:
    """The plan when this booking had its place. Who comes after it in the queue may pause more, and
    leave an earlier pause without a use: the fewest lost hours are proven for one claim only."""
    position = {row.booking: row.position for row in plan.assigns}
    later = {name for name, at in position.items() if at > position.get(booking, at)}
    pauses = tuple(row for row in plan.pauses if row.beneficiary not in later)
    spared = {row.booking for row in plan.pauses} - {row.booking for row in pauses}
    return replace(
        plan,
        pauses=pauses,
        assigns=tuple(row for row in plan.assigns if row.booking not in later),
        waits=tuple(row for row in plan.waits if row.booking not in spared),
    )


def is_allowed(site: Snapshot, plan: Plan, victim: str, winner: str) -> bool:
    """A lower tier of the own tenant, or of another what is not inside its guarantee, whatever this
    cycle granted first."""
    tiers = {tier.slug: tier for tier in site.tiers}
    loser = next(row for row in site.held if row.booking == victim)
    request = next(row for row in site.requests if row.booking == winner)
    if not tiers[request.tier].counts:
        return False
    if loser.tenant == request.tenant:
        return PRIORITY[loser.tier] < PRIORITY[request.tier]
    written = [each for each in _written(site, plan) if each.tenant == loser.tenant and each.name != winner]
    return victim not in inside_of([*in_place(site), *written], site.limits)


def raises_potential(site: Snapshot, plan: Plan) -> bool:
    """What is in place is worth more after the pauses of a cycle than before."""
    noticed = {pause.booking for pause in plan.pauses}
    before = in_place(site)
    after_it = [each for each in before if each.name not in noticed] + _written(site, plan)
    levels = [(tier.priority, not tier.pausable) for tier in site.tiers]
    return potential_of(after_it, site.limits, levels, "h100") > potential_of(
        before, site.limits, levels, "h100"
    )


def in_place(site: Snapshot) -> list[Block]:
    """Who runs or is written to start, or waits for who has been given notice."""
    by_name: dict[str, list[Held]] = {}
    for row in site.held:
        if not row.pausing:
            by_name.setdefault(row.booking, []).append(row)
    held = [
        _block(site, name, rows[0], sum(units_of(H100, row.place) for row in rows))
        for name, rows in by_name.items()
    ]
    leaving = {(row.place.gpu, row.ends) for row in site.held if row.pausing}
    return held + [
        _block(site, row.booking, row, _asked(row))
        for row in site.requests
        if row.planned and any((p.gpu, row.planned.starts) in leaving for p in row.planned.places)
    ]


def _written(site: Snapshot, plan: Plan) -> list[Block]:
    """What a cycle writes: grants, and claims that others are given notice for."""
    names = {row.booking for row in plan.assigns} | {row.beneficiary for row in plan.pauses}
    known = {block.name for block in in_place(site)}
    return [
        _block(site, row.booking, row, _asked(row)) for row in site.requests if row.booking in names - known
    ]


def _asked(request: Request) -> int:
    ask = request.ask
    return ask.count * units_of(H100, Place("", ask.profile, 0, 8, ask.share))


def _block(site: Snapshot, name: str, row: Held | Request, units: int) -> Block:
    tier = next(each for each in site.tiers if each.slug == row.tier)
    granted = (row.granted or (0, 0)) if isinstance(row, Held) else (site.now, 10**6)
    level = (tier.priority, not tier.pausable)
    return Block(name, row.tenant, row.project, "h100", units, level, granted, tier.counts)


def _meet(row: Held, place: Place) -> bool:
    mine = row.place
    is_beside = mine.start >= place.start + place.size or place.start >= mine.start + mine.size
    return mine.gpu == place.gpu and not is_beside


def a_world(chance: Random) -> World:
    """Three tenants on two to eight GPUs, one of them without a guarantee; some GPUs nobody's."""
    fleet = tuple(
        gpu for node in range(chance.randint(1, 2)) for gpu in gpus(chance.randint(2, 4), node=f"n{node}")
    )
    lab = chance.randint(1, len(fleet))
    firm = chance.randint(0, len(fleet) - lab)
    limits = tuple(
        a_limit(tenant, sure, borrow=chance.choice((0, 2, None, None, None)))
        for tenant, sure in zip(TENANTS, (lab, firm, 0), strict=True)
    )
    site = a_site(fleet=fleet, limits=limits)
    quick = tuple(replace(tier, protected=0, pauses=None) for tier in site.tiers)
    hosts = tuple(Host(node, 48_000, 0) for node in sorted({gpu.node for gpu in fleet}))
    return World(replace(site, tiers=quick, hosts=hosts))


def an_arrival(chance: Random, number: int, now: int) -> Request:
    """A booking of any tenant and tier; some later, some fixed, some slices, some gangs."""
    tier = chance.choice(("standard", "standard", "flex", "flex", "spot"))
    profile = chance.choice((None, None, None, "1g.10gb", "3g.40gb"))
    request = chance.choice((0, 0, 0, 2 * GRACE, HOUR))
    together: Together = "node" if chance.random() < 0.3 else "any"
    ask = Ask(chance.choice((1, 1, 2, 3)), ("h100",), profile, together, together == "node")
    ask = replace(ask, cores=chance.choice((0, 0, 0, 8_000, 20_000)))
    if ask.profile is None and chance.random() < 0.15:
        ask = replace(ask, count=1, share=chance.choice((250, 600)), required=False)
    fixed = chance.random() < 0.2
    return a_claim(
        f"b{number:02}",
        ask=ask,
        tier=tier,
        tenant=chance.choice(TENANTS if tier != "standard" else TENANTS[:2]),
        hours=chance.choice((1, 3, 8, 24)),
        earliest=now - NOON + request,
        fixed=fixed,
        submitted=number,
    )
