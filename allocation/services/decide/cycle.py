"""One turn of the decision-maker: end, look, solve, write, start, publish."""

import logging
import platform
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from typing import Any

import numpy as np
from django.conf import settings
from django.db import IntegrityError, OperationalError, connection, transaction

from allocation.models import Decision, PolicyVersion, SolverState
from allocation.queries.fleet.portal_modes import decisions_frozen
from allocation.services.decide.apply_assignments import PlanOvertaken, PlanStale
from allocation.services.decide.apply_pauses import pauses_due
from allocation.services.decide.plan_diff import changes_of
from allocation.services.decide.plans import plan_apply
from allocation.services.decide.self_check import cycle_failure_note
from allocation.services.gc_paused import gc_paused
from allocation.services.nodes.gpu_modes import modes_request
from allocation.services.policy.policies import SOLVER_FAULTS, policy_of
from allocation.services.publish.publish import publish_due
from allocation.services.record.counters import counter_add, plan_dropped, withheld_count
from allocation.services.runs.end import (
    ends_due,
    is_anything_due,
    is_anything_undecided,
)
from allocation.services.runs.interrupt import hardware_vacate, is_hardware_to_vacate
from allocation.services.runs.start import starts_due
from allocation.services.snapshot.intake import open_bookings_lock
from allocation.services.snapshot.snapshot import snapshot_read, snapshot_take
from allocation.solver import LEFT, Part, Plan, Snapshot, digest, digest_of, encode, solve
from tenants.outbox import task_request

logger = logging.getLogger(__name__)

# The key of the single-flight lock; any fixed number that nothing else in the database uses.
CYCLE_LOCK = 7_120_001
# A turn that asks the database nothing for so long is ended by whoever finds its lock taken. The
# slowest that we measured solves for 5.4 s.
STALLED_SECONDS = 20
# A session that its client does not read from waits for ever, too, as long as it is not ended.
_END_STALLED = """
SELECT pg_terminate_backend(turn.pid) FROM pg_locks AS held
JOIN pg_stat_activity AS turn ON turn.pid = held.pid AND turn.datname = current_database()
WHERE held.locktype = 'advisory' AND held.granted AND held.database = turn.datid
  AND held.classid = 0 AND held.objid = %s AND held.objsubid = 1
  AND (turn.state <> 'active' OR turn.wait_event = 'ClientWrite')
  AND turn.state_change < clock_timestamp() - make_interval(secs => %s)
"""
# New bookings that one turn takes in: as many as are decided in two or three seconds.
MAX_NEW = 1_000
# A turn that holds all open bookings keeps whoever wants to change one waiting. It takes in less,
# waits for its locks no longer than that, and is not tried where solving alone takes too long.
MAX_NEW_LOCKED, LOCK_TIMEOUT_MS, MAX_LOCKED_SOLVE_MS = 100, 2_000, 2_000
# So many turns in a row that left something are followed by one that holds all. What even these
# can't write is not about who acts meanwhile.
LOCKED_TURNS = range(1, 4)
SOFTWARE = (
    f"commit {settings.CODE_COMMIT}, numpy {np.__version__}, OR-Tools {version('ortools')}, "
    f"Python {platform.python_version()}"
)


class TurnEnded(OperationalError):
    """This turn was silent for too long: another one leads, and nothing more is written by it."""


@dataclass(frozen=True, slots=True)
class CycleResult:
    """What a turn did. `outcome`: idle, busy (another leads), decided, unchanged, stale, failed
    when the solver gave up, or frozen while an operator has frozen decisions."""

    outcome: str
    decision_id: int | None = None
    started: int = 0
    ended: int = 0


def tick_run(now: datetime) -> CycleResult:
    """Runs a turn if the clock has made one necessary; cheap when it has not."""
    if not is_anything_due(now) and not is_hardware_to_vacate(now):
        modes_request(now)
        publish_due(now)
        return CycleResult("idle")
    return cycle_run(now)


def cycle_run(now: datetime) -> CycleResult:
    """Runs one turn unless another process is in one. Killed at any point, the next one goes on.

    The lock belongs to the session and falls with it. A turn that has been silent for
    `STALLED_SECONDS` loses its session, and writes in no other: a process that was stopped writes
    nothing when it goes on. `leader_term` says the same to each decision.
    """
    if not _lock_take():
        stalled_turn_end()
        return CycleResult("busy")
    try:
        began = time.perf_counter()
        with connection.execute_wrapper(_Session(connection.connection)):
            done = _turn(now)
        counter_add("cycle_turns")
        counter_add("cycle_milliseconds", round((time.perf_counter() - began) * 1000))
        return done
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [CYCLE_LOCK])


@dataclass(frozen=True, slots=True)
class _Session:
    """Lets statements through as long as they go to one session.

    Django opens another one by itself after an error, and the lock is not in it.
    """

    first: object

    def __call__(
        self,
        execute: Callable[..., Any],
        sql: str,
        params: object,
        many: bool,  # noqa: FBT001 (Django's)
        context: object,
    ) -> object:
        """Raises TurnEnded."""
        if connection.connection is not self.first:
            raise TurnEnded("the session of this turn was ended, and its lock with it")
        return execute(sql, params, many, context)


def stalled_turn_end() -> bool:
    """Ends the session of a turn whose process has stopped; whether there was one.

    A process that was stopped (SIGSTOP, a paused virtual machine) keeps its connection, and the
    server can't tell it from one that computes. The next turn finds the lock free.
    """
    with connection.cursor() as cursor:
        cursor.execute(_END_STALLED, [CYCLE_LOCK, STALLED_SECONDS])
        ended = any(row[0] for row in cursor.fetchall())
    if ended:
        logger.warning("A turn was silent for %s s: its session was ended.", STALLED_SECONDS)
        counter_add("turns_ended_silent")
    return ended


def _lock_take() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [CYCLE_LOCK])
        return bool(cursor.fetchone()[0])


def _turn(now: datetime) -> CycleResult:
    term, withheld_cycles = _lead()
    frozen = decisions_frozen(now)
    # 1. What is over makes room.
    ended = ends_due(now) + hardware_vacate(now, planned=frozen is None)
    if frozen is not None:
        publish_due(now)
        return CycleResult("frozen", ended=ended)
    pauses_due(now)
    # 2. Look, 3. solve outside any transaction, 4. write.
    attempt = _Attempt("unchanged")
    if is_anything_undecided():
        attempt = _look(term, now, is_held=withheld_cycles in LOCKED_TURNS)
        if attempt.has_unanswered:
            # Somebody was quicker. One more look; then the next turn holds what it decides about.
            ended += ends_due(now)
            attempt = _look(term, now, is_last=True)
        _unanswered_note(term, withheld_cycles, has_unanswered=attempt.has_unanswered)
    # 5. What is due starts, 6. and the nodes hear of it.
    started = starts_due(now)
    modes_request(now)
    publish_due(now)
    return CycleResult(attempt.outcome, attempt.decision_id, started, ended)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What came of one look: an outcome of a turn, and whether something is left to be decided for
    those who were there."""

    outcome: str
    decision_id: int | None = None
    has_unanswered: bool = False


def _look(term: int, now: datetime, *, is_held: bool = False, is_last: bool = False) -> _Attempt:
    if is_held and (held := _attempt_locked(term, now)) is not None:
        return held
    return _decide(snapshot_take(now, MAX_NEW), term, now, is_last=is_last)


def _attempt_locked(term: int, now: datetime) -> _Attempt | None:
    """Decides while every open booking is locked, so that nothing can be withheld; None where that
    would keep people waiting for too long."""
    last = Decision.objects.values_list("solve_ms", flat=True).order_by("-id").first()
    if last is not None and last > MAX_LOCKED_SOLVE_MS:
        return None
    try:
        with transaction.atomic():
            open_bookings_lock(LOCK_TIMEOUT_MS)
            return _decide(snapshot_read(now, MAX_NEW_LOCKED), term, now, is_last=True)
    except OperationalError as error:
        logger.warning("The open bookings could not be held for a turn: %s", error)
        return None


def _decide(snapshot: Snapshot, term: int, now: datetime, *, is_last: bool) -> _Attempt:
    live = PolicyVersion.objects.get(state=PolicyVersion.State.LIVE)
    began = time.perf_counter()
    try:
        with gc_paused():
            plan = solve(snapshot, policy_of(live))
    except SOLVER_FAULTS as error:
        # One snapshot that it can't answer must not keep what is decided from starting or ending.
        cycle_failure_note(error, digest(snapshot))
        return _Attempt("failed")
    solve_ms = round((time.perf_counter() - began) * 1000)
    changes = changes_of(plan, now)
    if not changes:
        return _Attempt("unchanged")
    decision = decision_of(snapshot, plan, live, now)
    decision.leader_term, decision.solve_ms = term, solve_ms
    try:
        withheld = plan_apply(
            changes=changes, snapshot=snapshot, decision=decision, term=term, now=now,
            is_last=is_last,
        )  # fmt: skip
    except (PlanStale, IntegrityError) as error:
        return _drop_record(error)
    withheld_count(withheld)
    return _Attempt("decided", decision.id, _has_unanswered(withheld))


def _drop_record(error: PlanStale | IntegrityError) -> _Attempt:
    """Nothing of the plan was written: all that it answers has left, or it was dropped."""
    withheld = error.withheld if isinstance(error, PlanStale) else {}
    withheld_count(withheld)
    if withheld and not _has_unanswered(withheld):
        return _Attempt("unchanged")
    logger.warning("The plan was dropped: %s", error)
    is_overtaken = isinstance(error, PlanOvertaken)
    plan_dropped("overtaken" if is_overtaken else "withheld" if withheld else "conflict")
    return _Attempt("stale", has_unanswered=not is_overtaken)


def _has_unanswered(withheld: Mapping[Part, str]) -> bool:
    """Whether somebody who is still there has got no answer."""
    return any(why != LEFT for why in withheld.values())


def _unanswered_note(term: int, before: int, *, has_unanswered: bool) -> None:
    """Remembers for the next turn that this one could not write all, and asks for it."""
    if has_unanswered:
        SolverState.objects.filter(leader_term=term).update(withheld_cycles=before + 1)
        if before + 1 in LOCKED_TURNS:
            task_request("allocation.cycle")
    elif before:
        SolverState.objects.filter(leader_term=term).update(withheld_cycles=0)


def decision_of(snapshot: Snapshot, plan: Plan, policy: PolicyVersion, now: datetime) -> Decision:
    """The record of a cycle: what it saw and said, as canonical bytes with their digests."""
    seen, said = encode(snapshot), encode(plan)
    return Decision(
        at=now,
        policy=policy,
        snapshot=zlib.compress(seen, 6),
        snapshot_sha256=digest_of(seen),
        plan=zlib.compress(said, 6),
        plan_sha256=digest_of(said),
        software=SOFTWARE,
        solve_ms=0,
        leader_term=0,
    )


def _lead() -> tuple[int, int]:
    """A term of our own: raised and read under one lock, so that no two cycles share it; and how
    many turns before this one were left behind."""
    with transaction.atomic():
        fence, _ = SolverState.objects.select_for_update().get_or_create(id=1)
        fence.leader_term += 1
        fence.save(update_fields=["leader_term"])
        return fence.leader_term, fence.withheld_cycles
