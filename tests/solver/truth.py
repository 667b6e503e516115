"""What must hold of any plan, checked the slow and plain way, without the solver's own code."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

from solver import Ask, Assign, Gpu, Place, Plan, Request, Snapshot, Tier, Waiting, Where
from solver.model.inputs import Held, Model, Together
from solver.model.limits import Limit

Row = tuple[Place, int, int]


class Piece(NamedTuple):
    """Units of a class that an owner has in [starts, ends), decided now or before: the project
    itself, or its tenant."""

    owner: str
    project: str
    tier: str
    gpu_class: str
    starts: int
    ends: int
    units: int
    decided: bool
    person: str = ""
    is_mixed: bool = False

    def counts(self, tiers: Mapping[str, Tier]) -> bool:
        """False for spot, and for what is mixed and may be paused."""
        tier = tiers[self.tier]
        return tier.counts and not (self.is_mixed and tier.pausable)


def given_by(plan: Plan) -> list[Assign | Waiting]:
    """Everything that got a window: what waits for hardware to come back has none."""
    return [*plan.assigns, *(wait for wait in plan.waits if wait.places)]


def held_by(snapshot: Snapshot, plan: Plan) -> list[tuple[str, Row]]:
    """(booking, (place, starts, ends)) of everything that is held, where the plan leaves it."""
    until = {extend.booking: extend.until for extend in plan.extensions if extend.granted}
    moved = {move.booking for move in plan.moves}
    moved |= {each.booking for each in plan.changes if each.granted}
    rows = [
        (held.booking, (held.place, held.starts, max(held.ends, until.get(held.booking, 0))))
        for held in snapshot.held
        if held.booking not in moved
    ]
    rows += [(move.booking, (place, move.starts, move.ends)) for move in plan.moves for place in move.places]
    return rows


def rows_of(snapshot: Snapshot, plan: Plan) -> list[tuple[str, Row]]:
    """The same of everything that is held, given or promised."""
    rows = held_by(snapshot, plan)
    for given in given_by(plan):
        rows += [(given.booking, (place, given.starts, given.ends)) for place in given.places]
    return rows


def overlaps(snapshot: Snapshot, plan: Plan) -> list[tuple[str, str]]:
    """Pairs of bookings that have one slot at one instant; shares may be next to each other."""
    return [
        (one, other)
        for (one, a), (other, b) in combinations(rows_of(snapshot, plan), 2)
        if a[0].gpu == b[0].gpu
        and a[1] < b[2]
        and b[1] < a[2]
        and a[0].start < b[0].start + b[0].size
        and b[0].start < a[0].start + a[0].size
        and not (a[0].share and b[0].share)
    ]


def overshared(snapshot: Snapshot, plan: Plan) -> list[tuple[str, int]]:
    """(GPU, second) at which more than a whole GPU is given in shares."""
    rows = [row for _, row in rows_of(snapshot, plan) if row[0].share]
    return [
        (gpu, second)
        for gpu, second in sorted({(place.gpu, starts) for place, starts, _ in rows})
        if sum(
            place.share or 0 for place, starts, ends in rows if place.gpu == gpu and starts <= second < ends
        )
        > 1_000
    ]


def mixed(snapshot: Snapshot, plan: Plan) -> list[tuple[str, str]]:
    """Pairs of bookings of different owners, one of them placed now, with shares of one GPU."""
    people: dict[str, Held | Request] = {row.booking: row for row in snapshot.held}
    people |= {request.booking: request for request in snapshot.requests}
    given = {row.booking for row in given_by(plan)}
    rows = [each for each in rows_of(snapshot, plan) if each[1][0].share]
    return [
        (one, other)
        for (one, a), (other, b) in combinations(rows, 2)
        if a[0].gpu == b[0].gpu and a[1] < b[2] and b[1] < a[2]
        if people[one].owner != people[other].owner and {one, other} & given
    ]


def beyond_hosts(snapshot: Snapshot, plan: Plan) -> list[tuple[str, int]]:
    """(node, second) at which more cores or memory are given than the node has."""
    node_of = {gpu.id: gpu.node for gpu in snapshot.gpus}
    class_of = {gpu.id: gpu.gpu_class for gpu in snapshot.gpus}
    asks = {request.booking: request.ask for request in snapshot.requests}
    rows = [
        (node_of[place.gpu], ask.cores, ask.memory, given.starts, given.ends)
        for given in given_by(plan)
        for place in given.places
        for ask in (_part_on(asks[given.booking], class_of[place.gpu]),)
    ]
    held = {(row.booking, class_of[row.place.gpu]): row for row in snapshot.held}
    rows += [
        (node_of[place.gpu], row.cores, row.memory, starts, ends)
        for name, (place, starts, ends) in held_by(snapshot, plan)
        for row in (held[name, class_of[place.gpu]],)
    ]
    hosts = {host.id: (host.cores, host.memory) for host in snapshot.hosts}
    bad = []
    for node, second in sorted({(row[0], row[3]) for row in rows}):
        now = [row for row in rows if row[0] == node and row[3] <= second < row[4]]
        most = hosts.get(node, (0, 0))
        if sum(row[1] for row in now) > most[0] or sum(row[2] for row in now) > most[1]:
            bad.append((node, second))
    return bad


def illegal(snapshot: Snapshot, plan: Plan) -> list[Place]:
    """Given places that the hardware could not make, in a fixed mode, or out of service."""
    gpus = {gpu.id: gpu for gpu in snapshot.gpus}
    models = {model.slug: model for model in snapshot.models}
    asks = {request.booking: request.ask for request in snapshot.requests}
    bad = []
    for given in given_by(plan):
        groups = asks[given.booking].groups if given.booking in asks else ()
        classes = {given.gpu_class, *(name for each in groups for name in each.classes)}
        for place in given.places:
            gpu = gpus[place.gpu]
            mode = "whole" if place.profile is None else "sliced"
            modes = (None, mode, "shared") if place.share else (None, mode)
            fits = gpu.usable and gpu.mode in modes and gpu.gpu_class in classes
            there = given.booking not in asks or _is_there(asks[given.booking], gpu)
            if not fits or not there or not _is_legal(models[gpu.model], place):
                bad.append(place)
    return bad


def _is_there(ask: Ask, gpu: Gpu) -> bool:
    """True for a GPU in a zone and with the storage that the request allows."""
    return _may_be(ask.where, gpu)


def _may_be(where: Where | None, gpu: Gpu) -> bool:
    if where is None:
        return True
    is_zone = (not where.zones or gpu.zone in where.zones) and gpu.zone not in where.not_zones
    return is_zone and where.storage in ("", gpu.storage) and gpu.scratch >= where.scratch


def uncut(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Bookings placed now on a GPU that has, or soon before or after it needs, the other mode.

    Where a change takes a reset, it needs its seconds with nothing on the GPU.
    """
    models = {model.slug: model for model in snapshot.models}
    gaps = {
        gpu.id: models[gpu.model].switch_seconds
        for gpu in snapshot.gpus
        if gpu.stands is not None and gpu.mode != gpu.stands
    }
    sliced = {gpu.id: gpu.stands == "sliced" for gpu in snapshot.gpus}
    sliced |= {r.place.gpu: r.place.profile is not None for r in snapshot.held if r.started}
    given = {row.booking for row in given_by(plan)}
    rows = [each for each in rows_of(snapshot, plan) if each[1][0].gpu in gaps]
    bad = [
        booking
        for booking, (place, starts, _) in rows
        if booking in given
        and (place.profile is not None) != sliced[place.gpu]
        and starts < snapshot.now + gaps[place.gpu]
    ]
    bad += [
        f"{one}, {other}"
        for (one, a), (other, b) in combinations(rows, 2)
        if {one, other} & given
        and a[0].gpu == b[0].gpu
        and (a[0].profile is None) != (b[0].profile is None)
        and a[1] < b[2] + gaps[a[0].gpu]
        and b[1] < a[2] + gaps[a[0].gpu]
    ]
    return bad


def torn(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Gangs that are not whole, of the wrong shape, or apart where they must be together."""
    requests = {request.booking: request for request in snapshot.requests}
    bad = [
        wait.booking
        for wait in plan.waits
        if not wait.places and "none_in_service" not in {why.code for why in wait.reasons}
    ]
    for given in given_by(plan):
        ask = requests[given.booking].ask
        if not _is_all_there(snapshot, ask, given.places):
            bad.append(given.booking)
    return bad


def _is_all_there(snapshot: Snapshot, ask: Ask, places: tuple[Place, ...]) -> bool:
    """True for as many places as were asked for, of the right shape and together: of a mixed
    request in each of its groups."""
    class_of = {gpu.id: gpu.gpu_class for gpu in snapshot.gpus}
    if len(places) != count_of(ask):
        return False
    for part in (ask, *ask.groups):
        mine = [each for each in places if not ask.groups or class_of[each.gpu] in part.classes]
        level = part.together if part.required and part.count > 1 else "any"
        is_whole = len(mine) == part.count and {each.shape for each in mine} == {part.shape}
        if not is_whole or _groups(snapshot, mine, level) != 1:
            return False
    return _groups(snapshot, places, "any") == 1


def count_of(ask: Ask) -> int:
    """Places of all groups of a request."""
    return ask.count + sum(each.count for each in ask.groups)


def _part_on(ask: Ask, gpu_class: str) -> Ask:
    """The group of a mixed request on this class."""
    return next((each for each in ask.groups if gpu_class in each.classes), ask)


def moved_wrongly(snapshot: Snapshot, plan: Plan, freeze_horizon: int) -> list[str]:
    """Moves of what has begun, begins too soon or may not move; to another time, shape or class,
    apart where the gang must be together, where the hardware can't make it, or to nowhere new."""
    gpus = {gpu.id: gpu for gpu in snapshot.gpus}
    models = {model.slug: model for model in snapshot.models}
    bad = []
    for move in plan.moves:
        rows = [row for row in snapshot.held if row.booking == move.booking]
        may_move = all(
            not row.started
            and row.level is not None
            and row.starts > snapshot.now + freeze_horizon
            and (row.starts, row.ends) == (move.starts, move.ends)
            for row in rows
        )
        sources = {row.place for row in rows}
        goes = set(move.places)
        is_same = sources == set(move.source) != goes and len(goes) == len(rows)
        shapes = {place.shape for place in goes} | {place.shape for place in sources}
        classes = {gpus[place.gpu].gpu_class for place in goes | sources} | {move.gpu_class}
        new = [(gpus[place.gpu], place) for place in goes - sources]
        can_be = all(gpu.usable and _is_legal(models[gpu.model], place) for gpu, place in new)
        is_alike = len(shapes) == len(classes) == 1
        level = rows[0].level if rows and rows[0].level else "any"
        is_near = len(rows) == 1 or _groups(snapshot, move.places, level) == 1
        is_near &= all(_may_be(row.where, gpus[place.gpu]) for row in rows for place in goes)
        if not (rows and may_move and is_same and is_alike and can_be and is_near):
            bad.append(move.booking)
    return bad


def _groups(snapshot: Snapshot, places: Iterable[Place], level: Together) -> int:
    """In how many groups of a level the places lie."""
    gpus = {gpu.id: gpu for gpu in snapshot.gpus}
    return len(
        {
            {
                "gpu": gpu.id,
                "domain": f"{gpu.node}/{gpu.domain}" if gpu.domain is not None else gpu.id,
                "node": gpu.node,
                "rack": gpu.rack,
                "any": gpu.zone,
            }[level]
            for gpu in (gpus[place.gpu] for place in places)
        }
    )


def too_many_media_engines(snapshot: Snapshot, plan: Plan) -> list[str]:
    """GPUs with more of a profile at one instant than the hardware allows."""
    gpus = {gpu.id: gpu for gpu in snapshot.gpus}
    models = {model.slug: model for model in snapshot.models}
    rows = [row for _, row in rows_of(snapshot, plan)]
    bad = []
    for _, begin, _ in rows:
        now = Counter((p.gpu, p.profile) for p, starts, ends in rows if starts <= begin < ends)
        for (gpu, profile), count in now.items():
            limits = {p.limit for p in models[gpus[gpu].model].placements if p.profile == profile}
            if limits and count > min(limits):
                bad.append(gpu)
    return bad


def over_limit(snapshot: Snapshot, plan: Plan, *, always: bool = False) -> list[tuple[str, str, int]]:
    """(owner, class, second) at which an owner has more than guaranteed + borrow limit, or at
    which what can't be paused has more than the guarantee, when something of it begins that was
    decided now, or `always` when anything does. What a project never lends is its own, whatever
    its tenant has besides; so is its guarantee for what can't be paused."""
    tiers = {tier.slug: tier for tier in snapshot.tiers}
    use = [row for row in _usage(snapshot, plan) if row.counts(tiers)]
    use = [row._replace(decided=True) for row in use] if always else use
    fixed = [row for row in use if not tiers[row.tier].pausable]
    sure, kept = _Own(snapshot, lent=False), _Own(snapshot, lent=True)
    bad = []
    for limit in snapshot.limits:
        most = None if limit.borrow is None else limit.guaranteed + limit.borrow
        bad += _beyond(limit, use, kept, most)
        if limit.parent is None:
            bad += _beyond(limit, fixed, sure, limit.guaranteed)
    bad += _over_parts(snapshot, fixed)
    # What does not count has to fit next to everything, and is invisible to what counts.
    spot = [row._replace(decided=row.decided and not row.counts(tiers)) for row in _usage(snapshot, plan)]
    return bad + _over_inner(snapshot, use, kept) + _over_inner(snapshot, spot, kept)


def _over_parts(snapshot: Snapshot, fixed: list[Piece]) -> list[tuple[str, str, int]]:
    """Where never-paused work of other tiers has more than a guarantee has above the part for some tiers."""
    bad = []
    for part in snapshot.tier_parts:
        for limit in snapshot.limits:
            if limit.parent is None and (limit.owner, limit.gpu_class) == (part.owner, part.gpu_class):
                most = max(0, limit.guaranteed - part.units)
                dated = [
                    replace(each, guaranteed=max(0, each.guaranteed - part.units))
                    for each in snapshot.guarantees
                    if each.owner == limit.owner
                ]
                own = _Own(replace(snapshot, limits=(), guarantees=tuple(dated)), lent=True)
                others = [row for row in fixed if row.tier not in part.tiers]
                bad += _beyond(replace(limit, guaranteed=most), others, own, most)
    return bad


class _Own:
    """What of a project's guarantee its tenant does not see, at a second: all, or what is not `lent`."""

    def __init__(self, snapshot: Snapshot | None, *, lent: bool) -> None:
        self.dated = () if snapshot is None else snapshot.guarantees
        rows = () if snapshot is None else snapshot.limits
        self._lend = {
            (row.owner, row.gpu_class): row.lend if lent else 0
            for row in rows
            if row.parent and not (lent and row.lend is None)
        }
        self._usual = {(row.owner, row.gpu_class): row.guaranteed for row in rows}

    def more(self, limit: Limit, second: int) -> int:
        """What the owner is guaranteed at a second above what it usually is."""
        return next(
            (
                each.guaranteed - limit.guaranteed
                for each in self.dated
                if (each.owner, each.gpu_class) == (limit.owner, limit.gpu_class)
                and each.starts <= second < each.ends
            ),
            0,
        )

    def at(self, whose: tuple[str, str], second: int) -> int:
        """Units that are the project's own."""
        if whose not in self._lend:
            return 0
        limit = Limit(whose[0], None, whose[1], self._usual[whose], None, None)
        return max(0, limit.guaranteed + self.more(limit, second) - (self._lend[whose] or 0))


def _over_inner(snapshot: Snapshot, use: list[Piece], kept: _Own) -> list[tuple[str, str, int]]:
    """The same for labs, for persons, and for owners whose limit is lower at some time."""
    bad, bounded = list[tuple[str, str, int]](), [*snapshot.limits]
    for lab in snapshot.labs:
        use = [
            *use,
            *(
                row._replace(owner=lab.owner)
                for row in use
                if row.owner == row.project in lab.projects and row.gpu_class == lab.gpu_class
            ),
        ]
        limit = Limit(lab.owner, lab.tenant, lab.gpu_class, lab.guaranteed, lab.borrow, lab.lend)
        most = None if limit.borrow is None else limit.guaranteed + limit.borrow
        bad += _beyond(limit, use, kept, most)
        bounded.append(limit)
    own = {(row.scope, row.person) for row in snapshot.persons}
    for cap in snapshot.persons:
        for person in sorted({row.person for row in use}):
            if person == cap.person or (not cap.person and (cap.scope, person) not in own):
                name = f"{person} in {cap.scope}"
                mine = [
                    row._replace(owner=name) for row in use if row.owner == cap.scope and row.person == person
                ]
                whole = Limit(name, None, cap.gpu_class, 0, 0, None)
                bad += _beyond(whole, [*use, *mine], _Own(None, lent=True), cap.most)
    for step in snapshot.overrides:
        for limit in bounded:
            is_its = (limit.owner, limit.gpu_class) == (step.owner, step.gpu_class)
            if is_its and step.units < 0 and not step.booking and limit.borrow is not None:
                most = limit.guaranteed + limit.borrow + step.units
                rows = [row for row in use if (row.owner, row.gpu_class) == (limit.owner, limit.gpu_class)]
                bad += [
                    (limit.owner, limit.gpu_class, second)
                    for row in rows
                    if row.decided and row.starts < step.ends and step.starts < row.ends
                    for second in [max(row.starts, step.starts)]
                    if _units_at(rows, second) > most
                ]
    return bad


def _beyond(limit: Limit, use: list[Piece], own: _Own, most: int | None) -> list[tuple[str, str, int]]:
    """Where the owner has more than `most` when something begins that is not a project's `own`, or a
    dated guarantee begins or ends."""
    rows = [row for row in use if (row.owner, row.gpu_class) == (limit.owner, limit.gpu_class)]
    begins = {row.starts for row in rows if row.decided and not _is_own(row, use, own, row.starts)}
    begins |= {
        at
        for each in own.dated
        if each.gpu_class == limit.gpu_class
        for at in (each.starts, each.ends)
        for row in rows
        if row.decided and row.starts < at < row.ends and not _is_own(row, use, own, at)
    }
    return [
        (limit.owner, limit.gpu_class, second)
        for second in sorted(begins)
        if most is not None and _units_at(rows, second) > most + own.more(limit, second)
    ]


def _is_own(piece: Piece, use: list[Piece], own: _Own, second: int) -> bool:
    """True when the tenant does not see it then: its project has no more than is its own."""
    whose = (piece.project, piece.gpu_class)
    rows = [row for row in use if (row.owner, row.gpu_class) == whose]
    return piece.owner != piece.project and _units_at(rows, second) <= own.at(whose, second)


def _units_at(rows: list[Piece], second: int) -> int:
    return sum(row.units for row in rows if row.starts <= second < row.ends)


def _usage(snapshot: Snapshot, plan: Plan) -> list[Piece]:
    """Every place twice: for its tenant and for its project. The stretch that an extension adds is
    decided now, and begins where the booking would have ended."""
    gpus = {gpu.id: gpu for gpu in snapshot.gpus}
    models = {model.slug: model for model in snapshot.models}
    people: dict[str, Held | Request] = {row.booking: row for row in snapshot.held}
    people |= {request.booking: request for request in snapshot.requests}
    decided = {given.booking for given in given_by(plan)}
    granted = {extend.booking for extend in plan.extensions if extend.granted}
    stretches = {name: {row.ends for row in snapshot.held if row.booking == name} for name in granted}
    return [
        Piece(
            owner,
            people[booking].project,
            people[booking].tier,
            gpus[place.gpu].gpu_class,
            starts,
            ends,
            _units(models[gpus[place.gpu].model], place),
            booking in decided or starts in stretches.get(booking, ()),
            people[booking].owner,
            _is_mixed(people[booking]),
        )
        for booking, (place, since, until) in rows_of(snapshot, plan)
        for starts, ends in _cut(since, until, stretches.get(booking, ()))
        for owner in (people[booking].tenant, people[booking].project)
    ]


def _is_mixed(row: Held | Request) -> bool:
    return row.mixed if isinstance(row, Held) else bool(row.ask.groups)


def _cut(starts: int, ends: int, at: Iterable[int]) -> list[tuple[int, int]]:
    """The window in two if one of the instants is inside it."""
    for second in at:
        if starts < second < ends:
            return [(starts, second), (second, ends)]
    return [(starts, ends)]


def _units(model: Model, place: Place) -> int:
    if place.profile is None:
        return 56 * (place.share or 1_000)
    row = next(p for p in model.placements if p.profile == place.profile)
    return max(row.compute * 56_000 // model.compute_slices, row.size * 56_000 // model.memory_slots)


def _is_legal(model: Model, place: Place) -> bool:
    if place.profile is None:
        return (place.start, place.size) == (0, 8)
    return any(
        (p.profile, p.start, p.size) == (place.profile, place.start, place.size) for p in model.placements
    )
