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
from allocation.services.bookings.admission import Terms, terms_check
from allocation.services.bookings.offers import Offer, offer_of
from allocation.services.record.costs import booking_cost, earlier_settle, given_up_seconds
from allocation.services.record.history import Event, lines_add
from allocation.services.record.open_pauses import pause_over
from allocation.services.runs.transition import booking_change, booking_move
from billing.queries import budget_effect
from billing.rules import money_text
from billing.services import HoldWish, holds_place
from tenants.access import Actor, access_project_to_book
from tenants.audit import audit_entry, audit_write
from tenants.models import AuditEntry, Project
from tenants.outbox import nudge
from tenants.platform.errors import Refused, invalid
from tenants.services.numbers import booking_count


@dataclass(frozen=True, slots=True)
class Wish:
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
class Taken:
    """A wish whose terms have been checked and whose price is known."""

    project: Project
    wish: Wish
    terms: Terms
    offer: Offer
    series: Series | None = None


def booking_request(
    *,
    actor: Actor,
    wish: Wish,
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
        return booking_take(actor, wish, now, booking_id or uuid4(), series)


def booking_take(
    actor: Actor, wish: Wish, now: datetime, key: UUID, series: Series | None = None
) -> Booking:
    """As `booking_request`, in the caller's transaction, which a refusal has to end."""
    project = access_project_to_book(actor, wish.project, "project")
    terms = terms_check(project=project, wish_tier=wish.tier, ask=wish.ask, now=now)
    taken = Taken(project, wish, terms, offer_of(terms, wish.priced_at or now), series)
    (answer,) = bookings_take(actor, {key: taken}, now).values()
    if isinstance(answer, Refused):
        raise answer
    return answer


def bookings_take(
    actor: Actor, wanted: Mapping[UUID, Taken], now: datetime
) -> dict[UUID, Booking | Refused]:
    """Writes bookings of one project whose terms have been checked, under new ids, money held.

    They take as many statements as one does. Those without money (`no_budget`, `budget_exceeded`)
    are refused and not written.
    """
    rows = {key: _booking_of(actor, taken, now, key) for key, taken in wanted.items()}
    holds = [_hold_of(row, wanted[key]) for key, row in rows.items()]
    (project_id,) = {row.project_id for row in rows.values()}
    refused = holds_place(tenant_id=actor.tenant_id, project_id=project_id, wishes=holds, now=now)
    written = [row for key, row in rows.items() if key not in refused]
    if written:
        _numbers_give(actor.tenant_id, written)
        Booking.objects.bulk_create(written)
        lines_add([_requested(actor, row, now) for row in written])
        audit_write([_audit_entry(actor, "booking.request", row, now) for row in written])
        nudge("allocation.cycle")
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
            raise _over(booking)
        if state in ON_HARDWARE:
            return _end(actor, booking, "cancelled", now)
        return _take_back(actor, booking, State.CANCELLED, now)


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
            raise _over(booking)
        if state is State.PAUSED:
            return _take_back(actor, booking, State.ENDED, now)
        if state not in ON_HARDWARE:
            raise Refused(
                "not_started",
                f"{booking.label} has not started, so there is nothing to release. "
                "Cancel it instead: that costs nothing.",
            )
        return _end(actor, booking, "released", now)


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
        nudge("allocation.cycle")
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


def ends_of(booking: Booking) -> datetime:
    """When the booking's place ends, as planned now.

    Raises:
        Refused: `no_place_yet`, `extension_while_paused`.
    """
    if booking.state in (State.PAUSING, State.PAUSED):
        raise _not_extendable(booking)
    if booking.planned_ends is None:
        raise Refused("no_place_yet", f"{booking.label} has no place yet.")
    return booking.planned_ends


def _booking_of(actor: Actor, taken: Taken, now: datetime, key: UUID) -> Booking:
    terms, wish, offer, ask = taken.terms, taken.wish, taken.offer, taken.terms.ask
    return Booking(
        id=key,
        tenant_id=actor.tenant_id,
        project=taken.project,
        owner_id=actor.user_id,
        name=wish.name,
        tier=terms.tier,
        ask=ask.to_json(),
        request_text=wish.request_text,
        zone=wish.zone,
        duration_seconds=min(map(terms.seconds_on, terms.units)),
        starts=ask.starts,
        not_before=terms.not_before,
        deadline=ask.deadline,
        state=State.REQUESTED,
        submitted=now,
        series=taken.series,
        currency=offer.price.currency,
        price_version=offer.price.version,
        price_per_hour=offer.price.per_gpu_hour,
        held=offer.most,
        lengths=list(offer.lengths),
    )


def _hold_of(booking: Booking, taken: Taken) -> HoldWish:
    longest = timedelta(seconds=max(map(taken.terms.seconds_on, taken.terms.units)))
    return HoldWish(booking.id, booking.held, booking.not_before, booking.not_before + longest)


def _numbers_give(tenant_id: UUID, bookings: Sequence[Booking]) -> None:
    # The tenant's counter is locked last, so that its bookings queue for an instant only.
    first = booking_count(tenant_id, len(bookings))
    for number, booking in enumerate(bookings, first):
        booking.number = number


def _requested(actor: Actor, booking: Booking, now: datetime) -> BookingEvent:
    said = f"Requested by {actor.name}; {money_text(booking.held, booking.currency)} held."
    return Event("requested", said, actor.user_id).line(booking, now)


def _end(actor: Actor, booking: Booking, outcome: str, now: datetime) -> Booking:
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
    nudge("allocation.cycle")
    return booking


def _take_back(actor: Actor, booking: Booking, state: State, now: datetime) -> Booking:
    """Ends what is on no device: at once, and what was not charged yet is free again."""
    booking.allocations.filter(state=Allocation.State.PLANNED).update(
        state=Allocation.State.SUPERSEDED
    )
    is_cancelled = state is State.CANCELLED
    charged = earlier_settle(booking, now, given_up_seconds(booking, now))
    pause_over(booking, now)
    freed = money_text(booking.held - charged, booking.currency)
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
    nudge("allocation.cycle")
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
    seconds = int((until - ends_of(booking)).total_seconds())
    _afford(booking, booking_cost(booking, seconds), now)


def _end_check(actor: Actor, booking: Booking, until: datetime) -> None:
    ends = ends_of(booking)
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


def _afford(booking: Booking, extra: Decimal, now: datetime) -> None:
    effect = budget_effect(project_id=booking.project_id, at=ends_of(booking))
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


def _over(booking: Booking) -> Refused:
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
