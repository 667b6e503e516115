"""Changes of bookings that have not begun: what they have is exchanged, or stays as it is."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from solver.cycle.outcome import Outcome
from solver.cycle.placing import find
from solver.model.demand import Demand, Fit, demand_of_held
from solver.model.inputs import Ask, Change, Held, Place, Request, Snapshot, Strength
from solver.model.ordering import place_order
from solver.model.plan import Alternative, ChangeAnswer, Waiting
from solver.reasons.reason import Reason, reason

_RANK: Mapping[Strength | None, int] = {None: 0, "expected": 0, "guaranteed": 1, "firm": 2}


@dataclass(slots=True)
class Standing:
    """What a booking has before its change: reserved fits, whether it waits with them, and whether
    it counts inside its guarantee."""

    fits: tuple[Fit, ...]
    waits: Waiting | None = None
    counted: bool = False
    movable: bool = False


@dataclass(slots=True)
class Changes:
    """The changes of a cycle by the id of their target, and the answers so far."""

    outcome: Outcome
    by_target: Mapping[str, Change]
    rows: Mapping[str, tuple[Held, ...]]
    answers: list[ChangeAnswer] = field(default_factory=list)
    granted: dict[str, Request] = field(default_factory=dict)

    @classmethod
    def of(cls, outcome: Outcome, snapshot: Snapshot) -> "Changes":
        """The changes of a snapshot."""
        rows: dict[str, list[Held]] = {each.booking: [] for each in snapshot.changes}
        for row in snapshot.held if rows else ():
            if row.booking in rows:
                rows[row.booking].append(row)
        held = {booking: tuple(found) for booking, found in rows.items()}
        return cls(outcome, {each.target.booking: each for each in snapshot.changes}, held)

    def lift(self, change: Change, kept: Fit | None) -> Standing | None:
        """Free what the booking has; `kept` is its planned start if its turn comes later. None,
        with nothing changed: it is about to begin, or others leave for it."""
        outcome, booking = self.outcome, change.booking
        if any(each.booking == booking for each in outcome.assigns):
            return None
        waits = next((each for each in outcome.waits if each.booking == booking), None)
        if self.rows[booking]:
            standing = self._written(booking)
        elif kept is not None:
            standing = Standing((kept,), None)
        else:
            standing = Standing((), waits) if waits is None else self._waiting(waits)
        if standing is None or any(found.victims for found in standing.fits):
            return None
        standing.counted = outcome.strengths.use.has(booking)
        for found in standing.fits:
            standing.movable |= self._take(booking, found)
            outcome.state.lift(found)
        outcome.strengths.lift(booking)
        return standing

    def put_back(self, change: Change, standing: Standing) -> None:
        """Undo `lift`."""
        outcome, booking = self.outcome, change.booking
        for found in standing.fits:
            outcome.state.put_back(found)
            if standing.movable:
                outcome.rebinding.add(booking, found)
            if standing.counted:
                outcome.strengths.use.count(booking, found)

    def decide(self, given: Sequence[tuple[Change, Standing]]) -> dict[str, Fit]:
        """Give the bookings what their changes ask for, all or none. Returns what is reserved, by
        booking; empty, with nothing reserved: they keep what they have."""
        movable, state = self.outcome.rebinding.movable, self.outcome.state
        mark, found, failed = movable.mark(), dict[str, Fit](), list[ChangeAnswer]()
        for change, _ in given:
            answer = self._search(change)
            if isinstance(answer, Fit):
                state.reserve(answer)
                found[change.booking] = answer
            else:
                failed.append(answer)
        for each in reversed(found.values()):
            state.free(each)
        if failed:
            if found or any(each.reasons[0].code == "change_weaker" for each in failed):
                movable.back(mark)
            self._keep_all([change for change, _ in given], failed)
            return {}
        for change, standing in given:
            self._exchange(change, standing, found[change.booking])
        return found

    def _search(self, change: Change) -> Fit | ChangeAnswer:
        """What the change would get, not reserved; else why it gets nothing."""
        outcome, target = self.outcome, replace(change.target, booking=change.booking)
        before = len(outcome.refusals)
        found = find(outcome, target)
        refused = outcome.refusals[before:]
        del outcome.refusals[before:]
        if found is None:
            reasons = (reason("change_no_room"), *refused[0].reasons)
            return _kept(change, reasons, refused[0].alternatives)
        target = _as_granted(change, found)
        if _RANK[self._strength(target, found)] < _RANK[change.strength]:
            return _kept(change, (reason("change_weaker"),))
        return found

    def _exchange(self, change: Change, standing: Standing, found: Fit) -> None:
        outcome = self.outcome
        target = self.granted[change.booking] = _as_granted(change, found)
        if standing.waits is not None:
            outcome.waits.remove(standing.waits)
        outcome.refusals[:] = [r for r in outcome.refusals if r.booking != change.booking]
        outcome.rebinding.forget_written(change.booking)
        if change.target.booking in outcome.keys:
            outcome.keys[change.booking] = outcome.keys[change.target.booking]
        outcome.place(target, found)
        self.answers.append(ChangeAnswer(change.booking, change.target.booking))

    def members(self, change: Change) -> tuple[Change, ...]:
        """The changes that are granted with this one or not at all, by their starts."""
        if not change.group:
            return (change,)
        every = (each for each in self.by_target.values() if each.group == change.group)
        return tuple(sorted(every, key=lambda each: (each.target.earliest, each.booking)))

    def keep_begun(self, members: Sequence[Change], begun: Change) -> None:
        """Keep a booking that is about to begin, and the group of its change."""
        self._keep_all(members, [_kept(begun, (reason("change_begun"),))])

    def _keep_all(self, members: Sequence[Change], failed: Sequence[ChangeAnswer]) -> None:
        """Keep all bookings: those that failed by their own reasons, others because of them."""
        own = {each.booking: each for each in failed}
        first = min(each.target.earliest for each in members if each.booking in own)
        because = reason("series_conflict", conflicts=len(failed), of=len(members), first_conflict=first)
        self.answers.extend(
            own.get(each.booking) or _kept(each, (because,)) for each in members if not each.waiting
        )

    def sorted(self) -> tuple[ChangeAnswer, ...]:
        """The answers, by booking."""
        return tuple(sorted(self.answers, key=lambda each: each.booking))

    def applied(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the targets of granted changes in place of their bookings."""
        granted = {each.booking for each in self.answers if each.granted}
        if not granted:
            return snapshot
        targets = (self.granted[each.booking] for each in snapshot.changes if each.booking in granted)
        others = (each for each in snapshot.requests if each.booking not in granted)
        held = tuple(row for row in snapshot.held if row.booking not in granted)
        return replace(snapshot, held=held, requests=(*others, *targets))

    def _strength(self, target: Request, found: Fit) -> Strength:
        """The strength that the start would have."""
        outcome = self.outcome
        is_soon = found.starts <= outcome.state.frozen_for(found.demand)
        if target.fixed or (is_soon and outcome.preemption.notices.is_due(found)):
            return "firm"
        inside = outcome.strengths.use.is_inside(found.demand, found.window)
        return "guaranteed" if inside else "expected"

    def _written(self, booking: str) -> Standing | None:
        """Its rows on the calendar, where they are by now."""
        state, rows = self.outcome.state, self.rows[booking]
        if any(row.started or row.preemptor or row.starts <= state.now for row in rows):
            return None
        names = {state.class_of(row.place.gpu) for row in rows}
        if any(n is None or row.starts <= state.frozen_until(n) for row in rows for n in names):
            return None
        moved = self.outcome.rebinding.written(booking)
        fits = (moved,) if moved is not None else tuple(_fits_of(self.outcome, rows))
        return Standing(fits)

    def _waiting(self, waits: Waiting) -> Standing:
        """Its planned start, where it is by now."""
        outcome = self.outcome
        found = outcome.rebinding.movable.found(waits.booking, waits.gpu_class)
        found = found or outcome.placed.get(waits.booking)
        return Standing(() if found is None else (found,), waits)

    def _take(self, booking: str, found: Fit) -> bool:
        movable = self.outcome.rebinding.movable
        return movable.take(booking, found.demand.gpu_class) is not None


def _as_granted(change: Change, found: Fit) -> Request:
    """What the booking asks for once it has this start."""
    target = replace(change.target, booking=change.booking)
    if change.sooner:
        target = replace(target, earliest=found.starts, latest=None, fixed=True)
    return target


def _kept(
    change: Change, reasons: tuple[Reason, ...], alternatives: tuple[Alternative, ...] = ()
) -> ChangeAnswer:
    return ChangeAnswer(change.booking, change.target.booking, reasons, alternatives)


def _fits_of(outcome: Outcome, rows: Iterable[Held]) -> Iterable[Fit]:
    """Held rows as fits; those of one kind are one, and those of a mixed booking."""
    found = list(_fits_by_kind(outcome, rows))
    classes = {each.demand.gpu_class for each in found}
    if len(found) == 1 or len(classes) < len(found) or len({each.window for each in found}) > 1:
        return found
    places = sorted((place for each in found for place in each.places), key=place_order)
    groups = tuple(_ask_of(each.demand) for each in found[1:])
    demand = replace(found[0].demand, groups=groups)
    return [replace(found[0], demand=demand, places=tuple(places))]


def _ask_of(demand: Demand) -> Ask:
    return Ask(
        demand.count,
        (demand.gpu_class,),
        demand.profile,
        "any",
        required=False,
        share=demand.share,
        cores=demand.cores,
        memory=demand.memory,
        where=demand.where,
    )


def _fits_by_kind(outcome: Outcome, rows: Iterable[Held]) -> Iterable[Fit]:
    state = outcome.state
    places: dict[Fit, list[Place]] = {}
    for row in rows:
        gpu_class = state.class_of(row.place.gpu) or ""
        alone = Fit(demand_of_held(row, gpu_class, row.ends - row.starts), (), row.starts)
        places.setdefault(alone, []).append(row.place)
    for alone, found in places.items():
        demand = replace(alone.demand, count=len(found))
        yield replace(alone, demand=demand, places=tuple(found))
