"""What must hold of operators' orders, of idle bookings, and of hardware that is out of service.

Each is computed from the turn alone, or by deciding the same turn again without something.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from solver import Order, Place, Plan, Policy, Snapshot, encode, solve
from tests.solver import truth
from tests.worlds.life import Turn, World
from tests.worlds.queue import is_proven
from tests.worlds.replay import starts_of

CLEARING, SOON = 5, 600
"""Seconds until a device is clear, and after which a start needs nobody's GPUs yet."""
AGAIN = 2
"""So many turns with idle bookings are decided again in a world."""
PROBLEMS = {"gone", "moved", "taken", "too_late", "limit"}
BREAKS = {
    *("failure", "drain", "maintenance", "limits", "tiers", "policy", "cancel", "ordered pause"),
    *("change", "weaker", "silence"),
}
"""What may keep an ordered move from its place after all."""


class Landing(NamedTuple):
    """A booking that an order has moved: where it is to be, and from when on."""

    places: tuple[Place, ...]
    at: int


class OperatorChecks:
    """Follows the operators of one world; the same one from its first turn to its last."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._again = 0
        self._landings: dict[str, Landing] = {}
        self._expected: dict[str, int] = {}
        self._said = 0

    def look(self, turn: Turn) -> Iterator[str]:
        """What is wrong in one turn, after its plan was made true."""
        site, plan, policy = turn.site, turn.plan, self._world.policy
        found = [*out_of_service(site, plan), *self._landed(turn)]
        if site.orders:
            found += answers(site, plan)
            found += self._ordered(site, plan)
            found += next_to_orders(site, plan, policy)
        found += self._started_as_said(turn)
        if site.idle:
            found += released(site, plan)
            if site.requests and self._again < AGAIN:
                self._again += 1
                found += without_the_idle(site, plan, policy)
        asked = {request.booking for request in site.requests}
        # An offer may be declined.
        self._expected = {each.beneficiary: each.starts for each in plan.idle if each.beneficiary in asked}
        self._said = turn.site.now
        yield from (f"{site.now}: {each}" for each in found)

    def _ordered(self, site: Snapshot, plan: Plan) -> Iterator[str]:
        """What is carried out is what was ordered, all of it at one second."""
        done = {answer.order for answer in plan.orders if not answer.reasons}
        for order in (each for each in site.orders if each.id in done):
            landings = _landings(order, plan)
            yield from carried_out(order, plan, landings)
            self._landings |= landings

    def _landed(self, turn: Turn) -> Iterator[str]:
        """Moved bookings are where they were ordered to be, from the second that was said."""
        world = self._world
        if turn.outside & BREAKS:
            self._landings.clear()
        for name, (places, at) in list(self._landings.items()):
            if name in world.ended or world.now < at:
                continue
            del self._landings[name]
            rows = world.rows_of(name)
            there = {row.place for row in rows if row.starts == at}
            if there != set(places):
                where = [(row.place.gpu, row.starts) for row in rows]
                yield f"{name} was ordered to {places[0].gpu} at {at}, and is at {where}"

    def _started_as_said(self, turn: Turn) -> Iterator[str]:
        """Who an idle booking has left for starts no later than was said. Notices are given in
        this turn, so it may be later by the seconds since."""
        if not self._expected or turn.outside - {"idle"} or "idle" not in turn.outside:
            return
        for name, starts in starts_of(turn.plan).items():
            since = turn.site.now - self._said
            if starts > max(self._expected.get(name, starts) + since, turn.site.now):
                yield f"{name} starts after {self._expected[name]}, for which others have left"


def _landings(order: Order, plan: Plan) -> dict[str, Landing]:
    at = next((row.starts for row in plan.assigns if row.booking == order.beneficiary), 0)
    moved = {each.booking: Landing((each.target,), at) for each in order.moves}
    return moved | {order.beneficiary: Landing(order.places, at)}


def answers(site: Snapshot, plan: Plan) -> Iterator[str]:
    """Each order has one answer; who is not carried out says why."""
    if sorted(each.order for each in plan.orders) != sorted(each.id for each in site.orders):
        yield f"{len(site.orders)} orders have {len(plan.orders)} answers"
    for answer in plan.orders:
        for reason in answer.reasons:
            if reason.code != "order_stale" or reason.facts["problem"] not in PROBLEMS:
                yield f"{answer.order} is not carried out and says {reason.code}"


def carried_out(order: Order, plan: Plan, landings: dict[str, Landing]) -> Iterator[str]:
    """All of the order, at one second: notice, the start of the beneficiary, and the resumes."""
    given = {row.booking: (set(row.places), row.starts) for row in truth.given_by(plan)}
    for name, (places, at) in landings.items():
        if given.get(name) != (set(places), at):
            yield f"{name} gets {given.get(name)} by {order.id}, not {places} at {at}"
    at = landings[order.beneficiary].at
    outs = {pause.booking: pause.at for pause in plan.pauses}
    for move in order.moves:
        if outs.get(move.booking) != at:
            yield f"{move.booking} leaves at {outs.get(move.booking)} by {order.id}, not at {at}"


def next_to_orders(site: Snapshot, plan: Plan, policy: Policy) -> Iterator[str]:
    """Nobody's firm or guaranteed start is later for an order, and no order that is not carried
    out changes anything."""
    without = solve(replace(site, orders=()), policy)
    done = [answer.order for answer in plan.orders if not answer.reasons]
    if not done:
        if encode(replace(plan, orders=())) != encode(without):
            yield "an order that is not carried out changes something"
        return
    concerned = {move.booking for order in site.orders for move in order.moves}
    concerned |= {order.beneficiary for order in site.orders}
    before, after = starts_of(without), starts_of(plan)
    for request in site.requests:
        name, start = request.booking, request.planned
        if name in concerned or start is None or name not in after:
            continue
        latest = max(before.get(name, start.starts), start.starts, site.now)
        if start.strength in ("firm", "guaranteed") and after[name] > latest:
            yield f"{name} ({start.strength}) is later for an order"


def out_of_service(site: Snapshot, plan: Plan) -> Iterator[str]:
    """New work, moves and later ends on hardware that is out of service."""
    out = {gpu.id for gpu in site.gpus if not gpu.usable}
    if not out:
        return
    unproven = {wait.booking for wait in plan.waits if not is_proven(wait)}
    for row in truth.given_by(plan):
        if row.booking not in unproven and {place.gpu for place in row.places} & out:
            yield f"{row.booking} is planned on hardware that is out of service"
    for move in plan.moves:
        if {place.gpu for place in move.places} & out:
            yield f"{move.booking} is moved to hardware that is out of service"
    places = {row.booking: row.place.gpu for row in site.held}
    for each in plan.extensions:
        if each.granted and places[each.booking] in out:
            yield f"{each.booking} ends later on hardware that is out of service"


def released(site: Snapshot, plan: Plan) -> Iterator[str]:
    """Only those are taken that are idle, whose owners had their time to answer, who do not leave
    already, and for somebody in the queue who starts earlier, or on the waiting list who has no offer."""
    idle = {each.booking: each for each in site.idle}
    waiting = _waiting(site, plan)
    leaving = {row.booking for row in site.held if row.pausing} | {p.booking for p in plan.pauses}
    starts = starts_of(plan)
    for each in plan.idle:
        listed = idle.get(each.booking)
        if listed is None or listed.gpus != each.gpus or listed.veto_until > site.now:
            yield f"{each.booking} is taken, and its owner may still answer"
        if each.booking in leaving:
            yield f"{each.booking} is taken, and leaves already"
        if each.beneficiary not in waiting:
            yield f"{each.booking} is taken for {each.beneficiary}, which does not wait"
        if each.starts >= starts.get(each.beneficiary, each.starts + 1):
            yield f"{each.booking} is taken for {each.beneficiary}, which starts as early without"


def without_the_idle(site: Snapshot, plan: Plan, policy: Policy) -> Iterator[str]:
    """Those that are taken are enough for the start that is said, none of them is too many, all
    else is decided as if nobody were idle, and nobody is left whose leaving would help."""
    names = [each.booking for each in plan.idle]
    alone = solve(replace(site, idle=()), policy)
    if encode(replace(plan, idle=())) != encode(alone):
        yield "idle bookings change the plan of others"
    if not names:
        leaving = {row.booking for row in site.held if row.pausing}
        leaving |= {pause.booking for pause in plan.pauses}
        leaving |= {move.booking for order in site.orders for move in order.moves}
        due = [each.booking for each in site.idle if each.veto_until <= site.now]
        due = [name for name in due if name not in leaving]
        if 0 < len(due) <= 6 and (gained := _gained(site, plan, due, policy)):
            yield f"{due} are idle, and {sorted(gained)} would start earlier"
        return
    gained = _gained(site, plan, names, policy)
    for each in plan.idle:
        if gained.get(each.beneficiary) != each.starts:
            yield f"{each.beneficiary} does not start at {each.starts} without {names}"
    for name in names if len(names) > 1 else ():
        fewer = _gained(site, plan, [each for each in names if each != name], policy)
        if all(fewer.get(each, at + 1) <= at for each, at in gained.items()):
            yield f"{name} is taken, and nobody gains by it"


def _waiting(site: Snapshot, plan: Plan) -> set[str]:
    """Who could gain a start, or an offer of one."""
    offered = {each.booking for each in plan.offers}
    asked = {each.booking for each in site.requests} | {each.booking for each in site.entries}
    return asked - offered


def _gained(site: Snapshot, plan: Plan, names: Iterable[str], policy: Policy) -> dict[str, int]:
    """Who starts soon, and earlier than in the plan, if these have left."""
    grace = {each.booking: max(CLEARING, each.grace) for each in site.idle if each.booking in names}
    ends = {name: site.now + seconds for name, seconds in grace.items()}
    held = tuple(
        replace(row, ends=min(row.ends, ends[row.booking]), pausing=True) if row.booking in ends else row
        for row in site.held
    )
    rest = replace(
        site,
        held=held,
        idle=(),
        running=tuple(each for each in site.running if each.booking not in ends),
        extensions=tuple(each for each in site.extensions if each.booking not in ends),
    )
    latest, before = max(ends.values()) + SOON, starts_of(plan)
    waiting, found = _waiting(site, plan), solve(rest, policy)
    offered = {each.booking: each.starts for each in found.offers}
    return {
        name: at
        for name, at in (offered | starts_of(found)).items()
        if name in waiting and at <= latest and at < before.get(name, at + 1)
    }
