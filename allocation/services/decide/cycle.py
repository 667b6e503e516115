"""One turn of the decision cycle: end, snapshot, solve, write, start, publish."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from django.db import IntegrityError, OperationalError, connection, transaction

from allocation.models import Decision, PolicyVersion, SolverState
from allocation.points.bookings import PLAN_WRITTEN, TURN_PREPARES, TURN_STEPS
from allocation.queries.fleet.portal_modes import decisions_frozen
from allocation.rules.pools import class_of, is_pooled
from allocation.services.bookings.approval.decisions import approvals_expire
from allocation.services.bookings.change.calendar_cuts import calendar_cut
from allocation.services.bookings.departures import departures_apply
from allocation.services.bookings.dependencies import dependencies_advance
from allocation.services.decide.decision_log import decision_log
from allocation.services.decide.due import Work
from allocation.services.decide.leading import (
    Rest,
    Searches,
    TurnSession,
    lock_give,
    lock_take,
    queue_places,
    session_kept,
    stalled_turn_end,
)
from allocation.services.decide.self_check import cycle_failure_note
from allocation.services.decide.set_aside import decided_without
from allocation.services.gc_paused import gc_paused
from allocation.services.nodes.gpu_modes import modes_request
from allocation.services.plans.assignments import PlanOvertaken, PlanStale
from allocation.services.plans.changes import changes_sweep
from allocation.services.plans.idle_bookings import idle_write
from allocation.services.plans.kept_places import (
    soft_places_lapse,
    soft_places_write,
)
from allocation.services.plans.pauses import emptied_gpus_hand_over, more_time_answer
from allocation.services.plans.plan_diff import changes_of
from allocation.services.plans.restraints import restraints_apply
from allocation.services.plans.transactions import plan_apply
from allocation.services.policy.activations import activations_carry_out
from allocation.services.policy.policies import SOLVER_FAULTS, policy_of
from allocation.services.publish.publish import publish_due
from allocation.services.record.counters import (
    counters_add,
    dropped_pauses_count,
    plan_dropped,
    withheld_count,
)
from allocation.services.runs.end import ends_due
from allocation.services.runs.interrupt import hardware_vacate
from allocation.services.runs.start import starts_due
from allocation.services.shards import decide_of, shards_count
from allocation.services.snapshot.intake import open_bookings_lock
from allocation.services.snapshot.kept import drift_note, snapshot_keeper
from allocation.services.snapshot.snapshot import snapshot_read
from solver import LEFT, Alternative, Kept, Part, Plan, Snapshot, digest, solve
from solver.model.rows import Rows
from tenants.outbox import task_request
from tenants.platform.database.compiled import Compiled

logger = logging.getLogger(__name__)

# New bookings in one turn: as many as are decided in two or three seconds.
MAX_NEW = 1_000
# A turn that locks all open bookings delays every change of one. It takes fewer new ones, limits
# the wait for its locks, and is skipped where solving takes too long.
MAX_NEW_LOCKED, LOCK_TIMEOUT_MS, MAX_LOCKED_SOLVE_MS = 100, 2_000, 2_000
# After a turn that left requests unanswered, up to three turns lock all open bookings. What these
# can't write either has another cause than concurrent changes.
LOCKED_TURNS = range(1, 4)
_FOR_MODES, _FOR_NODES = ("modes", "pins"), ("suspended", "unpublished")
# State of this process between its turns. Only the turn that holds the lock uses it.
_kept = Kept()
_rest = Rest()
_searches = Searches()
_live_policy = Compiled(lambda _now, _keys: PolicyVersion.objects.filter(state=PolicyVersion.State.LIVE))
_LEAD = """
INSERT INTO allocation_solverstate AS fence (id, leader_term, epoch) VALUES (1, 1, 1)
ON CONFLICT (id) DO UPDATE SET leader_term = fence.leader_term + 1
RETURNING leader_term, withheld_cycles
"""


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
    answered: int = 0


def tick_run(now: datetime) -> CycleResult:
    """Runs a turn if something is due; cheap otherwise."""
    work = Work(now)
    if work.is_due:
        return cycle_run(now)
    _publish(work, now)
    return CycleResult("idle")


def is_anything_due(now: datetime) -> bool:
    """Returns whether the clock or a new request gives a turn at `now` something to do."""
    return Work(now).is_due


def tick_has_work(now: datetime) -> bool:
    """Returns whether `tick_run` would do anything at `now`."""
    work = Work(now)
    return work.is_due or work.has(*_FOR_MODES, *_FOR_NODES)


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
        took = round((time.perf_counter() - began) * 1000)
        counters_add({"cycle_turns": 1, "cycle_milliseconds": took})
        return done
    finally:
        lock_give()


def _turn(now: datetime) -> CycleResult:
    term, withheld_cycles = _lead()
    snapshot_keeper.lead(term)
    queue_places.lead(term)
    work = Work(now)
    if work.take("activations"):
        activations_carry_out(now)
    frozen = decisions_frozen(now) if work.has("frozen") else None
    # 1. End what is over.
    ended = _end(work, now, planned=frozen is None) + _expire(work, now)
    if frozen is not None:
        publish_due(now)
        return CycleResult("frozen", ended=ended)
    _prepare(work, now)
    # 2. Take a snapshot, 3. solve outside any transaction, 4. write.
    attempt = _Attempt("unchanged")
    if work.is_undecided:
        attempt = _attempt(term, now, is_held=withheld_cycles in LOCKED_TURNS)
        if attempt.has_unanswered:
            # Bookings changed meanwhile: try once more; then the next turn locks them.
            ended += ends_due(now)
            attempt = _attempt(term, now, is_last=True)
        _unanswered_note(term, withheld_cycles, has_unanswered=attempt.has_unanswered)
        if attempt.outcome != "unchanged" or attempt.has_unanswered:
            work.forget()
    # 5. Start what is due, 6. publish it to the nodes.
    started = starts_due(now) if work.take("starts", "resumes") else 0
    _publish(work, now)
    return CycleResult(attempt.outcome, attempt.decision_id, started, ended, attempt.answered)


def _end(work: Work, now: datetime, *, planned: bool) -> int:
    """Ends what is over, whose owner has left, or can't stay on its hardware; returns how many."""
    ended = 0
    if work.take("departures"):
        ended += departures_apply(now)
    if work.take("calendar_cuts"):
        calendar_cut(now)
    if work.take("runs_over", "leaving_over", "never_started"):
        ended += ends_due(now)
    if work.has_hardware:
        ended += work.done(hardware_vacate(now, planned=planned))
    return ended


def _expire(work: Work, now: datetime) -> int:
    """Ends approvals that were not answered in time, does the steps of features, and frees the places
    kept for approvals; returns how many bookings ended."""
    ended = 0
    if work.take("approvals"):
        ended += approvals_expire(now)
    for name, step in TURN_STEPS.items():
        if work.take(name):
            ended += step.run(now)
    if work.take("places_lapsed"):
        soft_places_lapse(now)
    return ended


def _prepare(work: Work, now: datetime) -> None:
    """Brings bookings up to date before the snapshot is taken."""
    if work.take("more_time", "hand_overs"):
        more_time_answer(now)
        emptied_gpus_hand_over(now)
    if work.has_restraints:
        work.done(restraints_apply(now))
    if work.take("changes_open"):
        changes_sweep(now)
    for name, step in TURN_PREPARES.items():
        if work.take(name):
            step.run(now)
    if work.take("dependants"):
        dependencies_advance(now)


def _publish(work: Work, now: datetime) -> None:
    """Requests changes of GPU modes, and sends nodes their new documents."""
    if work.take(*_FOR_MODES):
        modes_request(now)
    if work.take(*_FOR_NODES):
        publish_due(now)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The outcome of one attempt, and whether a booking of its snapshot got no answer.

    `is_settled`: the plan is what is stored already. `took`: seconds of processor to find it.
    """

    outcome: str
    decision_id: int | None = None
    has_unanswered: bool = False
    answered: int = 0
    is_settled: bool = False
    took: float = 0.0


def _attempt(term: int, now: datetime, *, is_held: bool = False, is_last: bool = False) -> _Attempt:
    if is_held and (held := _attempt_locked(term, now)) is not None:
        _rest.end()
        return held
    taken = snapshot_keeper.take(now, MAX_NEW)
    if taken.has_drifted:
        decision_log.forget()
    (live,) = _live_policy(now)
    if _rest.lasts(taken, live):
        return _Attempt("unchanged")
    if is_last:
        _searches.forget()
    taken = _searches.mark(taken, live)
    done = _decide(taken.snapshot, live, term, now, is_last=is_last, rows=taken.rows)
    if done.outcome in ("stale", "failed") or done.has_unanswered:
        _searches.forget()
    if done.is_settled and not taken.snapshot.quiet:
        _rest.begin(taken, live, done.took)
    return done


def _attempt_locked(term: int, now: datetime) -> _Attempt | None:
    """Decides with every open booking locked; returns None where that would take too long."""
    last = Decision.objects.values_list("solve_ms", flat=True).order_by("-id").first()
    if last is not None and last > MAX_LOCKED_SOLVE_MS:
        return None
    try:
        with transaction.atomic():
            open_bookings_lock(LOCK_TIMEOUT_MS)
            (live,) = _live_policy(now)
            return _decide(snapshot_read(now, MAX_NEW_LOCKED), live, term, now, is_last=True)
    except OperationalError as error:
        logger.warning("The open bookings could not be locked for a turn: %s", error)
        return None


def _decide(
    snapshot: Snapshot,
    live: PolicyVersion,
    term: int,
    now: datetime,
    *,
    is_last: bool,
    rows: Rows | None = None,
) -> _Attempt:
    began, used = time.perf_counter(), time.process_time()
    try:
        plan = _solved(snapshot, live)
    except SOLVER_FAULTS as error:
        cycle_failure_note(error, digest(snapshot))
        found = decided_without(snapshot, lambda part: _solved(part, live))
        if found is None:
            # Starts and ends need no decision.
            return _Attempt("failed")
        (snapshot, plan), rows = found, None
    solve_ms = round((time.perf_counter() - began) * 1000)
    if _kept.drifts_take():
        drift_note(["solver"])
    shards_count()
    dropped_pauses_count(plan)
    changes = changes_of(plan_of_classes(plan), now)
    if not changes:
        return _Attempt("unchanged", is_settled=True, took=time.process_time() - used)
    decision = decision_log.record(snapshot, plan, live, now, rows)
    decision.leader_term, decision.solve_ms = term, solve_ms
    try:
        withheld = plan_apply(
            changes=changes,
            snapshot=snapshot,
            decision=decision,
            now=now,
            is_last=is_last,
        )
    except (PlanStale, IntegrityError) as error:
        return _drop_record(error)
    decision_log.written(decision)
    queue_places.write(plan, term)
    soft_places_write(changes.plan.soft, decision, now)
    for write in PLAN_WRITTEN:
        write(changes.plan, snapshot, decision, now)
    idle_write(changes.plan, decision, now)
    withheld_count(withheld)
    written = changes.plan
    answered = len(written.assigns) + len(written.waits) + len(written.refusals)
    return _Attempt("decided", decision.id, _has_unanswered(withheld), answered)


def _solved(snapshot: Snapshot, live: PolicyVersion) -> Plan:
    """The plan for a snapshot; after an error the solver begins without what it has kept."""
    try:
        with gc_paused(), session_kept():
            return solve(snapshot, policy_of(live), decide_of(snapshot), kept=_kept)
    except SOLVER_FAULTS:
        _kept.forget()
        raise


def _drop_record(error: PlanStale | IntegrityError) -> _Attempt:
    """Counts and logs a plan of which nothing was written; returns the outcome."""
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
    with connection.cursor() as cursor:
        cursor.execute(_LEAD)
        term, withheld = cursor.fetchone()
        return term, withheld


def _of_classes(alternatives: tuple[Alternative, ...]) -> tuple[Alternative, ...]:
    return tuple(replace(each, gpu_class=class_of(each.gpu_class)) for each in alternatives)


def plan_of_classes(plan: Plan) -> Plan:
    """The same plan with the classes of the catalogue."""
    classes = {
        *(each.gpu_class for each in plan.assigns),
        *(each.gpu_class for each in plan.waits),
        *(each.gpu_class for each in plan.moves),
        *(other.gpu_class for each in plan.refusals for other in each.alternatives),
        *(other.gpu_class for each in plan.changes for other in each.alternatives),
    }
    if not any(map(is_pooled, classes)):
        return plan
    return replace(
        plan,
        refusals=tuple(replace(each, alternatives=_of_classes(each.alternatives)) for each in plan.refusals),
        changes=tuple(replace(each, alternatives=_of_classes(each.alternatives)) for each in plan.changes),
        assigns=tuple(replace(each, gpu_class=class_of(each.gpu_class)) for each in plan.assigns),
        waits=tuple(replace(each, gpu_class=class_of(each.gpu_class)) for each in plan.waits),
        moves=tuple(replace(each, gpu_class=class_of(each.gpu_class)) for each in plan.moves),
    )
