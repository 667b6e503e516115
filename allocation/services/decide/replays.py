"""Replays of stored decisions: asked for by people, and a sample each night."""

import time
import zlib
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from django.db import connection, transaction
from django.db.models import Q

from allocation.models import Decision, DecisionReplay
from allocation.queries.decisions.decisions import (
    DecisionFacts,
    ReplayFacts,
    decision_facts,
    replay_latest,
)
from allocation.services.decide.replay import Replay, decision_replay
from allocation.words.refusals import refusal_text
from tenants.audit import platform_record
from tenants.failures import FailureLog
from tenants.models import User
from tenants.outbox import task_request
from tenants.platform.errors import Refused, missing

TASK = "decisions.replay"
QUEUE = "replays"
OPEN_MOST = 50
"""Replays that wait or run, of the whole site."""
SAMPLE = 20
"""Decisions that are replayed each night."""
SAMPLE_HOUR = 2
RUN_MOST = timedelta(minutes=10)
"""A replay that has run for longer lost its process, and is started again."""
ATTEMPTS = 3
DAY = timedelta(days=1)
_RESULT = (
    "finished_at",
    "outcome",
    "note",
    "comparison",
    "snapshot_sha256",
    "plan_sha256",
    "software",
    "took_ms",
)


def replay_request(*, person_id: int, number: int, now: datetime) -> ReplayFacts:
    """Asks for a replay, or returns the one that is open.

    Raises:
        Refused: `not_found`, `decision_archived`, `too_many_replays`.
    """
    facts = decision_facts(number)
    if facts is None:
        raise missing("decision")
    _archived_check(facts)
    found = replay_latest(number)
    if found is not None and found.is_open:
        return found
    _open_check()
    with connection.cursor() as cursor:
        # If another person has asked at the same time, that replay is the answer.
        cursor.execute("SELECT portal_replay_ask(%s, %s, %s)", [number, person_id, now])
    task_request(TASK)
    asked = replay_latest(number)
    if asked is None:
        raise missing("decision")
    return asked


def replay_by_operator(*, operator: User, number: int, now: datetime) -> ReplayFacts:
    """As `replay_request`, with an entry in the platform's log. In `operator_tx`."""
    found = replay_request(person_id=operator.pk, number=number, now=now)
    after = {"asked_at": found.asked_at.isoformat()}
    platform_record(operator.pk, "decision.replayed", ("decision", number), now, after=after)
    return found


def replays_run(clock: Callable[[], datetime], most: int = OPEN_MOST) -> int:
    """Replays what waits, one by one, and returns how many. For system programs."""
    failures = FailureLog(QUEUE, clock())
    done = 0
    while done < most and (row := _claim(clock())) is not None:
        failures.handle(row.id, partial(_replay_timed, row, clock))
        done += 1
    return done


def _replay_timed(row: DecisionReplay, clock: Callable[[], datetime]) -> None:
    """Replays a decision; one that fails is started again later, `ATTEMPTS` times."""
    began = time.perf_counter()
    _replay(row)
    row.took_ms = round((time.perf_counter() - began) * 1000)
    row.finished_at = clock()
    row.save(update_fields=_RESULT)


def sample_request(now: datetime) -> int:
    """Asks for the replays of the night, once a day after `SAMPLE_HOUR` UTC; returns how many.

    Half of them are the newest, half are spread over the day before.
    """
    since = now.replace(hour=SAMPLE_HOUR, minute=0, second=0, microsecond=0)
    if now < since or DecisionReplay.objects.filter(asked_by=None, asked_at__gte=since).exists():
        return 0
    day = Decision.objects.filter(at__gte=now - DAY, archived_in="")
    numbers = list(day.order_by("id").values_list("id", flat=True))
    step = max(1, 2 * len(numbers) // SAMPLE)
    spread = numbers[::step][: SAMPLE // 2]
    chosen = set(numbers[-(SAMPLE - len(spread)) :]) | set(spread)
    rows = [DecisionReplay(decision_id=each, asked_at=now) for each in sorted(chosen)]
    DecisionReplay.objects.bulk_create(rows, ignore_conflicts=True)
    if rows:
        task_request(TASK)
    return len(rows)


def _archived_check(facts: DecisionFacts) -> None:
    if facts.archived_in:
        raise Refused(
            "decision_archived",
            refusal_text("decision_archived", id=facts.id, archived_in=facts.archived_in),
            "conflict",
            owner="operator",
        )


def _open_check() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT portal_replays_open()")
        (count,) = cursor.fetchone()
    if count >= OPEN_MOST:
        raise Refused(
            "too_many_replays",
            refusal_text("too_many_replays", count=count),
            "conflict",
            owner="operator",
        )


def _claim(now: datetime) -> DecisionReplay | None:
    """The oldest replay that waits, marked as started; one that never ends has failed."""
    waiting = Q(started_at=None) | Q(started_at__lt=now - RUN_MOST)
    with transaction.atomic():
        rows = DecisionReplay.objects.select_for_update(of=("self",), skip_locked=True)
        rows = rows.filter(waiting, finished_at=None).order_by("asked_at", "id")
        row = rows.select_related("decision__policy").first()
        if row is None:
            return None
        if row.attempts >= ATTEMPTS:
            row.outcome, row.finished_at = DecisionReplay.Outcome.FAILED, now
            row.note = f"It was started {ATTEMPTS} times and never ended."
            row.save(update_fields=_RESULT)
            return _claim(now)
        row.started_at, row.attempts = now, row.attempts + 1
        row.save(update_fields=["started_at", "attempts"])
    return row


def _replay(row: DecisionReplay) -> None:
    if row.decision.archived_in:
        row.outcome = DecisionReplay.Outcome.ARCHIVED
        row.note = f"Its documents are in {row.decision.archived_in}."
        return
    try:
        found = decision_replay(row.decision)
    except (ValueError, LookupError, zlib.error) as error:
        row.outcome, row.note = DecisionReplay.Outcome.DAMAGED, str(error)[:200]
        return
    _result(row, found)


def _result(row: DecisionReplay, found: Replay) -> None:
    is_same = found.is_equal
    row.outcome = DecisionReplay.Outcome.SAME if is_same else DecisionReplay.Outcome.DIFFERENT
    row.comparison, row.software = found.comparison, found.software[:160]
    row.snapshot_sha256, row.plan_sha256 = found.snapshot_sha256, found.plan_sha256
    if not is_same and found.software != row.decision.software:
        row.note = "Another version of the code or of its libraries made it."
