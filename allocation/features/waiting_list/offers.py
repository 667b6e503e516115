"""Answers to offers of the waiting list: accepted, declined, expired or withdrawn."""

from copy import copy
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import QuerySet

from allocation.features.waiting_list.models import WaitEntry, WaitOffer
from allocation.features.waiting_list.queries import access_wait_offer
from allocation.features.waiting_list.rules import MOST_EXPIRED, windows_without
from allocation.models import Booking, PlannedStrength
from allocation.queries.fleet.catalogue import ask_units
from allocation.rules.ask import AskDocument
from allocation.rules.states import State
from allocation.services.bookings.approval.requests import rules_in_force, rules_met
from allocation.services.bookings.checks.offers import most_of
from allocation.services.record.costs import rate_of, unpaid_setup
from allocation.services.record.history import Event
from allocation.services.record.refusals import refusal
from allocation.services.runs.transition import booking_lock, booking_move, planned_rows_supersede
from allocation.words.events import event_text
from allocation.words.refusals import refusal_text
from billing.rules import money_text
from billing.services import HoldRequest, holds_place
from tenants.access import Actor
from tenants.audit import audit_record
from tenants.outbox import task_request
from tenants.platform.errors import Refused

OPEN = WaitOffer.State.OPEN


def offer_cost(booking: Booking, starts: datetime) -> Decimal:
    """Returns the most that the booking costs if it begins then."""
    return most_of(rate_of(booking), starts, booking.duration_seconds) + unpaid_setup(booking)


def offer_accept(*, actor: Actor, offer_id: UUID, now: datetime) -> WaitOffer:
    """Makes an offer a booking: its money is held, and its place is firm. No cycle is needed.

    Raises:
        Refused: `not_found`, `not_allowed`, `offer_over`, `offer_expired`, `approval_needed`,
            `rival_met`, `no_budget`, `budget_exceeded`. The offer then stays as it is.
    """
    with transaction.atomic():
        booking, offer = _open_offer(actor, offer_id, now)
        _rival_check(booking)
        cost = offer_cost(booking, offer.starts)
        approval_refuse(actor, booking, cost, now)
        _hold(booking, offer, cost, now)
        _close(offer, WaitOffer.State.ACCEPTED, now, actor)
        ask = AskDocument.from_json(booking.ask).to_json()
        ask |= {"starts": offer.starts.isoformat(), "not_before": None, "deadline": None}
        held = money_text(cost, booking.currency)
        text = event_text("offer_accepted", actor=actor.name, held=held)
        booking_move(
            booking,
            State.SCHEDULED,
            event=Event("scheduled", text, actor.user_id, {"starts": offer.starts.isoformat()}),
            now=now,
            ask=ask,
            starts=offer.starts,
            not_before=offer.starts,
            deadline=None,
            hold_amount=cost,
            planned_strength=PlannedStrength.FIRM,
            announced_from=offer.starts,
            announced_until=offer.starts,
            reasons=[],
        )
        _audit(actor, "offer.accept", booking, offer, now)
        task_request("allocation.cycle")
    return offer


def offer_decline(*, actor: Actor, offer_id: UUID, now: datetime) -> WaitOffer:
    """Declines an offer: the next entry gets it. Its time is not offered to this entry again;
    an entry without any other leaves the list.

    Raises:
        Refused: `not_found`, `not_allowed`, `offer_over`, `offer_expired`.
    """
    with transaction.atomic():
        booking, offer = _open_offer(actor, offer_id, now)
        _close(offer, WaitOffer.State.DECLINED, now, actor)
        planned_rows_supersede(booking)
        entry = WaitEntry.objects.select_for_update().get(booking=booking)
        length = timedelta(seconds=booking.duration_seconds)
        taken = offer.starts, offer.ends
        left = windows_without(entry.times, taken, length)
        entry.windows = [[since.isoformat(), until.isoformat()] for since, until in left]
        entry.expired_count = 0
        entry.save(update_fields=["windows", "expired_count"])
        text = event_text("offer_declined", actor=actor.name)
        event = Event("offer_declined", text, actor.user_id)
        booking_move(booking, State.WAITLISTED, event=event, now=now)
        if not left:
            _leave(booking, actor, now)
        _audit(actor, "offer.decline", booking, offer, now)
        task_request("allocation.cycle")
    return offer


def offer_withdraw(booking: Booking, now: datetime) -> None:
    """Withdraws the open offer of a locked booking, if it has one."""
    if booking.state != State.OFFERED:
        return
    for offer in WaitOffer.objects.select_for_update().filter(booking=booking, state=OPEN):
        _close(offer, WaitOffer.State.WITHDRAWN, now)


def offers_due(now: datetime) -> QuerySet[WaitOffer]:
    """Returns offers that nobody has answered in time."""
    return WaitOffer.objects.filter(state=OPEN, until__lte=now)


def offers_expire(now: datetime) -> int:
    """Ends the offers that nobody has answered in time; no booking ends. An answer in time that
    committed first counts, because both lock the booking."""
    due = offers_due(now).order_by("booking_id").values_list("id", "booking_id")
    for offer, booking in list(due):
        _expire(offer, booking, now)
    return 0


def approval_refuse(actor: Actor, booking: Booking, cost: Decimal, now: datetime) -> None:
    """Raises Refused `approval_needed` if a booking at this cost meets a rule: an offer is too
    short to wait for an approval."""
    priced = copy(booking)
    priced.hold_amount = cost
    units = {booking.id: ask_units(AskDocument.from_json(booking.ask))}
    rules = rules_met(rules_in_force(actor, booking.project_id), [priced], units, now)
    if rules:
        names = ", ".join(rule.name for rule in rules)
        sentence = refusal_text("offer_needs_approval", rules=names)
        raise refusal("approval_needed", sentence, "conflict", "request")


def _open_offer(actor: Actor, offer_id: UUID, now: datetime) -> tuple[Booking, WaitOffer]:
    """Returns the offer with its booking, both locked."""
    found = access_wait_offer(actor, offer_id)
    booking = booking_lock(found.booking_id, "project", "tier", "owner", "campaign")
    offer = WaitOffer.objects.select_for_update().get(id=found.id)
    if offer.state != OPEN:
        raise Refused("offer_over", refusal_text(f"offer_was_{offer.state}"))
    if now >= offer.until:
        numbers = {"until": offer.until.isoformat()}
        raise Refused("offer_expired", refusal_text("offer_was_expired"), numbers=numbers)
    return booking, offer


def _rival_check(booking: Booking) -> None:
    """Raises Refused `rival_met` if another entry of its group has a place. Of two that are
    accepted at once the first counts: the lock lasts until its transaction ends."""
    group = WaitEntry.objects.values_list("any_of", flat=True).get(booking=booking)
    if group is None:
        return
    with connection.cursor() as cursor:
        key = f"any of {group}"
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [key])
    if WaitEntry.objects.filter(any_of=group, is_met=True).exists():
        raise Refused("rival_met", refusal_text("rival_met"))


def _hold(booking: Booking, offer: WaitOffer, cost: Decimal, now: datetime) -> None:
    request = HoldRequest(booking.id, cost, offer.starts, offer.ends, booking.owner_id, booking.campaign_id)
    refused = holds_place(
        tenant_id=booking.tenant_id,
        project_id=booking.project_id,
        requests=[request],
        now=now,
    )
    if refused:
        raise refused[booking.id]


def _close(offer: WaitOffer, state: WaitOffer.State, now: datetime, actor: Actor | None = None) -> None:
    offer.state, offer.decided_at = state, now
    offer.decided_by_id = actor.user_id if actor else None
    offer.save(update_fields=["state", "decided_at", "decided_by"])


def _leave(booking: Booking, actor: Actor, now: datetime) -> None:
    text = event_text("no_window_left")
    booking_move(
        booking,
        State.CANCELLED,
        event=Event("cancelled", text, actor.user_id),
        now=now,
        outcome="declined",
        charged=Decimal(0),
        ended_at=now,
    )


def _expire(offer_id: UUID, booking_id: UUID, now: datetime) -> None:
    with transaction.atomic():
        booking = booking_lock(booking_id, "tier", "project")
        offer = WaitOffer.objects.select_for_update().get(id=offer_id)
        if offer.state != OPEN or offer.until > now:
            return
        _close(offer, WaitOffer.State.EXPIRED, now)
        planned_rows_supersede(booking)
        entry = WaitEntry.objects.select_for_update().get(booking=booking)
        entry.expired_count += 1
        entry.save(update_fields=["expired_count"])
        is_last = entry.expired_count >= MOST_EXPIRED
        text = event_text("offers_end" if is_last else "offer_expired")
        booking_move(booking, State.WAITLISTED, event=Event("offer_expired", text), now=now)


def _audit(actor: Actor, action: str, booking: Booking, offer: WaitOffer, now: datetime) -> None:
    detail: dict[str, Any] = {"label": booking.label, "starts": offer.starts.isoformat()}
    audit_record(
        tenant_id=booking.tenant_id,
        actor_id=actor.user_id,
        action=action,
        target=("booking", booking.id),
        now=now,
        detail={**detail, "until": offer.until.isoformat()},
    )
