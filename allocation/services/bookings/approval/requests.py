"""Requests for approval: which bookings need one, and what exactly is approved."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TypeAlias
from uuid import UUID

from django.db.models import Q

from allocation.models import Approval, ApprovalRule, Booking, BookingChange, PolicyVersion
from allocation.rules.approvals import (
    MAX_OPEN,
    MAX_OPEN_IN_TENANT,
    Conditions,
    PlacePolicy,
    Role,
    Step,
    is_met,
    place_policy_of,
    steps_merged,
)
from allocation.rules.states import State
from allocation.services.bookings.approval.facts import booking_as_asked, facts_of
from allocation.services.record.history import Event
from allocation.services.record.refusals import refusal
from allocation.services.runs.transition import Change, bookings_change
from allocation.words.events import event_text
from allocation.words.refusals import refusal_text
from billing.models import Guardrail
from billing.queries import BudgetFigures
from billing.services.guardrails import MEASURED
from tenants.access import Actor, acting_members
from tenants.models import Role as MemberRole
from tenants.platform.errors import Refused
from tenants.platform.reference import by_version

# The decisions whose median is the typical time to decide.
TYPICAL_OF = timedelta(days=90)
MOST_TIMES = 100


@dataclass(frozen=True, slots=True)
class BudgetRule:
    """A reached rung of a budget's ladder that asks for an approval of every new booking."""

    id: UUID
    name: str
    step_list: tuple[Step, ...]

    @property
    def conditions(self) -> Conditions:
        """None: every booking meets it."""
        return Conditions()


Rule: TypeAlias = ApprovalRule | BudgetRule


@dataclass(frozen=True, slots=True)
class Needed:
    """The approval that a request needs: by which rules, and who decides."""

    named: tuple[dict[str, str], ...]
    steps: tuple[Step, ...]

    @classmethod
    def of(cls, rules: Sequence[Rule]) -> "Needed":
        """What rules ask for together."""
        named = tuple({"id": str(rule.id), "name": rule.name} for rule in rules)
        return cls(named, steps_merged(rule.step_list for rule in rules))


def approvals_request(
    actor: Actor,
    bookings: Sequence[Booking],
    rules: Sequence[Rule],
    now: datetime,
) -> None:
    """Makes new bookings of one request wait for an approval if they meet rules.

    The bookings are a single one or the dates of a series, and new in the caller's transaction.

    Raises:
        Refused: `too_many_approvals` or `no_approver`.
    """
    if not rules or not bookings:
        return
    needed = Needed.of(rules)
    askable_check(actor, bookings[0].project_id, needed)
    dates = dates_of(bookings)
    Approval.objects.bulk_create(
        [approval_of(actor, booking, needed, now, dates=dates) for booking in bookings]
    )
    event = asked_event(actor, needed)
    places = _place_kept(actor, now)
    bookings_change(
        [Change(booking, event, State.AWAITING_APPROVAL, places) for booking in bookings], now=now
    )


def rules_in_force(actor: Actor, project_id: UUID) -> Sequence[ApprovalRule]:
    """Returns the rules for bookings in a project."""
    rules = _rules_read(actor.tenant_id)
    return [rule for rule in rules if rule.project_id in (None, project_id)]


@by_version
def _rules_read(tenant_id: UUID) -> tuple[ApprovalRule, ...]:
    return tuple(ApprovalRule.objects.filter(tenant_id=tenant_id, retired=None))


def budget_rule(rung: Guardrail, figures: BudgetFigures) -> BudgetRule:
    """Returns the rule of a reached rung: the project's leads decide on its own money."""
    role: Role = "admin" if figures.level == "tenant" else "lead"
    share = f"{figures.share_of(rung.measure):.0f} % {MEASURED[rung.measure]}"
    return BudgetRule(rung.id, f"Budget of {figures.name}: {share}", (Step(role),))


def rules_met(
    in_force: Sequence[Rule],
    bookings: Sequence[Booking],
    units: Mapping[UUID, Mapping[str, int]],
    now: datetime,
    *,
    are_new: bool = False,
) -> list[Rule]:
    """Returns the rules that the bookings of one request meet together.

    `units` are quota units by booking and class. `are_new`: see `facts_of`.
    """
    if not in_force or not bookings:
        return []
    facts = facts_of(bookings, units, now, are_new=are_new)
    return [rule for rule in in_force if is_met(rule.conditions, facts)]


def asked_event(actor: Actor, needed: Needed) -> Event:
    """Returns the event of a request for an approval."""
    rules = needed.named
    text = event_text("approval_requested", rules=", ".join(each["name"] for each in rules))
    return Event("approval_requested", text, actor.user_id, {"rules": list(rules)})


def askable_check(actor: Actor, project_id: UUID, needed: Needed) -> None:
    """Raises Refused `too_many_approvals` or `no_approver` if this can't be asked for."""
    _open_check(actor)
    approvers_check(actor.tenant_id, project_id, actor.user_id, needed.steps)


def approval_digest(
    booking: Booking, dates: Sequence[Booking] = (), change: BookingChange | None = None
) -> str:
    """Returns the SHA-256 of what an approval is for: who, where, what, when and at what price.

    `dates` are all of its series. With a change the booking is the one that it asks for.
    """
    document = {
        "tenant": str(booking.tenant_id),
        "project": str(booking.project_id),
        "owner": booking.owner_id,
        "campaign": str(booking.campaign_id or ""),
        "tier": booking.tier_id,
        "ask": booking.ask,
        "class_durations": booking.class_durations,
        "duration": booking.duration_seconds,
        "not_before": _text(booking.not_before),
        "starts": _text(booking.starts),
        "deadline": _text(booking.deadline),
        "cost_at_most": f"{booking.hold_amount:.6f}",
        "currency": booking.currency,
        "dates": sorted(_date_text(each, booking) for each in dates),
    }
    if change is not None:
        document["change"] = [str(change.id), _text(change.start_by), change.least_strength]
    if booking.array is not None:
        document["array"] = [booking.array.count, booking.array.parallel]
    written = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return sha256(written.encode()).hexdigest()


def digest_now(approval: Approval, bookings: Sequence[Booking]) -> str:
    """Returns the digest of an approval's booking as it is; `bookings` are all of its request."""
    (booking,) = (each for each in bookings if each.id == approval.booking_id)
    change = approval.change
    if change is not None:
        return approval_digest(booking_as_asked(booking, change), change=change)
    return approval_digest(booking, dates_of(bookings))


def approvers_check(tenant_id: UUID, project_id: UUID, asker_id: int, steps: Sequence[Step]) -> None:
    """Raises Refused `no_approver` unless every step has enough other people to decide it."""
    for step in steps:
        roles = Q(role=MemberRole.TENANT_ADMIN)
        if step.role == "lead":
            roles |= Q(role=MemberRole.LEAD, project=project_id)
        people = acting_members(tenant_id).filter(roles)
        found = people.exclude(user=asker_id).values("user_id").distinct().count()
        if found < step.needed:
            raise refusal(
                "no_approver",
                refusal_text("no_approver", role=step.role, needed=step.needed, found=found),
                "conflict",
                "request",
                numbers={"needed": step.needed, "found": found},
            )


def decide_by(step: Step, latest: datetime | None, now: datetime) -> datetime:
    """Returns the end of a step that begins now."""
    until = now + timedelta(hours=step.hours)
    return until if latest is None else min(until, latest)


def approval_of(
    actor: Actor,
    booking: Booking,
    needed: Needed,
    now: datetime,
    *,
    dates: Sequence[Booking] = (),
    change: BookingChange | None = None,
) -> Approval:
    """Returns a new request for an approval of the booking, or of a change that makes it this one.

    Raises:
        Refused: `approval_too_late`.
    """
    latest = booking.starts
    if change is not None and change.is_only_end:
        latest = booking.planned_ends
    elif booking.deadline is not None:
        latest = booking.deadline - timedelta(seconds=booking.duration_seconds)
    if dates:
        latest = min(each.not_before for each in dates)
    if latest is not None and latest <= now:
        raise _too_soon()
    steps = needed.steps
    return Approval(
        tenant_id=booking.tenant_id,
        project_id=booking.project_id,
        booking=booking,
        series_id=booking.series_id if dates else None,
        change=change,
        asker_id=actor.user_id,
        digest=approval_digest(booking, dates, change),
        rules=list(needed.named),
        asked=now,
        steps=[
            {"role": s.role, "needed": s.needed, "hours": s.hours, "escalates": s.escalates} for s in steps
        ],
        decide_by=decide_by(steps[0], latest, now),
        latest=latest,
    )


def dates_of(bookings: Sequence[Booking]) -> Sequence[Booking]:
    """Returns the dates of a series; none for a single booking."""
    return () if bookings[0].series_id is None else bookings


def _date_text(date: Booking, booking: Booking) -> str:
    """The start of a date, and what it asks for unless that is the same as for the booking."""
    text = _text(date.not_before)
    if _size(date) != _size(booking):
        text += f" {json.dumps(_size(date), sort_keys=True)}"
    return text


def _size(booking: Booking) -> list[object]:
    ask = {name: value for name, value in booking.ask.items() if name != "starts"}
    return [booking.tier_id, booking.duration_seconds, booking.class_durations, ask]


def _open_check(actor: Actor) -> None:
    mine = Approval.objects.filter(tenant_id=actor.tenant_id, asker=actor.user_id, state=Approval.State.OPEN)
    single = mine.filter(series=None).count()
    if single + mine.exclude(series=None).values("series").distinct().count() >= MAX_OPEN:
        raise refusal(
            "too_many_approvals",
            refusal_text("too_many_approvals", most=MAX_OPEN),
            "conflict",
            "request",
            numbers={"most": MAX_OPEN},
        )
    everybody = Approval.objects.filter(tenant_id=actor.tenant_id, state=Approval.State.OPEN)
    if len(everybody.order_by().values_list("id")[:MAX_OPEN_IN_TENANT]) >= MAX_OPEN_IN_TENANT:
        raise refusal(
            "too_many_approvals",
            refusal_text("too_many_approvals_here", most=MAX_OPEN_IN_TENANT),
            "conflict",
            "request",
            numbers={"most": MAX_OPEN_IN_TENANT},
        )


def _too_soon() -> Refused:
    return refusal("approval_too_late", refusal_text("approval_too_late"), "conflict", "request")


def _place_kept(actor: Actor, now: datetime) -> dict[str, object]:
    """From when and until when a place may be kept; nothing after a request that came to nothing.

    A person whose last request was withdrawn or has expired gets no place for as long as that one
    lasted, so that nobody keeps GPUs by asking again and again.
    """
    closed = Approval.objects.filter(
        tenant_id=actor.tenant_id,
        asker=actor.user_id,
        state__in=[Approval.State.WITHDRAWN, Approval.State.EXPIRED],
    )
    for asked, decided in closed.order_by("-decided").values_list("asked", "decided")[:1]:
        if decided is not None and now - decided < decided - asked:
            return {"place_from": None, "place_until": None}
    policy = place_policy()
    least = timedelta(seconds=policy.decision_time)
    typical = max(least, _decision_time(actor.tenant_id, now) or least)
    until = now + timedelta(seconds=policy.soft_hold)
    return {"place_from": now + typical, "place_until": until}


def place_policy() -> PlacePolicy:
    """Returns the live policy's bounds of places; the usual ones before there is a policy."""
    live = PolicyVersion.objects.filter(state=PolicyVersion.State.LIVE)
    return place_policy_of(live.values_list("document", flat=True).first() or {})


def _decision_time(tenant_id: UUID, now: datetime) -> timedelta | None:
    """The median time that the organisation's latest requests took to decide."""
    rows = Approval.objects.filter(
        tenant_id=tenant_id,
        state__in=[Approval.State.APPROVED, Approval.State.DECLINED],
        decided__gt=now - TYPICAL_OF,
    )
    times = sorted(
        decided - asked
        for asked, decided in rows.order_by("-decided").values_list("asked", "decided")[:MOST_TIMES]
        if decided is not None
    )
    return times[len(times) // 2] if times else None


def _text(moment: datetime | None) -> str:
    return "" if moment is None else moment.isoformat()
