"""One turn of the decision-maker: end, look, solve, write, start, publish."""

import logging
import platform
import time
import zlib
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from django.db import IntegrityError, connection, transaction

from allocation.models import Decision, PolicyVersion, SolverState
from allocation.services.assigning import PlanStale
from allocation.services.changes import changes_of
from allocation.services.healing import hardware_clear, is_hardware_due
from allocation.services.lifecycle import (
    ends_due,
    is_anyone_waiting,
    is_anything_due,
)
from allocation.services.modes import modes_follow
from allocation.services.pausing import pauses_due
from allocation.services.plans import plan_apply
from allocation.services.policies import SOLVER_FAULTS, policy_of
from allocation.services.publish import publish_due
from allocation.services.snapshot import snapshot_take
from allocation.services.starts import starts_due
from allocation.services.tallies import tally
from allocation.services.watch import cycle_failed
from allocation.solver import Plan, Snapshot, digest, digest_of, encode, solve

logger = logging.getLogger(__name__)

# The key of the single-flight lock; any fixed number that nothing else in the database uses.
CYCLE_LOCK = 7_120_001
SOFTWARE = f"portal 1, numpy {np.__version__}, python {platform.python_version()}"


@dataclass(frozen=True, slots=True)
class CycleResult:
    """What a turn did. `outcome`: idle, busy (another leads), decided, unchanged, stale, or failed
    when the solver gave up."""

    outcome: str
    decision_id: int | None = None
    started: int = 0
    ended: int = 0


def tick_run(now: datetime) -> CycleResult:
    """Runs a turn if the clock has made one necessary; cheap when it has not."""
    if not is_anything_due(now) and not is_hardware_due(now):
        modes_follow(now)
        publish_due(now)
        return CycleResult("idle")
    return cycle_run(now)


def cycle_run(now: datetime) -> CycleResult:
    """Runs one turn unless another process is in one. Killed at any point, the next one goes on.

    The lock belongs to the session and falls with it; `leader_term` keeps a cycle that was
    overtaken while it slept from writing.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [CYCLE_LOCK])
        if not cursor.fetchone()[0]:
            return CycleResult("busy")
    try:
        began = time.perf_counter()
        done = _turn(now)
        tally("cycle_turns")
        tally("cycle_milliseconds", round((time.perf_counter() - began) * 1000))
        return done
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [CYCLE_LOCK])


def _turn(now: datetime) -> CycleResult:
    term = _lead()
    # 1. What is over makes room.
    ended = ends_due(now) + hardware_clear(now)
    pauses_due(now)
    # 2. Look, 3. solve outside any transaction, 4. write.
    outcome, decision_id = "unchanged", None
    if is_anyone_waiting():
        outcome, decision_id = _decide(snapshot_take(now), term, now)
    if outcome == "stale":
        # Somebody was quicker. One more look; then the next tick has its turn, so that a plan
        # which can never be written does not keep the machine busy.
        outcome, decision_id = _decide(snapshot_take(now), term, now)
    # 5. What is due starts, 6. and the nodes hear of it.
    started = starts_due(now)
    modes_follow(now)
    publish_due(now)
    return CycleResult(outcome, decision_id, started, ended)


def _decide(snapshot: Snapshot, term: int, now: datetime) -> tuple[str, int | None]:
    live = PolicyVersion.objects.get(state=PolicyVersion.State.LIVE)
    began = time.perf_counter()
    try:
        plan = solve(snapshot, policy_of(live))
    except SOLVER_FAULTS as error:
        # One snapshot that it can't answer must not keep what is decided from starting or ending.
        cycle_failed(error, digest(snapshot))
        return "failed", None
    solve_ms = round((time.perf_counter() - began) * 1000)
    changes = changes_of(plan, now)
    if not changes:
        return "unchanged", None
    decision = decision_of(snapshot, plan, live, now)
    decision.leader_term, decision.solve_ms = term, solve_ms
    try:
        plan_apply(changes=changes, snapshot=snapshot, decision=decision, term=term, now=now)
    except (PlanStale, IntegrityError) as error:
        logger.info("The plan was dropped: %s", error)
        return "stale", None
    return "decided", decision.id


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


def _lead() -> int:
    """A term of our own: raised and read under one lock, so that no two cycles share it."""
    with transaction.atomic():
        fence, _ = SolverState.objects.select_for_update().get_or_create(id=1)
        fence.leader_term += 1
        fence.save(update_fields=["leader_term"])
        return fence.leader_term
