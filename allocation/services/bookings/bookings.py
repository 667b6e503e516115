"""What people do with bookings. Placing is not here: only the cycle decides."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID, uuid4

from django.db import transaction

from allocation.models import Allocation, Booking, BookingEvent, Series
from allocation.rules.ask import AskDocument
from allocation.rules.states import EXTENDABLE, ON_HARDWARE, TERMINAL, State
from allocation.services.bookings.admission import Admission, admission_check
from allocation.services.bookings.offers import Offer, offer_price
from allocation.services.record.costs import booking_cost, unused_seconds, waiting_settle
from allocation.services.record.history import Event, events_add
from allocation.services.record.open_pauses import pause_end
from allocation.services.runs.transition import booking_change, booking_move
from billing.queries import budget_figures
from billing.rules import money_text
from billing.services import HoldRequest, holds_place
from tenants.access import Actor, access_project_to_book
from tenants.audit import audit_entry, audit_write
from tenants.models import AuditEntry, Project
from tenants.outbox import task_request
from tenants.platform.errors import Refused, invalid
from tenants.services.booking_numbers import booking_numbers_take


@dataclass(frozen=True, slots=True)
class BookingRequest:
    """A booking as a person says it, before any rule has been asked.

    `priced_at` is the instant of a quote that was shown: its prices count. None: those of now.
    """

    project: str
    tier: str
    ask: AskDocument
    name: str = ""
    zone: str = "UTC"
    request_text: str = ""
    priced_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class AdmittedRequest:
    """A wish whose terms have been checked and whose price is known."""

    project: Project
    wish: BookingRequest
    admission: Admission
    offer: Offer
    series: Series | None = None


def booking_request(
    *,
    actor: Actor,
    wish: BookingRequest,
    now: datetime,
    booking_id: UUID | None = None,
    series: Series | None = None,
) -> Booking:
    """Takes a booking in: checks what could never fit, holds the money, asks the cycle to decide.

    `booking_id` lets a repeated request find the row that its first try made; `series` is what it
    is one date of.

    Raises:
        Refused: any of the rule catalogue's request rules; nothing is written then.
    """
    with transaction.atomic():
        return booking_create(actor, wish, now, booking_id or uuid4(), series)


def booking_create(
    actor: Actor, wish: BookingRequest, now: datetime, key: UUID, series: Series | None = None
) -> Booking:
    """As `booking_request`, in the caller's transaction, which a refusal has to end."""
    project = access_project_to_book(actor, wish.project, "project")
    admission = admission_check(project=project, tier_slug=wish.tier, ask=wish.ask, now=now)
    admitted = AdmittedRequest(
        project, wish, admission, offer_price(admission, wish.priced_at or now), series
    )
    (answer,) = bookings_create(actor, {key: admitted}, now).values()
    if isinstance(answer, Refused):
        raise answer
    return answer


def bookings_create(
    actor: Actor, requests: Mapping[UUID, AdmittedRequest], now: datetime
) -> dict[UUID, Booking | Refused]:
    """Writes bookings of one project whose terms have been checked, under new ids, money held.

    They take as many statements as one does. Those without money (`no_budget`, `budget_exceeded`)
    are refused and not written.
    """
    rows = {key: _booking_of(actor, admitted, now, key) for key, admitted in requests.items()}
    holds = [_hold_of(row, requests[key]) for key, row in rows.items()]
    (project_id,) = {row.project_id for row in rows.values()}
    refused = holds_place(tenant_id=actor.tenant_id, project_id=project_id, requests=holds, now=now)
    written = [row for key, row in rows.items() if key not in refused]
    if written:
        _numbers_give(actor.tenant_id, written)
        Booking.objects.bulk_create(written)
        events_add([_requested(actor, row, now) for row in written])
        audit_write([_audit_entry(actor, "booking.request", row, now) for row in written])
        task_request("allocation.cycle")
    return {**rows, **refused}


def booking_cancel(*, actor: Actor, booking: Booking, now: datetime) -> Booking:
    """Takes the booking back: before its start it is gone at once and all money is free again.

    From the start on it ends, and is over when the device is proven empty. Cancelling what is
    cancelled already changes nothing.

    Raises:
        Refused: `booking_over`.
    """
    with transaction.atomic():
        booking = _locked(booking)
        state = State(booking.state)
        if state is State.CANCELLED or state is State.ENDING:
            return booking
        if state in TERMINAL:
            raise _already_over(booking)
        if state in ON_HARDWARE:
            return _end_on_hardware(actor, booking, "cancelled", now)
        return _end_off_hardware(actor, booking, State.CANCELLED, now)


def booking_release(*, actor: Actor, booking: Booking, now: datetime) -> Booking:
    """Gives the devices back early. Only the time until now is charged, while a pause is counting
    down only the time until its notice. What is paused is over at once.

    Raises:
        Refused: `not_started` (cancel it instead) or `booking_over`.
    """
    with transaction.atomic():
        booking = _locked(booking)
        state = State(booking.state)
        if state is State.ENDING:
            return booking
        if state in TERMINAL:
            raise _already_over(booking)
        if state is State.PAUSED:
            return _end_off_hardware(actor, booking, State.ENDED, now)
        if state not in ON_HARDWARE:
            raise Refused(
                "not_started",
                f"{booking.label} has not started, so there is nothing to release. "
                "Cancel it instead: that costs nothing.",
            )
        return _end_on_hardware(actor, booking, "released", now)


def booking_extend(*, actor: Actor, booking: Booking, until: datetime, now: datetime) -> Booking:
    """Asks for a later end, in whole seconds. The next cycle grants it, if no accepted claim is
    in the way.

    Raises:
        Refused: `not_extendable`, `extension_while_paused`, `end_not_later`, `too_long`,
            `extension_pending`, `budget_exceeded`, `no_budget`.
    """
    with transaction.atomic():
        booking = _locked(booking)
        if booking.state not in EXTENDABLE:
            raise _not_extendable(booking)
        until = until.replace(microsecond=0)
        extension_check(actor, booking, until, now)
        event = Event(
            "extension_asked",
            f"{actor.name} asked for a later end.",
            actor.user_id,
            {"until": until.isoformat()},
        )
        booking_change(booking, event=event, now=now, extension_until=until)
        _audit(actor, "booking.extend", booking, now)
        task_request("allocation.cycle")
    return booking


def booking_check_in(*, actor: Actor, booking: Booking, now: datetime) -> Booking:
    """Says that the owner is there. Twice is once.

    Raises:
        Refused: `not_active`.
    """
    with transaction.atomic():
        booking = _locked(booking)
        if booking.state != State.ACTIVE:
            raise Refused("not_active", f"{booking.label} is not on its device now.")
        if booking.checked_in_at is None:
            event = Event("checked_in", f"{actor.name} checked in.", actor.user_id)
            booking_change(booking, event=event, now=now, checked_in_at=now)
    return booking


def planned_end_of(booking: Booking) -> datetime:
    """When the booking's place ends, as planned now.

    Raises:
        Refused: `no_place_yet`, `extension_while_paused`.
    """
    if booking.state in (State.PAUSING, State.PAUSED):
        raise _not_extendable(booking)
    if booking.planned_ends is None:
        raise Refused("no_place_yet", f"{booking.label} has no place yet.")
    return booking.planned_ends


def _booking_of(actor: Actor, admitted: AdmittedRequest, now: datetime, key: UUID) -> Booking:
    admission, wish, offer, ask = (
        admitted.admission,
        admitted.wish,
        admitted.offer,
        admitted.admission.ask,
    )
    return Booking(
        id=key,
        tenant_id=actor.tenant_id,
        project=admitted.project,
        owner_id=actor.user_id,
        name=wish.name,
        tier=admission.tier,
        ask=ask.to_json(),
        request_text=wish.request_text,
        zone=wish.zone,
        duration_seconds=min(map(admission.seconds_on, admission.units)),
        starts=ask.starts,
        not_before=admission.not_before,
        deadline=ask.deadline,
        state=State.REQUESTED,
        submitted=now,
        series=admitted.series,
        currency=offer.price.currency,
        price_version=offer.price.version,
        price_per_hour=offer.price.per_gpu_hour,
        hold_amount=offer.most,
        class_durations=list(offer.lengths),
    )


def _hold_of(booking: Booking, admitted: AdmittedRequest) -> HoldRequest:
    longest = timedelta(seconds=max(map(admitted.admission.seconds_on, admitted.admission.units)))
    return HoldRequest(
        booking.id, booking.hold_amount, booking.not_before, booking.not_before + longest
    )


def _numbers_give(tenant_id: UUID, bookings: Sequence[Booking]) -> None:
    # The tenant's counter is locked last, so that its bookings queue for an instant only.
    first = booking_numbers_take(tenant_id, len(bookings))
    for number, booking in enumerate(bookings, first):
        booking.number = number


def _requested(actor: Actor, booking: Booking, now: datetime) -> BookingEvent:
    said = f"Requested by {actor.name}; {money_text(booking.hold_amount, booking.currency)} held."
    return Event("requested", said, actor.user_id).row(booking, now)


def _end_on_hardware(actor: Actor, booking: Booking, outcome: str, now: datetime) -> Booking:
    said = f"{actor.name} gave it back; the device is being cleared."
    booking_move(
        booking,
        State.ENDING,
        event=Event("ending", said, actor.user_id),
        now=now,
        outcome=outcome,
        released_at=min(now, booking.planned_ends or now),
    )
    _audit(actor, f"booking.{outcome}", booking, now)
    task_request("allocation.cycle")
    return booking


def _end_off_hardware(actor: Actor, booking: Booking, state: State, now: datetime) -> Booking:
    """Ends what is on no device: at once, and what was not charged yet is free again."""
    booking.allocations.filter(state=Allocation.State.PLANNED).update(
        state=Allocation.State.SUPERSEDED
    )
    is_cancelled = state is State.CANCELLED
    charged = waiting_settle(booking, now, unused_seconds(booking, now))
    pause_end(booking, now)
    freed = money_text(booking.hold_amount - charged, booking.currency)
    done = "Cancelled" if is_cancelled else "Given back"
    booking_move(
        booking,
        state,
        event=Event(str(state), f"{done} by {actor.name}; {freed} is free again.", actor.user_id),
        now=now,
        outcome="cancelled" if is_cancelled else "released",
        charged=charged,
        ended_at=now,
    )
    _audit(actor, "booking.cancel" if is_cancelled else "booking.released", booking, now)
    task_request("allocation.cycle")
    return booking


def _not_extendable(booking: Booking) -> Refused:
    if booking.state in (State.PAUSING, State.PAUSED):
        return Refused(
            "extension_while_paused",
            f"{booking.label} is {booking.get_state_display().lower()} for a stronger claim; it "
            "goes on with the time that it has left. Once it runs again, ask for more.",
            rule="R50",
            owner="others",
        )
    return Refused(
        "not_extendable",
        f"{booking.label} is {booking.get_state_display().lower()}; only a booking with "
        "a place or on its device can be extended.",
    )


def extension_check(actor: Actor, booking: Booking, until: datetime, now: datetime) -> None:
    """What needs no calendar: the rules of the tier, and the budget.

    Raises:
        Refused: `extension_pending`, `end_not_later`, `too_long`, `budget_exceeded`.
    """
    _end_check(actor, booking, until)
    seconds = int((until - planned_end_of(booking)).total_seconds())
    _budget_check(booking, booking_cost(booking, seconds), now)


def _end_check(actor: Actor, booking: Booking, until: datetime) -> None:
    ends = planned_end_of(booking)
    if booking.extension_until is not None:
        raise Refused(
            "extension_pending", f"An extension of {booking.label} is being decided already."
        )
    if until <= ends:
        raise invalid(
            "end_not_later",
            f"{booking.label} ends {actor.clock(ends)} already; choose a later time.",
            "until",
        )
    longest = timedelta(seconds=booking.tier.max_duration_seconds)
    if booking.planned_starts is not None and until - booking.planned_starts > longest:
        latest = booking.planned_starts + longest
        raise Refused(
            "too_long",
            f"A booking in the tier {booking.tier.name} may last "
            f"{booking.tier.max_duration_seconds / 3600:g} h, so this one may end "
            f"{actor.clock(latest)} at the latest.",
            "invalid",
            "until",
            rule="R4",
            owner="operator",
            alternatives=[{"until": latest.isoformat()}],
        )


def _budget_check(booking: Booking, extra: Decimal, now: datetime) -> None:
    effect = budget_figures(project_id=booking.project_id, at=planned_end_of(booking))
    if effect is not None and effect.left < extra:
        raise Refused(
            "budget_exceeded",
            f"The extension costs {money_text(extra, booking.currency)}, and "
            f"{money_text(effect.left, effect.currency)} is left in the budget.",
            "budget",
            "until",
            rule="R10",
            owner="tenant_admin",
            numbers={"needs": str(extra), "left": str(effect.left)},
        )


def _locked(booking: Booking) -> Booking:
    return (
        Booking.objects.select_for_update(of=("self",))
        .select_related("project", "tier", "owner")
        .get(id=booking.id)
    )


def _already_over(booking: Booking) -> Refused:
    return Refused(
        "booking_over",
        f"{booking.label} is {booking.get_state_display().lower()}; nothing can change that now.",
    )


def _audit(actor: Actor, action: str, booking: Booking, now: datetime) -> None:
    audit_write([_audit_entry(actor, action, booking, now)])


def _audit_entry(actor: Actor, action: str, booking: Booking, now: datetime) -> AuditEntry:
    return audit_entry(
        tenant_id=booking.tenant_id,
        actor_id=actor.user_id,
        action=action,
        target=("booking", booking.id),
        now=now,
        detail={"label": booking.label, "state": booking.state},
    )
