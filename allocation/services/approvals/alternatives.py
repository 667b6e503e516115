"""What would need no approval: computed for a request that waits, and booked with one click."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo

from django.db import transaction

from allocation.access import access_approval
from allocation.models import Approval, ApprovalRule, Booking
from allocation.queries.fleet.catalogue import ask_units
from allocation.rules.approvals import Conditions
from allocation.rules.ask import AskDocument
from allocation.rules.ask.line.text import document_text
from allocation.rules.changes import Target
from allocation.rules.states import State
from allocation.services.bookings.approval.decisions import (
    approvals_lock,
    bookings_lock,
    open_check,
)
from allocation.services.bookings.approval.requests import rules_met
from allocation.services.bookings.checks.terms import stronger_terms, target_of
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.release import booking_cancel
from allocation.services.bookings.requests import BookingRequest
from allocation.services.record.terms import Terms, booking_with
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.models import Tier
from tenants.platform.errors import Refused, denied

QUARTER_HOUR = 900
MOST_TRIED = 12
_DAYS = 8


@dataclass(frozen=True, slots=True)
class Alternative:
    """A request that meets no rule. `request` is the line of text that books it."""

    ask: AskDocument = field(repr=False)
    request: str
    tier: str
    cost: Decimal
    currency: str


def alternative_of(approval: Approval, now: datetime) -> Alternative | None:
    """Returns what the asker could have without an approval, as close to the request as possible;
    None if nothing is found, or for a series, an array, several classes at once, a change or a rule
    of a budget.

    Runs inside a transaction of the organisation.
    """
    booking = approval.booking
    is_open = approval.state == Approval.State.OPEN
    is_single = not (approval.change_id or approval.series_id or booking.array_id)
    if not is_open or not is_single or booking.ask.get("groups"):
        return None
    rules = list(
        ApprovalRule.objects.filter(tenant_id=approval.tenant_id, retired=None).select_related("project")
    )
    rules = [each for each in rules if each.project_id in (None, approval.project_id)]
    named = {each["id"] for each in approval.rules}
    met = [each.conditions for each in rules if str(each.id) in named]
    if len(met) < len(named):
        # A budget asks for it, or a rule that has ended: nothing smaller helps.
        return None
    for tried, target in enumerate(_candidates(booking, met, now)):
        if tried == MOST_TRIED:
            break
        terms = _terms(booking, target, now)
        if terms is not None and not _meets(booking, terms, rules, now):
            text = document_text(target.ask, ZoneInfo(booking.zone))
            return Alternative(target.ask, text, terms.tier, terms.hold_amount, terms.currency)
    return None


def alternative_take(*, actor: Actor, approval_id: UUID, digest: str, now: datetime) -> Booking:
    """Books the alternative in place of the request, which is withdrawn. Nothing is lost if it
    can't be booked.

    Raises:
        Refused: `not_found`, `not_allowed`, `approval_over`, `approval_changed`,
            `alternative_gone`, or any rule of a request.
    """
    with transaction.atomic():
        found = access_approval(actor, approval_id, now)
        bookings = bookings_lock(found)
        approval = next(each for each in approvals_lock(found) if each.id == found.id)
        if approval.asker_id != actor.user_id:
            raise denied(refusal_text("alternative_asker_only"))
        open_check(approval, digest, bookings, now)
        approval.booking = bookings[0]
        alternative = alternative_of(approval, now)
        if alternative is None:
            raise Refused("alternative_gone", refusal_text("alternative_gone"))
        return _instead(actor, bookings[0], alternative, now)


def _instead(actor: Actor, old: Booking, alternative: Alternative, now: datetime) -> Booking:
    """The new booking; the old one is cancelled first, so that its money is free."""
    booking_cancel(actor=actor, booking=old, now=now)
    request = BookingRequest(
        project=old.project.slug,
        tier=alternative.tier,
        ask=alternative.ask,
        name=old.name,
        zone=old.zone,
        request_text=alternative.request,
        campaign=old.campaign.slug if old.campaign else "",
        labels=old.labels,
        external_ref=old.external_ref,
    )
    made = booking_request(actor=actor, request=request, now=now)
    if made.state == State.AWAITING_APPROVAL:
        raise Refused("alternative_gone", refusal_text("alternative_gone"))
    return made


def _candidates(booking: Booking, rules: Sequence[Conditions], now: datetime) -> Iterator[Target]:
    """Yields requests that could meet fewer rules, the closest to what was asked first."""
    old = target_of(booking)
    yield from _inside_hours(old, rules, now)
    if any(rule.tiers for rule in rules):
        for tier in Tier.objects.exclude(slug=old.tier).order_by("-priority", "slug"):
            yield replace(old, tier=tier.slug)
    classes = {name for rule in rules for name in rule.classes}
    others = tuple(name for name in old.ask.classes if name not in classes)
    if others:
        yield replace(old, ask=replace(old.ask, classes=others))
    if old.ask.workload is None:
        yield from _smaller(old, rules)


def _inside_hours(old: Target, rules: Sequence[Conditions], now: datetime) -> Iterator[Target]:
    """The same length at the next beginning of the hours of a rule."""
    for rule in rules:
        hours = rule.outside
        if hours is None:
            continue
        at = max(old.ask.starts or now, now)
        for day in range(_DAYS):
            local = (at.astimezone(hours.zone) + timedelta(days=day)).date()
            starts = datetime.combine(local, hours.begins, hours.zone).astimezone(at.tzinfo)
            ends = starts + timedelta(seconds=old.ask.duration)
            if starts > now and hours.has(starts, ends):
                ask = replace(old.ask, starts=starts, not_before=None, deadline=None)
                yield replace(old, ask=ask)
                break


def _smaller(old: Target, rules: Sequence[Conditions]) -> Iterator[Target]:
    """The same for a shorter time, then with fewer GPUs."""
    ask = old.ask
    lengths = [rule.seconds - 1 for rule in rules if rule.seconds is not None]
    parts = [ask.duration * part // 8 for part in (6, 4, 3, 2, 1)]
    for seconds in sorted({each for each in (*lengths, *parts) if each < ask.duration})[::-1]:
        whole = seconds // QUARTER_HOUR * QUARTER_HOUR
        if whole >= QUARTER_HOUR:
            yield replace(old, ask=replace(ask, duration=whole))
    counts = {rule.gpus - 1 for rule in rules if rule.gpus is not None}
    counts |= {ask.count // 2, ask.count // 4, 1}
    for count in sorted(each for each in counts if 0 < each < ask.count)[::-1]:
        yield replace(old, ask=replace(ask, count=count))


def _terms(booking: Booking, target: Target, now: datetime) -> Terms | None:
    """The terms of a candidate; None if another rule refuses it."""
    try:
        return stronger_terms(booking, target, "", now)
    except Refused:
        return None


def _meets(booking: Booking, terms: Terms, rules: Sequence[ApprovalRule], now: datetime) -> bool:
    changed = booking_with(booking, terms)
    units = {changed.id: ask_units(AskDocument.from_json(terms.ask))}
    return bool(rules_met(rules, [changed], units, now))
