"""One cycle: `solve(snapshot, policy)`, the numbered steps and nothing more.

Conservative backfill: every planned start is a reservation for those that come after it, so
nobody is ever delayed by a booking that stands behind it in line.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import filterfalse

from allocation.solver.borrowing import borrows_of, said
from allocation.solver.explain import (
    Line,
    freed_by,
    placed,
    reason,
    why_never,
    why_not_at,
    why_waiting,
    with_totals,
)
from allocation.solver.extensions import extension_decide
from allocation.solver.line import Queues
from allocation.solver.matching import best_window, in_time
from allocation.solver.options import alternatives, next_free
from allocation.solver.ordering import has_promise, in_order, promise_order
from allocation.solver.placement import Want, wants_of
from allocation.solver.plan import Assign, Extend, Plan, Reason, Refuse, Waiting
from allocation.solver.promises import promise_improve, promises_lay
from allocation.solver.series import all_or_none, series_of
from allocation.solver.types import Held, Policy, Promise, Request, Snapshot
from allocation.solver.working import Found, Working

_DAY = 86_400


def solve(snapshot: Snapshot, policy: Policy) -> Plan:
    """Decide everything that wants room. ValueError for a snapshot that contradicts itself."""
    snapshot = in_order(snapshot)
    # 1. Lay what is live on the calendar: it is never moved.
    working = Working(snapshot, policy)
    # 2. Reserve every promise that still fits where it was planned.
    promised = sorted(filter(has_promise, snapshot.requests), key=promise_order)
    kept, broken = promises_lay(working, promised)
    # 3. Extensions, which may not cost a promise its start.
    extensions = _extensions(working, snapshot, kept)
    # 4. Promised bookings in the order of their promises: earlier if possible, never later.
    outcome = _Outcome(working)
    for request in promised:
        _promised(outcome, request, kept.get(request.booking), broken.get(request.booking))
    # 5. Everybody else in line: fixed windows there or not at all, the others as early as possible.
    queues = Queues(working, snapshot, kept.values())
    series = series_of(snapshot.requests)
    for request in queues.order(filterfalse(has_promise, snapshot.requests)):
        for found in _in_turn(outcome, request, series):
            queues.placed(found)
    # 6. Who borrows, and reasons for everyone, each with its place among all that wait.
    return outcome.plan(snapshot, extensions)


def possible_wants(
    working: Working, wants: Iterable[Want]
) -> tuple[tuple[Want, ...], tuple[Reason, ...]]:
    """The classes that could serve the ask one day, and why the others never can."""
    able: list[Want] = []
    never: list[Reason] = []
    for want in wants:
        why = why_never(working, want)
        if why is None:
            able.append(want)
        else:
            never.append(why)
    return tuple(able), tuple(never)


@dataclass(slots=True)
class _Outcome:
    """What the cycle has decided so far."""

    working: Working
    assigns: list[Assign] = field(default_factory=list)
    waits: list[Waiting] = field(default_factory=list)
    refusals: list[Refuse] = field(default_factory=list)
    lines: dict[str, Line] = field(default_factory=dict)

    def line(self, gpu_class: str) -> Line:
        return self.lines.get(gpu_class, Line())

    def refuse(self, request: Request, reasons: tuple[Reason, ...], able: tuple[Want, ...]) -> None:
        """`able` are the wants that another window would serve."""
        starts = max(request.earliest, self.working.now)
        if not request.fixed:
            starts = self.working.first_start(request.earliest)
        asked = wants_of(request) if request.duration > 0 else ()
        later = next_free(self.working, able, starts)
        instead = alternatives(self.working, asked, later, starts, dict(request.durations))
        self.refusals.append(Refuse(request.booking, freed_by(reasons, later), instead))

    def assign(self, request: Request, found: Found) -> None:
        """The room is reserved already."""
        why = (placed(self.working, found),)
        self.assigns.append(
            Assign(request.booking, found.want.gpu_class, found.places, *found.window, why)
        )

    def wait(
        self,
        request: Request,
        found: Found,
        reasons: tuple[Reason, ...],
        delayed_by: Reason | None,
    ) -> None:
        want = found.want
        units = want.count * self.working.pools[want.gpu_class].units(want.profile)
        self.lines[want.gpu_class] = self.line(want.gpu_class).longer(units)
        self.waits.append(
            Waiting(
                request.booking,
                want.gpu_class,
                found.places,
                *found.window,
                reasons,
                delayed_by,
            )
        )

    def plan(self, snapshot: Snapshot, extensions: tuple[Extend, ...]) -> Plan:
        borrows, claims = borrows_of(self.working, snapshot, [*self.assigns, *self.waits])
        by_booking = {borrow.booking: borrow for borrow in borrows}
        waits = (
            replace(wait, reasons=with_totals(wait.reasons, self.line(wait.gpu_class).bookings))
            for wait in self.waits
        )
        return Plan(
            tuple(said(row, by_booking) for row in sorted(self.assigns, key=_booking)),
            tuple(said(row, by_booking) for row in sorted(waits, key=_booking)),
            tuple(sorted(self.refusals, key=_booking)),
            extensions,
            borrows,
            claims,
        )


def _booking(answer: Assign | Waiting | Refuse) -> str:
    return answer.booking


def _extensions(working: Working, snapshot: Snapshot, kept: dict[str, Found]) -> tuple[Extend, ...]:
    held: dict[str, list[Held]] = {}
    for row in snapshot.held:
        held.setdefault(row.booking, []).append(row)
    return tuple(
        extension_decide(working, extension, tuple(held.get(extension.booking, ())), kept)
        for extension in snapshot.extensions
    )


def _promised(
    outcome: _Outcome, request: Request, kept: Found | None, broken: Reason | None
) -> None:
    if kept is None:
        _newcomer(outcome, request, broken)
        return
    working = outcome.working
    wants, _ = possible_wants(working, wants_of(request))
    wants, slow = in_time(working, request, wants)
    found = promise_improve(working, request, wants, kept)
    if found.starts <= working.now + working.policy.freeze_horizon:
        outcome.assign(request, found)
        return
    working.free(found)
    reasons = why_waiting(working, request, found, outcome.line(found.want.gpu_class))
    working.reserve(found)
    outcome.wait(request, found, (*reasons, *slow), None)


def _in_turn(
    outcome: _Outcome, request: Request, series: dict[str, tuple[Request, ...]]
) -> list[Found]:
    """What the booking gets; of a series the first in line brings all the others along."""
    if request.series is None:
        found = _newcomer(outcome, request, None)
        return [found] if found else []
    members = series.pop(request.series, ())
    before = len(outcome.assigns), len(outcome.waits), len(outcome.refusals)
    got = [found for each in members if (found := _newcomer(outcome, each, None))]
    refused = outcome.refusals[before[2] :]
    if not refused:
        return got
    for found in got:
        outcome.working.free(found)
    del outcome.assigns[before[0] :], outcome.waits[before[1] :]
    outcome.refusals[before[2] :] = all_or_none(members, refused)
    return []


def _newcomer(outcome: _Outcome, request: Request, broken: Reason | None) -> Found | None:
    """A booking without a promise that holds; `broken` says what became of the one it had.

    Returns what it got, already reserved.
    """
    wants, never = possible_wants(outcome.working, wants_of(request))
    untimely = _untimely(outcome.working, request)
    wants, slow = in_time(outcome.working, request, wants)
    never += slow
    if untimely is not None or not wants:
        # What is too late as asked would still fit in a later window.
        reasons = never if untimely is None else (untimely, *never)
        outcome.refuse(request, reasons, wants if request.duration > 0 else ())
        return None
    if request.fixed:
        return _fixed(outcome, request, wants)
    return _flexible(outcome, request, wants, broken, slow)


def _untimely(working: Working, request: Request) -> Reason | None:
    """What is wrong with the window itself, whatever the fleet looks like."""
    now, ends = working.now, request.earliest + request.duration
    if request.duration <= 0:
        return reason("too_short", "The booking has no time left.")
    if working.first_start(request.earliest) > now + working.policy.horizon:
        return reason(
            "advance_window",
            "That is further ahead than bookings are planned.",
            request.earliest - working.policy.horizon,
            horizon_seconds=working.policy.horizon,
        )
    if request.fixed:
        return reason("window_past", "The window is over.") if ends <= now else None
    return _too_late(working, request)


def _too_late(working: Working, request: Request) -> Reason | None:
    now = working.now
    if request.latest is None:
        return None
    if request.latest <= now:
        return reason("deadline_passed", "The deadline has passed.")
    if request.latest < working.first_start(request.earliest) + request.duration:
        sentence = "There is less time before the deadline than the booking is long."
        return reason("deadline_unreachable", sentence, duration=request.duration)
    return None


def _fixed(outcome: _Outcome, request: Request, wants: tuple[Want, ...]) -> Found | None:
    """Exactly there or refused; a window that has begun is given what is left of it."""
    working = outcome.working
    starts = max(request.earliest, working.now)
    gone = starts - request.earliest
    wants = tuple(replace(w, duration=w.duration - gone) for w in wants if w.duration > gone)
    for want in wants:
        found = working.at(want, starts)
        if found is not None:
            working.reserve(found)
            outcome.assign(request, found)
            return found
    outcome.refuse(request, _window_reasons(outcome, wants[0], starts), wants)
    return None


def _window_reasons(outcome: _Outcome, want: Want, starts: int) -> tuple[Reason, ...]:
    """A fixed window waits for nobody, so reservations in its way make it busy, not a line."""
    reasons = why_not_at(outcome.working, want, starts, outcome.line(want.gpu_class))
    busy = reason("window_busy", "The GPUs are booked by others for some of that window.")
    return tuple(busy if each.code == "line" else each for each in reasons)


def _flexible(
    outcome: _Outcome,
    request: Request,
    wants: tuple[Want, ...],
    broken: Reason | None,
    slow: tuple[Reason, ...],
) -> Found | None:
    """The earliest start there is; inside the freeze horizon it is given, else it is promised."""
    working = outcome.working
    first, last = working.first_start(request.earliest), working.last_start(request)
    bounds = (first, last, request.latest)
    found = best_window(working, wants, bounds, cheapest=request.cheapest)
    if found is None:
        _without_place(outcome, request, wants, broken, slow)
        return None
    if found.starts <= working.now + working.policy.freeze_horizon:
        working.reserve(found)
        outcome.assign(request, found)
        return found
    reasons = why_waiting(working, request, found, outcome.line(found.want.gpu_class))
    working.reserve(found)
    late = request.promise is not None and found.starts > request.promise.starts
    outcome.wait(request, found, (*reasons, *slow), broken if late else None)
    return found


def _without_place(
    outcome: _Outcome,
    request: Request,
    wants: tuple[Want, ...],
    broken: Reason | None,
    slow: tuple[Reason, ...],
) -> None:
    """No start can be proven. A promised booking is kept while its deadline lets it wait."""
    working = outcome.working
    first, horizon = working.first_start(request.earliest), working.now + working.policy.horizon
    blockers = why_not_at(working, wants[0], first, outcome.line(wants[0].gpu_class)) + slow
    if request.latest is not None and request.latest - request.duration < horizon:
        sentence = "It cannot be finished before its deadline."
        why = reason("deadline_unreachable", sentence, duration=request.duration)
    else:
        sentence = "There is no room for it as far ahead as bookings are planned."
        why = reason("no_room_in_horizon", sentence, horizon_seconds=working.policy.horizon)
        if request.promise is not None:
            nowhere = _nowhere(working, request.promise, wants[0])
            outcome.wait(request, nowhere, (why, *blockers), broken)
            return
    outcome.refuse(request, (why, *blockers), wants)


def _nowhere(working: Working, promise: Promise, want: Want) -> Found:
    """A start that nothing proves, far ahead, and moved seldom so that nobody is told each cycle.

    The places stay the broken ones: when their GPUs come back, the next cycle begins from them.
    """
    horizon = working.policy.horizon
    if promise.starts >= working.now + horizon // 2:
        return Found(want, promise.places, promise.starts)
    days = -(-(working.now + horizon) // _DAY)
    return Found(want, promise.places, days * _DAY)
