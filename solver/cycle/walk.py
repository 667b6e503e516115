"""The walk along the queue: each booking gets its start next to those that stand ahead of it.

Firm and guaranteed starts are reserved before it begins. An expected start of an earlier cycle
reserves nothing: in its turn the booking gets its old place again if nobody ahead has taken it, an
earlier one where there is room, else a new one. For a booking without a start, the guaranteed
starts of its own tenant behind it are freed. No start ahead moves.
"""

import heapq
from bisect import insort
from collections import deque
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

from solver.cycle.changes import Changes, Standing
from solver.cycle.extending.extensions import overlaps
from solver.cycle.extending.turns import ExtensionTurns
from solver.cycle.order.criterion import criterion
from solver.cycle.order.queue import BookingQueue, Key, Turn
from solver.cycle.outcome import Outcome
from solver.cycle.placing import newcomer, place_in_turn, place_planned, series_of
from solver.cycle.planned_places import (
    PlannedPlaces,
    TakenPlaces,
    is_pushed_out,
    start_or_wait,
    starts_without_freeing,
)
from solver.cycle.planned_starts import (
    own_took_quota,
    planned_start_broken,
    planned_start_reserve,
    planned_start_with_victims,
    planned_window,
)
from solver.cycle.soft_places import SoftPlaces
from solver.model.demand import Fit
from solver.model.inputs import Change, Extension, Request
from solver.reasons.reason import Reason, reason


class Walk:
    """One pass over the queue. `kept` are the planned starts that are reserved, `broken` says why
    others are not."""

    def __init__(
        self,
        outcome: Outcome,
        queue: BookingQueue,
        turns: list[Turn],
        kept: Mapping[str, Fit],
        broken: Mapping[str, Reason],
    ) -> None:
        self._outcome, self._queue, self._turns = outcome, queue, turns
        self._kept, self._broken = dict(kept), broken
        self._series = series_of(t.request for t in turns if t.request.planned is None)
        self._places = PlannedPlaces(turns, self._kept, outcome)
        self._index = {turn.request.booking: at for at, turn in enumerate(turns)}
        self._at = 0
        self._done: set[str] = set()
        self._freed: dict[str, Fit] = {}
        self._freed_turns: deque[int] = deque()
        self._taken_places = TakenPlaces(outcome.state)
        self._pauses_noted = len(outcome.preemption.notices.pauses)
        self._resumes: list[tuple[Key, str, Turn]] = []
        self._running: dict[str, Request] = {}
        self._changed = set[str]()
        self._short_of_quota = set[str]()
        self._newcomers = 0
        self._changes: Changes | None = None
        self._extensions: ExtensionTurns | None = None
        self._soft: SoftPlaces | None = None
        # What it has reserved, and what it freed of the starts that were reserved before it.
        self._reserved: dict[str, Fit] = {}
        self._given_up: dict[str, tuple[Turn, Fit]] = {}

    def run(
        self,
        running: Iterable[Request],
        soft: SoftPlaces,
        changed: Iterable[str],
        changes: Changes,
        extensions: ExtensionTurns | None,
    ) -> None:
        """Give each booking its start. `running` are the requests of those that may be paused, for
        their resumes. In the classes `changed` more is held than when starts were planned."""
        self._changed.update(changed)
        self._changes, self._extensions, self._soft = changes, extensions, soft
        self._running = {request.booking: request for request in running}
        for at, turn in enumerate(self._turns):
            self._at = at - 1
            self._resume_before(turn, soft)
            self._at = at
            kept = self._kept.get(turn.request.booking)
            soft.pass_by(turn, kept, self._freed, self._places.part_named)
            self._give_turn(turn)
        if self._turns:
            soft.keep_before(self._turns[-1].key, self._freed.values())
        self._give_freed_turns(len(self._turns))
        self._resume_before(None, soft)
        soft.keep_before(None)
        self._place_pushed_out()

    def _give_turn(self, turn: Turn) -> None:
        """Give one booking its start."""
        request, booking = turn.request, turn.request.booking
        if booking in self._done:
            return
        first = self._turns[self._freed_turns[0]].request if self._freed_turns else None
        is_own = first is not None and first.tenant == request.tenant
        self._give_freed_turns(self._at + 1 if is_own else len(self._turns))
        if booking in self._done or self._is_change(turn):
            return
        if booking not in self._kept and booking not in self._broken:
            self._place_expected(turn)
        if booking in self._done:
            return
        if booking in self._kept:
            self._improve(turn)
        else:
            self._newcomer(turn, self._broken.get(booking))

    def _place_expected(self, turn: Turn) -> None:
        """Keep the expected start of an earlier cycle or make it earlier, or place the booking
        anew."""
        request, outcome = turn.request, self._outcome
        if request.planned is None:
            return
        found, lost = planned_window(outcome.state, request)
        if found is None:
            self._newcomer(turn, lost or reason("overrun"))
            return
        why = planned_start_broken(outcome.state, found)
        if why is None:
            self._keep_or_improve(turn, found, is_reserved=False)
            return
        answer = planned_start_with_victims(outcome.state, outcome.preemption, request, found, why)
        if isinstance(answer, Fit):
            self._kept[request.booking] = self._reserved[request.booking] = answer
            return
        cause = self._cause(found, request)
        if cause is not None:
            self._newcomer(turn, self._overtaken(cause, turn), cause)
            return
        is_own = answer.code == "quota_cut" and own_took_quota(outcome.state, found, outcome.placed)
        why = reason("overtaken", rule="guarantee", own_tenant=1) if is_own else answer
        self._newcomer(turn, why, is_own=is_own)

    def _is_change(self, turn: Turn) -> bool:
        """Decide a change of a booking, or its later end, if the turn is one."""
        booking = turn.request.booking
        change = self._changes.by_target.get(booking) if self._changes is not None else None
        longer = self._extensions.by_request.get(booking) if self._extensions is not None else None
        if change is not None:
            self._exchange(turn, change)
        elif longer is not None:
            self._extend(turn, longer)
        return change is not None or longer is not None

    def _improve(self, turn: Turn) -> None:
        booking = turn.request.booking
        kept = self._outcome.rebinding.take(booking, self._kept) or self._kept[booking]
        self._kept[booking] = kept
        if is_pushed_out(self._outcome, self._changed, turn.request, kept):
            self._free(turn)
            self._free_starts_behind(turn)
            self._reserve_again(turn)
            if booking in self._done:
                return
        del self._kept[booking]
        self._keep_or_improve(turn, kept, is_reserved=True)

    def _keep_or_improve(self, turn: Turn, kept: Fit, *, is_reserved: bool) -> None:
        """Keep a planned start that has its room and quota, or make it earlier."""
        booking = turn.request.booking
        self._done.add(booking)
        with self._outcome.rebinding.without_newcomers():
            found = place_planned(self._outcome, turn.request, kept, is_reserved=is_reserved)
        if booking in self._reserved or not is_reserved:
            self._reserved[booking] = found
        if found is not kept:
            self._note_taken(found, turn)
        self._await_resumes()

    def _cause(self, old: Fit, request: Request) -> Turn | None:
        """The booking that took the places or the quota of an old start since the walk began."""
        is_free = self._outcome.state.is_free(old)
        cause = self._taken_places.of(old, request, is_free=is_free)
        if cause is not None or is_free:
            return cause
        if self._outcome.preemption.places.can_be_out(old):
            # Who runs there can't be paused any more, because the guarantee is in use.
            return self._taken_places.last_of(old, request.tenant)
        moved = self._moved_onto(old)
        if moved is None and all(map(self._outcome.state.held.is_free, self._outcome.state.parts(old))):
            # Cores of its nodes were taken, or work with a place of its own moved for somebody.
            return self._taken_places.last_of(old)
        return moved

    def _moved_onto(self, old: Fit) -> Turn | None:
        """Who has another place than before, without another start, on the places of an old one."""
        if self._soft is not None and (pending := self._soft.in_the_way(old)):
            return pending
        rows = self._outcome.rebinding.near(old.demand.gpu_class, old.window)
        names = sorted(name for name, row in rows.items() if overlaps(row, (old,)))
        return next((self._turns[self._index[n]] for n in names if n in self._index), None)

    def _newcomer(
        self, turn: Turn, broken: Reason | None, cause: Turn | None = None, *, is_own: bool = True
    ) -> None:
        """Place a booking that has no start, and the bookings that are placed with it. `broken` is
        the reason why it lost the one that it had, `cause` who took it. Without `is_own` what is
        held, perhaps by another tenant, is in its way."""
        request, outcome = turn.request, self._outcome
        if request.booking in self._places.behind_depth:
            self._start_or_wait(turn, broken)
            return
        is_member = request.planned is None and request.fixed and request.series is not None
        if is_member and request.series not in self._series:
            return
        attempts, freed = outcome.rebinding.attempts, set(self._freed)
        if is_own and (cause is None or cause.request.tenant == request.tenant):
            # Else a guaranteed start would get later for another tenant.
            self._free_starts_behind(turn)
        outcome.rebinding.open_to_newcomers()
        self._newcomers += 1
        if request.planned is None:
            given = place_in_turn(outcome, request, self._series)
        else:
            found = newcomer(outcome, request, broken)
            given = [(request, found)] if found is not None else []
        for each, found in given:
            self._placed(each, found, cause or turn)
        self._done.add(request.booking)
        self._await_resumes()
        if not given:
            # Who got nothing changes nothing.
            outcome.rebinding.attempts = attempts
            self._put_back(self._freed.keys() - freed)

    def _start_or_wait(self, turn: Turn, why: Reason | None) -> None:
        """Start a booking behind the depth of planning, or let it wait without a planned start."""
        found = start_or_wait(self._outcome, turn.request, why)
        if found is not None:
            self._placed(turn.request, found, turn)
        self._done.add(turn.request.booking)

    def _exchange(self, turn: Turn, change: Change) -> None:
        """Give a booking what its change asks for, or leave it where it is; with the group of the
        change, all or none."""
        changes, outcome = self._changes, self._outcome
        if changes is None:
            return
        members = changes.members(change)
        self._done |= {each.target.booking for each in members}
        lifted: list[tuple[Change, Standing, Fit | None]] = []
        for each in members:
            kept = self._kept_of(each.booking)
            standing = changes.lift(each, kept)
            if standing is None:
                self._restore_standing(lifted)
                changes.keep_begun(members, each)
                return
            self._kept.pop(each.booking, None)
            lifted.append((each, standing, kept))
        attempts, freed = outcome.rebinding.attempts, set(self._freed)
        self._free_starts_behind(turn)
        found = changes.decide([(each, standing) for each, standing, _ in lifted])
        for each in members if found else ():
            self._placed(each.target, found[each.booking], turn)
            self._done.add(each.booking)
            self._reserved.pop(each.target.booking)
            self._reserved[each.booking] = found[each.booking]
        if found:
            self._await_resumes()
            return
        outcome.rebinding.attempts = attempts
        self._restore_standing(lifted)
        self._put_back(self._freed.keys() - freed)

    def _extend(self, turn: Turn, extension: Extension) -> None:
        """Give a booking its later end, or leave it and everything else as it is."""
        extensions, request = self._extensions, turn.request
        if extensions is None:
            return
        self._done.add(request.booking)
        cause = replace(turn, request=replace(request, booking=extension.booking))
        freed = set(self._freed)
        if not extensions.is_free(extension):
            self._free_own_guaranteed(request)
        added = extensions.decide(extension)
        for found in added:
            self._note_taken(found, cause)
        if not added:
            self._put_back(self._freed.keys() - freed)

    def _kept_of(self, booking: str) -> Fit | None:
        """The planned start of a booking whose turn comes later, where it is by now."""
        if booking in self._freed:
            self._reserve_again(self._turns[self._index[booking]])
            self._freed_turns = deque(at for at in self._freed_turns if at != self._index[booking])
        kept = self._kept.get(booking)
        if kept is None:
            return None
        return self._outcome.rebinding.movable.found(booking, kept.demand.gpu_class) or kept

    def _restore_standing(self, lifted: Iterable[tuple[Change, Standing, Fit | None]]) -> None:
        """Undo the lifting of what bookings have."""
        for change, standing, kept in lifted:
            if self._changes is not None:
                self._changes.put_back(change, standing)
            if kept is not None:
                self._kept[change.booking] = kept

    def _put_back(self, bookings: Container[str]) -> None:
        """Reserve freed starts again where they were."""
        for booking, found in list(self._freed.items()):
            if booking in bookings:
                self._outcome.state.reserve(found)
                self._reserved[booking] = found
                self._kept[booking] = self._freed.pop(booking)
                self._keep(self._turns[self._index[booking]].request, found)
        lifted = (at for at in self._freed_turns if self._turns[at].request.booking in self._freed)
        self._freed_turns = deque(lifted)

    def _placed(self, request: Request, found: Fit, cause: Turn) -> None:
        self._done.add(request.booking)
        self._reserved[request.booking] = found
        self._note_taken(found, cause)

    def _note_taken(self, found: Fit, cause: Turn) -> None:
        """Note that room and quota were taken because of a booking."""
        self._taken_places.add(found, cause)
        self._changed.update(each.gpu_class for each in found.demand.parts)
        quota, uses = self._outcome.state.quota, self._outcome.state.uses(found.demand)
        counted = (use for use in uses if quota.tier(use.tier).counts)
        full = (use.gpu_class for use in counted if quota.takes_back(use, found.window))
        self._short_of_quota.update(full)

    def _free_starts_behind(self, turn: Turn) -> None:
        """Free the guaranteed starts of its own tenant behind a booking without a start, unless it
        starts as it asks without."""
        is_any = bool(self._places.guaranteed_behind(turn.request, self._at))
        if is_any and not starts_without_freeing(self._outcome.state, turn.request):
            self._free_own_guaranteed(turn.request)

    def _make_way(self, turn: Turn) -> None:
        """Free the guaranteed starts of its own tenant behind a resume."""
        self._free_own_guaranteed(turn.request)

    def _free_own_guaranteed(self, request: Request) -> None:
        """Free the guaranteed starts of its tenant behind, which get their turns first."""
        for at in self._places.guaranteed_behind(request, self._at):
            if self._turns[at].request.booking in self._kept:
                self._free(self._turns[at])
                insort(self._freed_turns, at)  # Those of other classes may be freed already.

    def _free(self, turn: Turn) -> None:
        booking = turn.request.booking
        found = self._outcome.rebinding.take(booking, self._kept)
        if found is not None:
            kept = self._kept.pop(booking)
            if self._reserved.pop(booking, None) is None:
                self._given_up[booking] = (turn, kept)
            self._outcome.state.free(found)
            self._outcome.strengths.lift(booking)
            self._freed[booking] = found

    def _give_freed_turns(self, before: int) -> None:
        """Give the guaranteed starts that their own tenant has freed their turn, up to a place in
        the queue: nobody of another tenant may come between."""
        while self._freed_turns and self._freed_turns[0] < before:
            self._reserve_again(self._turns[self._freed_turns.popleft()])

    def _reserve_again(self, turn: Turn) -> None:
        """Reserve a freed start again on its old places, or place it anew."""
        request, outcome = turn.request, self._outcome
        old = self._freed.pop(request.booking)
        answer = planned_start_reserve(outcome.state, outcome.preemption, request, replace(old, victims=()))
        if isinstance(answer, Fit):
            self._reserved[request.booking] = self._kept[request.booking] = answer
            self._keep(request, answer)
            return
        self._place_anew(turn, old)

    def _place_anew(self, turn: Turn, old: Fit) -> None:
        """Place a booking whose start others have taken, and say why they go first."""
        request, outcome = turn.request, self._outcome
        cause = self._cause(old, request)
        why = self._overtaken(cause, turn)
        if request.booking in self._places.behind_depth:
            self._start_or_wait(turn, why)
            return
        found = newcomer(outcome, request, why)
        if found is not None:
            self._placed(request, found, cause or turn)
        self._done.add(request.booking)
        self._await_resumes()

    def _overtaken(self, cause: Turn | None, turn: Turn) -> Reason:
        """Why the booking that took the start of another one goes first."""
        # Without one, an extension has taken the quota of work that does not count.
        is_own = cause is None or cause.request.tenant == turn.request.tenant
        rule = "tier" if cause is None else criterion(self._outcome.state.policy.order, cause, turn)
        # Of another tenant's booking nobody may learn the name.
        name = cause.request.booking if cause is not None and is_own else None
        return reason("overtaken", rule=rule, own_tenant=int(is_own), booking=name)

    def _keep(self, request: Request, found: Fit) -> None:
        """Note a planned start that is reserved again."""
        outcome = self._outcome
        if not request.home:
            outcome.rebinding.add(request.booking, found)
        if outcome.strengths.of_before(request) == "guaranteed":
            outcome.strengths.count(request, found)

    def _await_resumes(self) -> None:
        """Give the bookings that have notice since then their places in the queue."""
        pauses = self._outcome.preemption.notices.pauses
        for pause in pauses[self._pauses_noted :]:
            request = self._running.get(pause.booking)
            if request is not None:
                turn = self._queue.turn(replace(request, earliest=pause.at, paused=True))
                turn = replace(turn, request=replace(request, behind=turn.request.behind))
                self._outcome.keys[request.booking] = turn.numbers
                heapq.heappush(self._resumes, (turn.key, request.booking, turn))
        self._pauses_noted = len(pauses)

    def _resume_before(self, turn: Turn | None, soft: SoftPlaces) -> None:
        """Plan the resumes of bookings with notice that are ahead of this turn."""
        while self._resumes and (turn is None or self._resumes[0][0] <= turn.key):
            _, booking, paused = heapq.heappop(self._resumes)
            # A resume goes before what its own tenant's claim has freed behind it.
            first = self._turns[self._freed_turns[0]].request if self._freed_turns else None
            is_own = first is not None and first.tenant == paused.request.tenant
            is_ahead = is_own and turn is not None
            self._give_freed_turns(self._at + 1 if is_ahead else len(self._turns))
            soft.keep_before(paused.key, self._freed.values())
            found = self._outcome.resume(paused, self._make_way)
            if found is not None:
                self._reserved[booking] = found
                self._note_taken(found, paused)

    def _place_pushed_out(self) -> None:
        """Place anew what has lost its quota, or the right to pauses, after its turn."""
        outcome, late = self._outcome, self._short_of_quota
        for turn in self._turns if late or outcome.awaiting_pauses else ():
            found = outcome.placed.get(turn.request.booking)
            if found is not None and is_pushed_out(outcome, late, turn.request, found):
                queues, found = dict(outcome.queues), outcome.take_back(turn.request.booking)
                self._place_anew(turn, found)
                outcome.queues = queues  # It is counted already.
