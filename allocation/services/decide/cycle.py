"""One turn of the solver: end, snapshot, solve, write, start, publish."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db import IntegrityError, OperationalError, connection, transaction
from django.db.models import Q, QuerySet

from allocation.models import (
    Booking,
    BookingChange,
    CompactionOrder,
    Decision,
    PolicyVersion,
    SolverState,
)
from allocation.queries.fleet.portal_modes import decisions_frozen
from allocation.rules.states import EXTENDABLE, OPEN, State
from allocation.services.arrays.elements import arrays_advance
from allocation.services.bookings.approval.decisions import approvals_due, approvals_expire
from allocation.services.bookings.change.calendar_cuts import calendar_cut, calendar_cuts_due
from allocation.services.bookings.dependencies import dependencies_advance, dependencies_due
from allocation.services.bookings.waiting.candidates import entries_due, entries_expire, nights_note
from allocation.services.bookings.waiting.groups import rivals_due, rivals_withdraw
from allocation.services.bookings.waiting.offers import offers_due, offers_expire
from allocation.services.decide.decision_log import decision_log
from allocation.services.decide.queue_places import queue_places
from allocation.services.decide.self_check import cycle_failure_note
from allocation.services.decide.shard_workers import decide_of
from allocation.services.decide.turn_lock import (
    TurnSession,
    lock_give,
    lock_take,
    session_kept,
    stalled_turn_end,
)
from allocation.services.gc_paused import gc_paused
from allocation.services.nodes.gpu_modes import modes_request
from allocation.services.plans.apply_assignments import PlanOvertaken, PlanStale
from allocation.services.plans.apply_changes import changes_sweep
from allocation.services.plans.apply_pauses import pauses_due
from allocation.services.plans.idle import idle_write
from allocation.services.plans.pieces import plan_apply
from allocation.services.plans.plan_diff import changes_of
from allocation.services.plans.restraints import restraints_apply, restraints_due
from allocation.services.plans.soft_places import (
    places_lapsed,
    soft_places_lapse,
    soft_places_write,
)
from allocation.services.plans.wait_offers import offers_take_back, offers_write
from allocation.services.policy.policies import SOLVER_FAULTS, policy_of
from allocation.services.publish.publish import publish_due
from allocation.services.record.counters import (
    counter_add,
    dropped_pauses_count,
    plan_dropped,
    withheld_count,
)
from allocation.services.record.open_pauses import pauses_to_extend
from allocation.services.runs.end import RESUME_PLANNED, bookings_over, ends_due
from allocation.services.runs.interrupt import hardware_vacate, is_hardware_to_vacate
from allocation.services.runs.start import KEPT, starts_due
from allocation.services.snapshot.intake import open_bookings_lock
from allocation.services.snapshot.kept import drift_note, snapshot_keeper
from allocation.services.snapshot.snapshot import snapshot_read
from allocation.solver import LEFT, Kept, Part, Snapshot, digest, solve
from allocation.solver.model.rows import Rows
from tenants.outbox import task_request

logger = logging.getLogger(__name__)

# New bookings in one turn: as many as are decided in two or three seconds.
MAX_NEW = 1_000
# A turn that locks all open bookings delays every change of one. It takes fewer new ones, limits
# the wait for its locks, and is skipped where solving takes too long.
MAX_NEW_LOCKED, LOCK_TIMEOUT_MS, MAX_LOCKED_SOLVE_MS = 100, 2_000, 2_000
# After a turn that left requests unanswered, up to three turns lock all open bookings. What these
# can't write either has another cause than concurrent changes.
LOCKED_TURNS = range(1, 4)
# What the solver of this process made of held work; each turn has the lock of its session.
_kept = Kept()
_TO_ANSWER = (State.REQUESTED, State.WAITLISTED, State.QUEUED, State.PAUSING, State.PAUSED)
_WAITS_FOR_ROOM = Q(keep_trying_until__isnull=False) & ~Q(reasons=[])
_EXTENSION_ASKED = Q(extension_until__isnull=False, state__in=EXTENDABLE)


@dataclass(frozen=True, slots=True)
class CycleResult:
    """What a turn did.

    `outcome`: idle, busy (another process leads), decided, unchanged, stale, failed (the solver
    raised an error), or frozen (by an operator).
    """

    outcome: str
    decision_id: int | None = None
    started: int = 0
    ended: int = 0


def tick_run(now: datetime) -> CycleResult:
    """Runs a turn if something is due; cheap otherwise."""
    if not is_anything_due(now) and not is_hardware_to_vacate(now):
        modes_request(now)
        publish_due(now)
        return CycleResult("idle")
    return cycle_run(now)


def is_anything_due(now: datetime) -> bool:
    """Returns whether the clock or a new request gives a cycle at `now` something to do.

    Waiting bookings with a planned start don't count: time alone changes nothing for them, and a
    change that helps them requests a cycle.
    """
    return (
        pauses_to_extend().exists()
        or restraints_due(now).exists()
        or approvals_due(now).exists()
        or entries_due(now).exists()
        or offers_due(now).exists()
        or rivals_due().exists()
        or calendar_cuts_due()
        or _changes_asked().exclude(_WAITS_FOR_ROOM & Q(keep_trying_until__gt=now)).exists()
        or dependencies_due(now).exists()
        or Booking.objects.filter(
            Q(state=State.REQUESTED, is_drained=False)
            | places_lapsed(now)
            | (Q(state=State.SCHEDULED) | RESUME_PLANNED) & Q(planned_starts__lte=now) & ~KEPT
            | bookings_over(now)
        ).exists()
    )


def _changes_asked() -> QuerySet[BookingChange]:
    """Returns the changes that wait for a decision."""
    return BookingChange.objects.filter(state=BookingChange.State.ASKED)


def is_anything_undecided() -> bool:
    """Returns whether the solver has something to answer, or a risk that may be over."""
    return (
        CompactionOrder.objects.filter(decided_at=None).exists()
        or _changes_asked().exists()
        or Booking.objects.filter(
            Q(state__in=_TO_ANSWER)
            | Q(at_risk_from__isnull=False, state__in=OPEN)
            | Q(place_until__isnull=False, state=State.AWAITING_APPROVAL)
            | _EXTENSION_ASKED
        ).exists()
    )


def cycle_run(now: datetime) -> CycleResult:
    """Runs one turn unless another process runs one. A turn may be killed at any point.

    The lock belongs to the session and ends with it. A turn whose session was silent for too long
    loses it and uses no other, so a process that was stopped writes nothing when it continues.
    `leader_term` guards each decision in the same way.
    """
    if not lock_take():
        stalled_turn_end()
        return CycleResult("busy")
    try:
        began = time.perf_counter()
        with connection.execute_wrapper(TurnSession(connection.connection)):
            done = _turn(now)
        counter_add("cycle_turns")
        counter_add("cycle_milliseconds", round((time.perf_counter() - began) * 1000))
        return done
    finally:
        lock_give()


def _turn(now: datetime) -> CycleResult:
    term, withheld_cycles = _lead()
    snapshot_keeper.lead(term)
    queue_places.lead(term)
    frozen = decisions_frozen(now)
    # 1. End what is over.
    calendar_cut(now)
    ended = ends_due(now) + hardware_vacate(now, planned=frozen is None)
    offers_expire(now)
    ended += approvals_expire(now) + entries_expire(now)
    ended += rivals_withdraw(now)
    nights_note(now)
    soft_places_lapse(now)
    if frozen is not None:
        publish_due(now)
        return CycleResult("frozen", ended=ended)
    pauses_due(now)
    restraints_apply(now)
    changes_sweep(now)
    arrays_advance(now)
    dependencies_advance(now)
    # 2. Take a snapshot, 3. solve outside any transaction, 4. write.
    attempt = _Attempt("unchanged")
    if is_anything_undecided():
        attempt = _attempt(term, now, is_held=withheld_cycles in LOCKED_TURNS)
        if attempt.has_unanswered:
            # Bookings changed meanwhile: try once more; then the next turn locks them.
            ended += ends_due(now)
            attempt = _attempt(term, now, is_last=True)
        _unanswered_note(term, withheld_cycles, has_unanswered=attempt.has_unanswered)
    # 5. Start what is due, 6. publish it to the nodes.
    started = starts_due(now)
    modes_request(now)
    publish_due(now)
    return CycleResult(attempt.outcome, attempt.decision_id, started, ended)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The outcome of one attempt, and whether a booking of its snapshot got no answer."""

    outcome: str
    decision_id: int | None = None
    has_unanswered: bool = False


def _attempt(term: int, now: datetime, *, is_held: bool = False, is_last: bool = False) -> _Attempt:
    if is_held and (held := _attempt_locked(term, now)) is not None:
        return held
    taken = snapshot_keeper.take(now, MAX_NEW)
    if taken.has_drifted:
        decision_log.forget()
    return _decide(taken.snapshot, term, now, is_last=is_last, rows=taken.rows)


def _attempt_locked(term: int, now: datetime) -> _Attempt | None:
    """Decides with every open booking locked; returns None where that would take too long."""
    last = Decision.objects.values_list("solve_ms", flat=True).order_by("-id").first()
    if last is not None and last > MAX_LOCKED_SOLVE_MS:
        return None
    try:
        with transaction.atomic():
            open_bookings_lock(LOCK_TIMEOUT_MS)
            return _decide(snapshot_read(now, MAX_NEW_LOCKED), term, now, is_last=True)
    except OperationalError as error:
        logger.warning("The open bookings could not be locked for a turn: %s", error)
        return None


def _decide(
    snapshot: Snapshot, term: int, now: datetime, *, is_last: bool, rows: Rows | None = None
) -> _Attempt:
    live = PolicyVersion.objects.get(state=PolicyVersion.State.LIVE)
    began = time.perf_counter()
    try:
        with gc_paused(), session_kept():
            plan = solve(snapshot, policy_of(live), decide_of(snapshot), kept=_kept)
    except SOLVER_FAULTS as error:
        _kept.forget()
        # Starts and ends need no decision.
        cycle_failure_note(error, digest(snapshot))
        return _Attempt("failed")
    solve_ms = round((time.perf_counter() - began) * 1000)
    if _kept.drifts_take():
        drift_note(["solver"])
    dropped_pauses_count(plan)
    changes = changes_of(plan, now)
    if not changes:
        return _Attempt("unchanged")
    decision = decision_log.record(snapshot, plan, live, now, rows)
    decision.leader_term, decision.solve_ms = term, solve_ms
    try:
        withheld = plan_apply(
            changes=changes, snapshot=snapshot, decision=decision, term=term, now=now,
            is_last=is_last,
        )  # fmt: skip
    except (PlanStale, IntegrityError) as error:
        return _drop_record(error)
    decision_log.written(decision)
    queue_places.write(plan, term)
    soft_places_write(changes.plan.soft, decision, now)
    offers_write(changes.plan, snapshot, decision, now)
    offers_take_back(changes.plan, decision, now)
    idle_write(changes.plan, decision, now)
    withheld_count(withheld)
    return _Attempt("decided", decision.id, _has_unanswered(withheld))


def _drop_record(error: PlanStale | IntegrityError) -> _Attempt:
    """Returns the outcome of a plan of which nothing was written."""
    withheld = error.withheld if isinstance(error, PlanStale) else {}
    withheld_count(withheld)
    if withheld and not _has_unanswered(withheld):
        return _Attempt("unchanged")
    logger.warning("The plan was dropped: %s", error)
    snapshot_keeper.forget()
    is_overtaken = isinstance(error, PlanOvertaken)
    plan_dropped("overtaken" if is_overtaken else "withheld" if withheld else "conflict")
    return _Attempt("stale", has_unanswered=not is_overtaken)


def _has_unanswered(withheld: Mapping[Part, str]) -> bool:
    """Returns whether a booking that still waits got no answer."""
    return any(why != LEFT for why in withheld.values())


def _unanswered_note(term: int, before: int, *, has_unanswered: bool) -> None:
    """Counts turns that could not write everything, and requests the next one."""
    if has_unanswered:
        SolverState.objects.filter(leader_term=term).update(withheld_cycles=before + 1)
        if before + 1 in LOCKED_TURNS:
            task_request("allocation.cycle")
    elif before:
        SolverState.objects.filter(leader_term=term).update(withheld_cycles=0)


def _lead() -> tuple[int, int]:
    """Returns a new term, unique to this turn, and the number of unfinished turns before it."""
    with transaction.atomic():
        fence, _ = SolverState.objects.select_for_update().get_or_create(id=1)
        fence.leader_term += 1
        fence.save(update_fields=["leader_term"])
        return fence.leader_term, fence.withheld_cycles
