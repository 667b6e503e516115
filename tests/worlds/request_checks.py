"""What must hold of changes, approvals, offers and entries, by the invariants of the design.

Each is computed from the turn alone, or by deciding the same turn again without something.
"""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

from solver import Held, Place, Plan, Policy, Request, Snapshot, encode, solve
from tests.solver import truth
from tests.worlds.guarantees import limits_now
from tests.worlds.life import Turn, World
from tests.worlds.people import Weakened
from tests.worlds.replay import starts_of

INSIDE = 0
"""The first key of who is inside the guarantee, or is never paused."""
AGAIN = 2
"""So many turns with each kind of request are decided again in a world."""
Row = tuple[str, Place, int, int]


class RequestChecks:
    """Follows what people of one world do; the same one from its first turn to its last."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._again: dict[str, int] = {}

    def look(self, turn: Turn) -> Iterator[str]:
        """What is wrong in one turn, after its plan was made true."""
        found = [
            *self._kept(turn),
            *self._unapproved(turn),
            *self._notices(turn),
            *self._overlaps(turn),
            *self._answers(turn),
        ]
        policy = self._world.policy
        site, plan = turn.site, turn.plan
        if any(each.granted for each in plan.changes) and self._is_due("change"):
            found += ahead_of_changes(site, plan, policy)
        if site.entries and self._is_due("entry"):
            found += beside_the_list(site, plan, policy)
        if site.pending and self._is_due("pending"):
            found += beside_approvals(site, plan, policy)
        if turn.weakened and self._is_due("weaker"):
            found += after_weaker(turn, policy)
        if (site.changes or site.pending or site.entries) and self._is_due("order"):
            found += in_another_order(site, plan, policy)
        yield from (f"{site.now}: {each}" for each in found)

    def _is_due(self, kind: str) -> bool:
        """True for the first turns of a kind in each world."""
        self._again[kind] = self._again.get(kind, 0) + 1
        return self._again[kind] <= AGAIN

    def _kept(self, turn: Turn) -> Iterator[str]:
        """1. A change that is refused leaves rows, grants and the place in the queue equal."""
        moved = {move.booking for move in turn.plan.moves}
        before = {request.booking: request for request in turn.site.requests}
        for answer in turn.plan.changes:
            name = answer.booking
            if answer.granted or name in moved:
                continue
            rows = _by_grant(row for row in turn.site.held if row.booking == name)
            if rows != _by_grant(self._world.rows_of(name)) and rows:
                yield f"{name} lost rows by a change that was refused"
            now = self._world.waiting.get(name)
            if now is not None and name in before and _requested(now) != _requested(before[name]):
                yield f"{name} asks for something else after a change that was refused"

    def _unapproved(self, turn: Turn) -> Iterator[str]:
        """6. Nothing is planned for, or starts, that was not approved or accepted."""
        given = {row.booking for row in truth.given_by(turn.plan)}
        offered = {each.booking for each in turn.plan.offers}
        people = self._world.people
        waiting = {request.booking for request in turn.site.pending} | set(people.unapproved)
        for name in sorted(given & (waiting | set(people.entries)) - offered):
            yield f"{name} has a start and was not approved or accepted"
        for row in self._world.rows:
            if row.booking in people.offers and row.starts <= turn.site.now:
                yield f"{row.booking} starts by an offer that nobody accepted"

    def _notices(self, turn: Turn) -> Iterator[str]:
        """4. Nobody has notice for who has not committed."""
        people = self._world.people
        waiting = {request.booking for request in turn.site.pending} | set(people.entries)
        for pause in turn.plan.pauses:
            if pause.beneficiary in waiting:
                yield f"{pause.booking} has notice for {pause.beneficiary}, which only waits"

    def _overlaps(self, turn: Turn) -> Iterator[str]:
        """5. No two have one slot at one time: rows, planned starts, kept places and offers."""
        plan = turn.plan
        soft = [(s.booking, p, s.starts, s.ends) for s in plan.soft for p in s.places]
        if not soft:
            return
        planned = [
            (w.booking, p, w.starts, w.ends)
            for w in plan.waits
            if not any(reason.code == "deadline_at_risk" for reason in w.reasons)
            for p in w.places
        ]
        rows = [(r.booking, r.place, r.starts, r.ends) for r in self._world.rows]
        for index, one in enumerate(soft):
            for other in (*soft[index + 1 :], *planned, *rows):
                if _meet(one, other):
                    yield f"{other[0]} has what is kept for {one[0]}"

    def _answers(self, turn: Turn) -> Iterator[str]:
        """9 and 11. One answer each, and exactly as much time as was asked for."""
        plan = turn.plan
        for rows in (plan.changes, plan.offers, plan.soft):
            names = [row.booking for row in rows]
            if len(set(names)) < len(names):
                yield f"two answers for one of {sorted(names)}"
        requests = {row.booking: row for row in turn.site.requests}
        requests |= {
            each.booking: each.target
            for each in turn.site.changes
            if each.booking not in requests or _is_granted(plan, each.booking)
        }
        for given in (*truth.given_by(plan), *plan.offers):
            entry = next((e for e in turn.site.entries if e.booking == given.booking), None)
            request = requests.get(given.booking) if entry is None else entry.request
            length = None if request is None else request.length_on(given.gpu_class)
            rest = self._rest(turn, given.booking)
            if length is not None and not rest and given.ends - given.starts != length:
                yield f"{given.booking} gets {given.ends - given.starts} s and asked for {length}"
        for offer in plan.offers:
            for name in self._could_use(turn, offer.starts, offer.ends, offer.gpu_class):
                yield f"{offer.booking} is offered what {name} can use"

    def _rest(self, turn: Turn, name: str) -> bool:
        """True for a fixed window that has begun, or a resume: what is left is placed."""
        request = next((r for r in turn.site.requests if r.booking == name), None)
        return request is not None and (request.paused or request.fixed)

    def _could_use(self, turn: Turn, starts: int, ends: int, gpu_class: str) -> Iterator[str]:
        """7. Who waits in the queue for one whole GPU inside its guarantee, starts later than the
        offer, and fits its window."""
        world, site = self._world, turn.site
        requests = {request.booking: request for request in site.requests}
        sure = {
            (row.owner, row.gpu_class): row.guaranteed
            for row in limits_now(world.limits, site.guarantees, site.now)
        }
        for wait in turn.plan.waits:
            request = requests.get(wait.booking)
            if request is None or wait.starts <= starts or not _is_simple(request, gpu_class):
                continue
            mine = [r for r in world.rows if r.tenant == request.tenant]
            planned = [r for r in world.waiting.values() if r.tenant == request.tenant]
            units = 56_000 * (sum(truth.count_of(r.ask) for r in planned) + len(mine))
            is_within = units <= sure.get((request.tenant, gpu_class), 0)
            is_free_project = (request.project, gpu_class) not in sure
            rows = [r for r in mine if r.booking == request.booking]
            fits = starts >= request.earliest and request.duration <= ends - starts
            if is_within and is_free_project and fits and not rows:
                yield wait.booking


def ahead_of_changes(site: Snapshot, plan: Plan, policy: Policy) -> Iterator[str]:
    """2. Who is ahead of a change is not later because of it."""
    keys = {wait.booking: (*wait.key, wait.booking) for wait in plan.waits}
    granted = {each.booking for each in plan.changes if each.granted}
    if len(granted) > 1 or not granted <= keys.keys():
        return
    first = min(keys[name] for name in granted)
    rest = tuple(each for each in site.changes if each.booking not in granted)
    without = solve(replace(site, changes=rest), policy)
    old = {w.booking: (*w.key, w.booking) for w in without.waits}
    before, after = starts_of(without), starts_of(plan)
    for name in sorted(before.keys() & after.keys() - granted):
        is_ahead = name in old and old[name] < first and keys.get(name, old[name]) < first
        if is_ahead and after[name] > max(before[name], site.now):
            yield f"{name} is ahead of the change of {sorted(granted)}, and later for it"


def beside_the_list(site: Snapshot, plan: Plan, policy: Policy) -> Iterator[str]:
    """4. Entries that wait for an offer change nothing of anybody's."""
    without = solve(replace(site, entries=()), policy)
    if encode(replace(plan, offers=())) != encode(without):
        yield "entries of the waiting list change what others get"


def beside_approvals(site: Snapshot, plan: Plan, policy: Policy) -> Iterator[str]:
    """4. Nobody's firm or guaranteed start is later because somebody waits for an approval. An
    expected one may be: a newcomer who goes round the kept place takes another. So may one be that
    is lost anyway, to its own organisation: what it gets instead is behind the kept place."""
    without = starts_of(solve(replace(site, pending=()), policy))
    planned = _sure(site)
    for name, at in starts_of(plan).items():
        is_kept = name in planned and without.get(name, at) <= max(planned[name], site.now)
        if is_kept and at > max(planned[name], site.now):
            yield f"{name} is later because somebody waits for an approval"


def after_weaker(turn: Turn, policy: Policy) -> Iterator[str]:
    """2. Nobody is later by a weaker change, unless the booking comes inside its guarantee by it
    or passes in the queue what has more use."""
    site, plan = turn.site, turn.plan
    names = {each.booking: each for each in turn.weakened}
    waiting = {request.booking for request in site.requests}
    if not names.keys() <= waiting:
        return
    inside = {w.booking for w in plan.waits if w.key and w.key[0] == INSIDE} & names.keys()
    gone = {row.booking for row in plan.assigns} & names.keys()
    before = _as_before(site, names)
    without = starts_of(solve(before, policy))
    firm = _sure(site)
    for name, at in starts_of(plan).items():
        known = name in firm and name in without and name not in names
        if known and not (inside or gone) and at > max(without[name], firm[name], site.now):
            yield f"{name} is later by a weaker change of {sorted(names)}"


def _sure(site: Snapshot) -> dict[str, int]:
    """Planned starts that are firm or guaranteed."""
    planned_starts = {request.booking: request.planned for request in site.requests}
    return {
        name: planned.starts
        for name, planned in planned_starts.items()
        if planned is not None and planned.strength in ("firm", "guaranteed")
    }


def _as_before(site: Snapshot, names: dict[str, Weakened]) -> Snapshot:
    """The site with these bookings as they were before their weaker changes."""
    requests = tuple(names[row.booking].before if row.booking in names else row for row in site.requests)
    return replace(site, requests=requests)


def in_another_order(site: Snapshot, plan: Plan, policy: Policy) -> Iterator[str]:
    """8. The order of changes, entries, requests and overrides changes no byte."""
    order = Random(site.now)  # noqa: S311  the same order each time
    mixed = replace(
        site,
        changes=tuple(order.sample(site.changes, len(site.changes))),
        pending=tuple(order.sample(site.pending, len(site.pending))),
        entries=tuple(order.sample(site.entries, len(site.entries))),
        overrides=tuple(order.sample(site.overrides, len(site.overrides))),
        requests=tuple(order.sample(site.requests, len(site.requests))),
        held=tuple(order.sample(site.held, len(site.held))),
    )
    if encode(solve(mixed, policy)) != encode(plan):
        yield "the order of rows decides"


def _is_granted(plan: Plan, name: str) -> bool:
    return any(each.booking == name and each.granted for each in plan.changes)


def _is_simple(request: Request, gpu_class: str) -> bool:
    """One whole GPU of the class, with nothing else that could be in the way."""
    ask = request.ask
    is_whole = ask.count == 1 and ask.profile is None and ask.share is None
    is_there = not (ask.cores or ask.pin or ask.where or ask.groups)
    is_free = is_there and not (request.fixed or request.latest or request.paused)
    return is_whole and is_free and ask.classes == (gpu_class,) and request.tier != "spot"


def _by_grant(rows: Iterator[Held] | list[Held]) -> list[Held]:
    return sorted(rows, key=lambda row: row.id)


def _requested(request: Request) -> Request:
    return replace(request, planned=None)


def _meet(one: Row, other: Row) -> bool:
    (mine, place, starts, ends), (theirs, taken, since, until) = one, other
    is_same_slot = place.start < taken.start + taken.size and taken.start < place.start + place.size
    are_shares = place.share is not None and taken.share is not None
    is_near = mine != theirs and place.gpu == taken.gpu and starts < until and since < ends
    return is_near and is_same_slot and not are_shares
