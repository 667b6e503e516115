"""Pauses of running bookings: the notice, its withdrawal, more time, and an early hand-over."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from django.db import IntegrityError, transaction
from django.db.backends.postgresql.psycopg_any import DateTimeTZRange
from django.db.models import Q, QuerySet

from allocation.models import (
    Allocation,
    Booking,
    Decision,
    Pause,
    PauseCause,
    PauseRelation,
    PolicyVersion,
)
from allocation.rules.nodes.suspending import why_not_suspendable
from allocation.rules.states import State
from allocation.services.plans.assignments import PlanStale
from allocation.services.record.counters import counter_add
from allocation.services.record.history import Event
from allocation.services.record.open_pauses import OPEN, pauses_to_extend, pauses_withdrawable
from allocation.services.runs.end import STARTED, generations_raise
from allocation.services.runs.interrupt import place_withdraw
from allocation.services.runs.transition import booking_change, booking_lock, booking_move
from allocation.words.events import EventText, event_text
from allocation.words.reasons import sentence
from solver import Reason
from solver.reasons.catalogue import BY_CODE
from tenants.models import Membership, Tier

# A beneficiary that starts this soon keeps its planned start.
STARTS_SOON = timedelta(seconds=5)
MOVED_TOGETHER = BY_CODE["moved_together"].id
IDLE = BY_CODE["idle"].id
PLANNED_FOR = (State.SCHEDULED, State.QUEUED, State.PAUSED)


def pause_begin(
    booking: Booking,
    beneficiary: Booking,
    at: datetime,
    reasons: Sequence[Reason],
    decision: Decision,
    now: datetime,
) -> Pause:
    """Gives notice of a pause: all GPUs of the running booking go to `beneficiary` at `at`.

    `booking` is locked and active. Its rows end at `at`, so that the beneficiary's can be written.
    Charging stops now; if the beneficiary is of the same people, it stops with the run.

    Raises:
        PlanStale: the booking is on no device any more.
    """
    rows = _run_cut(booking, at)
    if not rows:
        raise PlanStale("the booking is on no device any more")
    pause = _pause_new(booking, beneficiary, reasons, decision, now)
    return _begin(booking, pause, rows, at, now)


def budget_pause_begin(booking: Booking, why: Reason, now: datetime) -> Pause | None:
    """Gives notice of a pause that the ladder of a budget asks for.

    `booking` is locked and active. Nothing is credited and the grace period is charged, as for
    every pause for one's own people. Returns None when it is on no device any more.
    """
    return _ordered_pause_begin(booking, why, PauseRelation.TENANT, now)


def operator_pause_begin(booking: Booking, why: Reason, now: datetime) -> Pause | None:
    """Gives notice of a pause that an operator orders, while a stop of the booking is in force.

    `booking` is locked and active. Charging stops with the notice, and work to be redone is
    credited, as for a pause for others. Returns None when it is on no device any more.
    """
    return _ordered_pause_begin(booking, why, "", now)


def limit_pause_begin(booking: Booking, why: Reason, relation: str, now: datetime) -> Pause | None:
    """Gives notice of a pause because a limit was cut below what is in use.

    `booking` is locked and active. It is not restrained: it resumes as soon as the limit allows it. Who
    orders the pause answers for it in `allocation.points.ORDERED_PAUSES`. Returns None when it is on no
    device any more.
    """
    at = now.replace(microsecond=0) + timedelta(seconds=booking.tier.grace_seconds)
    return _pause_without_claim(booking, why, relation, at, now)


def leaving_pause_begin(booking: Booking, why: Reason, at: datetime, now: datetime) -> Pause | None:
    """Gives notice of a pause that ends at `at`, before the hardware of the booking leaves.

    `booking` is locked and active. Charging stops with the notice, and work to be redone is credited, as
    for a pause for others. Programs are stopped: what is suspended would be lost. The booking resumes
    as soon as it has other GPUs. Returns None when it is on no device any more.
    """
    return _pause_without_claim(booking, why, "", at, now, leaves=True)


def _ordered_pause_begin(booking: Booking, why: Reason, relation: str, now: datetime) -> Pause | None:
    """Begins a pause without a beneficiary, at the end of the tier's grace period.

    The booking is marked as restrained, so that it does not resume at once.
    """
    at = now.replace(microsecond=0) + timedelta(seconds=booking.tier.grace_seconds)
    return _pause_without_claim(booking, why, relation, at, now, is_drained=True)


def _pause_without_claim(
    booking: Booking,
    why: Reason,
    relation: str,
    at: datetime,
    now: datetime,
    *,
    leaves: bool = False,
    **facts: object,
) -> Pause | None:
    notified = now.replace(microsecond=0)
    rows = _run_cut(booking, at)
    if not rows:
        return None
    pause = Pause(
        id=uuid4(),
        tenant_id=booking.tenant_id,
        booking=booking,
        number=booking.pauses.count() + 1,
        cause=PauseCause.objects.create(),
        relation=relation,
        may_wait=False,
        policy_version=PolicyVersion.objects.get(state=PolicyVersion.State.LIVE).number,
        rule=why.rule,
        sentence=sentence(why)[:300],
        ready_at=booking.ready_at or now,
        notified_at=notified,
        grace_seconds=int((at - notified).total_seconds()),
    )
    return _begin(booking, pause, rows, at, now, leaves=leaves, **facts)


def _run_cut(booking: Booking, at: datetime) -> list[Allocation]:
    """Ends the run's rows at `at`, and returns them as they were."""
    started = booking.allocations.filter(state__in=STARTED)
    rows = list(started.select_related("gpu__node").order_by("id"))
    if rows:
        started.update(period=DateTimeTZRange(rows[0].period.lower, at))
        generations_raise(row.gpu_id for row in rows)
    return rows


def _begin(
    booking: Booking,
    pause: Pause,
    rows: Sequence[Allocation],
    at: datetime,
    now: datetime,
    *,
    leaves: bool = False,
    **facts: object,
) -> Pause:
    method, instead = _method_of(booking, rows, leaves=leaves)
    pause.method, pause.deadline, pause.ends_before = method, at, rows[0].period.upper
    pause.save(force_insert=True)
    if pause.relation not in ("", PauseRelation.IDLE):
        counter_add("own_pauses")
    _notice_write(booking, pause, instead, now, facts)
    return pause


def _pause_new(
    booking: Booking,
    beneficiary: Booking,
    reasons: Sequence[Reason],
    decision: Decision,
    now: datetime,
) -> Pause:
    """Returns the pause with what it is for; its cause is stored, it is not."""
    is_visible = beneficiary.tenant_id == booking.tenant_id
    rule = reasons[0].rule if reasons else "R7"
    return Pause(
        id=uuid4(),
        tenant_id=booking.tenant_id,
        booking=booking,
        number=booking.pauses.count() + 1,
        cause=PauseCause.objects.create(beneficiary=beneficiary),
        beneficiary_label=beneficiary.label if is_visible else "",
        relation=_relation(rule, booking, beneficiary),
        may_wait=beneficiary.starts is None,
        decision=decision,
        policy_version=decision.policy.number,
        rule=rule,
        sentence=" ".join(map(sentence, reasons))[:300],
        ready_at=booking.ready_at or now,
        # The solver counts whole seconds, and charging stops no later than the notice.
        notified_at=now.replace(microsecond=0),
        grace_seconds=booking.tier.grace_seconds,
    )


def _relation(rule: str, booking: Booking, beneficiary: Booking) -> str:
    """Returns the relation that decides on the bill: an idle run is charged until it ends."""
    if rule == IDLE:
        return PauseRelation.IDLE
    return "" if rule == MOVED_TOGETHER else relation_of(booking, beneficiary)


def relation_of(booking: Booking, claim: Booking) -> str:
    """Returns how the owners of two bookings are related; empty if they are not.

    A member of both organisations could otherwise pause their own booking for credit.
    """
    if claim.owner_id == booking.owner_id:
        return PauseRelation.OWNER
    if claim.project_id == booking.project_id:
        return PauseRelation.PROJECT
    if claim.tenant_id == booking.tenant_id:
        return PauseRelation.TENANT
    acts_for_both = Q(tenant=booking.tenant_id, user=claim.owner_id) | Q(
        tenant=claim.tenant_id, user=booking.owner_id
    )
    return PauseRelation.MEMBER if Membership.objects.filter(acts_for_both).exists() else ""


def _method_of(booking: Booking, rows: Sequence[Allocation], *, leaves: bool) -> tuple[str, EventText | str]:
    """Returns the method of the pause, and why it is not the method of the tier; "" if it is."""
    method = booking.tier.pause_method
    if method != Tier.PauseMethod.SUSPEND:
        return method, ""
    why = (
        "its machine leaves"
        if leaves
        else why_not_suspendable(
            devices=len(rows),
            is_divided=any(row.profile is not None or row.share is not None for row in rows),
            drivers=[row.gpu.node.driver for row in rows],
        )
    )
    if why is None:
        return method, ""
    return Tier.PauseMethod.STOP, event_text("stopped", why=why)


def _notice_write(
    booking: Booking,
    pause: Pause,
    method: EventText | str,
    now: datetime,
    facts: Mapping[str, object],
) -> None:
    code = "move_noticed" if pause.rule == MOVED_TOGETHER else "pause_noticed"
    event = Event(
        "pause_noticed",
        event_text(code, because=pause.sentence, method=method),
        detail={
            "pause": pause.number,
            "until": pause.deadline.isoformat(),
            "decision": pause.decision_id,
            "rule": pause.rule,
        },
    )
    booking_move(
        booking,
        State.PAUSING,
        event=event,
        now=now,
        notified_at=pause.notified_at,
        pause_count=booking.pause_count + 1,
        **({"decision": pause.decision} if pause.decision else {}),
        **facts,
    )


def pause_withdraw(booking: Booking, now: datetime) -> bool:
    """Withdraws the notice of a locked booking, so that it keeps its run and its end.

    Returns False when it is too late: everything is saved, the grace period is over, or there is
    no time left to notify its nodes.
    """
    pause = pauses_withdrawable(now).filter(booking=booking).first()
    if pause is None:
        return False
    rows = list(booking.allocations.filter(state__in=STARTED).order_by("id"))
    lower, upper = rows[0].period.lower, pause.ends_before
    booking.allocations.filter(state__in=STARTED).update(period=DateTimeTZRange(lower, upper))
    generations_raise(row.gpu_id for row in rows)
    pause.ended_at, pause.withdrawn, pause.more_asked_at = now, True, None
    pause.save(update_fields=["ended_at", "withdrawn", "more_asked_at"])
    is_ordered = pause.cause.beneficiary_id is None
    event = Event(
        "pause_withdrawn",
        event_text("ordered_pause_withdrawn" if is_ordered else "pause_withdrawn"),
        detail={"pause": pause.number, "until": upper.isoformat()},
    )
    booking_move(
        booking,
        State.ACTIVE,
        event=event,
        now=now,
        pause_count=booking.pause_count - 1,
        planned_starts=lower,
        planned_ends=upper,
    )
    return True


def more_time_answer(now: datetime) -> int:
    """Answers the owners who asked for more time before their pause; returns how many.

    For the leading cycle, because nothing else changes planned starts.
    """
    return sum(_more_time_answer(pause, now) for pause in pauses_to_extend().order_by("id"))


def emptied_gpus_hand_over(now: datetime) -> int:
    """Hands GPUs that a pause emptied early to its beneficiary; returns how many causes.

    For the leading cycle, because nothing else changes planned starts.
    """
    return sum(_hand_over(cause, now) for cause in hand_overs_due().order_by("id"))


def hand_overs_due() -> QuerySet[PauseCause]:
    """Returns the causes of pauses whose GPUs are empty and not handed over yet."""
    return PauseCause.objects.filter(
        handed_over_at=None, beneficiary__state__in=PLANNED_FOR, pause__emptied_at__isnull=False
    )


def _hand_over(cause: PauseCause, now: datetime) -> bool:
    """Plans a beneficiary again when all GPUs that were paused for it are empty early.

    It keeps its GPUs as a planned start, which the solver makes earlier where every rule allows.
    """
    others = Pause.objects.filter(cause__beneficiary=cause.beneficiary_id, emptied_at=None)
    if others.filter(OPEN).exists():
        return False
    if cause.beneficiary_id is None:
        return False
    with transaction.atomic():
        booking = booking_lock(cause.beneficiary_id)
        PauseCause.objects.filter(beneficiary=booking, handed_over_at=None).update(handed_over_at=now)
        starts = booking.planned_starts
        is_early = starts is not None and starts > now + STARTS_SOON and booking.starts is None
        has_place = booking.allocations.filter(state=Allocation.State.PLANNED).exists()
        if is_early and has_place:
            _requeue(booking, timedelta(0), "early_room", now)
    return True


def _more_time_answer(pause: Pause, now: datetime) -> bool:
    """Postpones the pause if the beneficiary can start as much later, or says why not."""
    with transaction.atomic():
        booking = booking_lock(pause.booking_id)
        pause.refresh_from_db()
        if booking.state != State.PAUSING or pause.more_asked_at is None:
            return False
        step = timedelta(seconds=booking.tier.more_time_seconds)
        until = min(pause.deadline + step, pause.ends_before)
        refusal = _deadline_extend(pause, booking, until, now)
        pause.more_asked_at = None
        if refusal is None:
            pause.deadline, pause.more_times_used = until, pause.more_times_used + 1
        pause.save(update_fields=["deadline", "more_asked_at", "more_times_used"])
        event = Event(
            "more_time_refused" if refusal else "more_time",
            event_text(refusal or "more_time"),
            detail={"pause": pause.number} | ({} if refusal else {"until": until.isoformat()}),
        )
        booking_change(booking, event=event, now=now)
    return True


def _deadline_extend(pause: Pause, booking: Booking, until: datetime, now: datetime) -> str | None:
    """Moves both bookings in the calendar; returns why not when one of them can't move."""
    if pause.deadline <= now or until <= pause.deadline:
        return "more_time_due"
    if pause.cause.beneficiary_id is None:
        return "more_time_fixed"
    beneficiary = booking_lock(pause.cause.beneficiary_id)
    if not _may_wait(beneficiary, until - pause.deadline):
        return "more_time_fixed"
    rows = list(booking.allocations.filter(state__in=STARTED).order_by("id"))
    if not rows:
        return "more_time_lost"
    try:
        with transaction.atomic():
            if beneficiary.state in PLANNED_FOR:
                _requeue(beneficiary, until - pause.deadline, "late_room", now)
            booking.allocations.filter(state__in=STARTED).update(
                period=DateTimeTZRange(rows[0].period.lower, until)
            )
    except IntegrityError:
        # The exclusion constraint knows every booking that is planned in that time.
        return "more_time_taken"
    generations_raise(row.gpu_id for row in rows)
    return None


def _may_wait(beneficiary: Booking, step: timedelta) -> bool:
    if beneficiary.state not in PLANNED_FOR:
        return True
    ends, deadline = beneficiary.planned_ends, beneficiary.deadline
    is_late = deadline is not None and ends is not None and ends + step > deadline
    return beneficiary.starts is None and not is_late


def _requeue(booking: Booking, later: timedelta, code: str, now: datetime) -> None:
    """Returns a scheduled booking to the queue, with a planned start on its GPUs that is `later`.

    The next plan decides on it. `code` is the text of the event.
    """
    starts, ends = booking.planned_starts, booking.planned_ends
    facts: dict[str, Any] = {}
    if starts and ends:
        starts += later
        facts = {"planned_starts": starts, "planned_ends": ends + later}
        facts |= {"announced_from": starts, "announced_until": starts}
    detail = {"starts": starts.isoformat()} if starts and later else {}
    place_withdraw(booking, Event("moved", event_text(code), detail=detail), now, **facts)
