"""What is announced to owners about planned starts.

A range is announced for each planned start. One message goes out when the planned start leaves it,
and the range of the new start is then announced. A start up to a minute later is still on time. A
later start also gets a receipt with the rule that moved it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from uuid import UUID

from allocation.models import Booking, Decision, MovedStart, PlannedStrength
from allocation.points import start_delays
from allocation.queries.bookings.outcomes import start_history
from allocation.rules.start_range import StartRange, start_range
from allocation.rules.states import PLANNED_TIMES, State
from allocation.services.record.history import Event
from allocation.words.events import event_text
from allocation.words.reasons import reason_data
from solver.model.inputs import Place, Strength
from solver.reasons.reason import Reason
from tenants.platform.wall import tenant_tx

UNPLANNED: Mapping[str, None] = dict.fromkeys(PLANNED_TIMES[2:])
"""The fields of a booking that a start which can't be planned any more leaves empty."""

OVERTAKEN = "overtaken"
# So much later is still on time: GPUs take seconds to clear after the booking before has ended.
ON_TIME = timedelta(minutes=1)
_RANK = {None: 0, "expected": 0, "guaranteed": 1, "firm": 2}


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a new planned start changes: fields of the booking, and the message if there is one."""

    facts: dict[str, object]
    event: Event | None = None
    receipt: MovedStart | None = None


@dataclass(frozen=True, slots=True)
class PlannedAnew:
    """A planned start of the plan, with the reason why it is later than the one before, and its places."""

    starts: datetime
    strength: Strength | None
    delayed_by: Reason | None = None
    places: Iterable[Place] = ()
    detail: Mapping[str, object] = field(default_factory=dict)
    delay: timedelta = timedelta()
    """How long its GPUs take to be clear of the bookings before."""


def starts_announce(
    plans: Sequence[tuple[Booking, PlannedAnew]], decision: Decision, now: datetime
) -> list[Announcement]:
    """Returns what is announced about the new planned starts of locked bookings, in order."""
    # Nobody delays a sure start, but its GPUs have to be cleared of the booking before.
    gpus = [
        {UUID(place.gpu) for place in plan.places} if _is_sure(plan) else set[UUID]() for _, plan in plans
    ]
    starts = [(mine, plan.starts) for mine, (_, plan) in zip(gpus, plans, strict=True)]
    delays = start_delays(starts, now) if any(gpus) else [timedelta()] * len(plans)
    return [
        start_announce(booking, replace(plan, delay=delay), decision, now)
        for (booking, plan), delay in zip(plans, delays, strict=True)
    ]


def start_announce(booking: Booking, plan: PlannedAnew, decision: Decision, now: datetime) -> Announcement:
    """Returns what is announced about the new planned start of a locked booking.

    The first range that is announced has no message: the event of the plan says it. While it still
    runs to its pause, when it resumes is news to nobody: each cycle may find another time.
    """
    if booking.state == State.PAUSING:
        return Announcement(_facts(plan, _range(booking, plan, now)))
    announced = announced_range(booking)
    if announced is None:
        return Announcement(_facts(plan, _range(booking, plan, now)))
    if announced.includes(plan.starts):
        return Announcement(_facts(plan, _narrowed(booking, plan, announced, now)))
    if announced.latest < plan.starts <= announced.latest + ON_TIME:
        return Announcement(_facts(plan, announced))
    new = _range(booking, plan, now)
    is_later = plan.starts > announced.latest
    because = reason_data(plan.delayed_by) if is_later and plan.delayed_by else ""
    event = Event(
        "delayed" if is_later else "moved",
        event_text(_news_of(booking, is_later=is_later), because=because),
        detail={
            **plan.detail,
            "starts": new.earliest.isoformat(),
            "latest": new.latest.isoformat(),
            "was": announced.earliest.isoformat(),
            "was_latest": announced.latest.isoformat(),
            "strength": plan.strength,
        },
    )
    receipt = None
    if is_later and plan.delayed_by is not None:
        receipt = _receipt(booking, plan.delayed_by, (announced, new), decision, now)
    return Announcement(_facts(plan, new), event, receipt)


def _news_of(booking: Booking, *, is_later: bool) -> str:
    """Returns the key of the sentence: what a paused booking waits for is to resume."""
    what = "resume" if booking.state == State.PAUSED else "start"
    return f"{what}_later" if is_later else f"{what}_earlier"


def announced_range(booking: Booking) -> StartRange | None:
    """Returns the range that was announced to the owner; None without one."""
    if booking.announced_from is None or booking.announced_until is None:
        return None
    return StartRange(booking.announced_from, booking.announced_until)


def _facts(plan: PlannedAnew, announced: StartRange) -> dict[str, object]:
    return {
        "planned_strength": plan.strength,
        "announced_from": announced.earliest,
        "announced_until": announced.latest,
    }


def _range(booking: Booking, plan: PlannedAnew, now: datetime) -> StartRange:
    is_expected = not _is_sure(plan)
    hour = now.replace(minute=0, second=0, microsecond=0)
    history = _history(booking.tenant_id, booking.tier_id, hour) if is_expected else ()
    found = start_range(plan.starts, now, history, is_expected=is_expected)
    return found if is_expected else replace(found, latest=found.latest + plan.delay)


def _is_sure(plan: PlannedAnew) -> bool:
    return plan.strength not in (None, PlannedStrength.EXPECTED)


def _narrowed(booking: Booking, plan: PlannedAnew, announced: StartRange, now: datetime) -> StartRange:
    """Returns the announced range; a start that is worth more than before has less slack."""
    if _RANK[plan.strength] <= _RANK[booking.planned_strength]:
        return announced
    new = _range(booking, plan, now)
    return StartRange(new.earliest, min(new.latest, announced.latest))


@lru_cache(maxsize=1_024)
def _history(tenant_id: UUID, tier: str, hour: datetime) -> tuple[tuple[int, int], ...]:
    """Returns the latest starts of the tenant in a tier, read once an hour: it is 200 lookups."""
    with tenant_tx(tenant_id):
        return tuple(start_history(tier))


def _receipt(
    booking: Booking,
    why: Reason,
    ranges: tuple[StartRange, StartRange],
    decision: Decision,
    now: datetime,
) -> MovedStart:
    was, new = ranges
    is_overtaken = why.code == OVERTAKEN
    return MovedStart(
        tenant_id=booking.tenant_id,
        booking=booking,
        at=now,
        decision=decision,
        was_from=was.earliest,
        was_until=was.latest,
        now_from=new.earliest,
        now_until=new.latest,
        strength=booking.planned_strength or PlannedStrength.EXPECTED,
        rule=why.rule,
        overtaken_by=str(why.facts["rule"]) if is_overtaken else "",
        is_own=is_overtaken and bool(why.facts["own_tenant"]),
        claimant_id=UUID(str(why.facts["booking"])) if "booking" in why.facts else None,
        reason=reason_data(why),
    )
