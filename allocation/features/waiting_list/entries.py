"""Entries of the waiting list: what bookings wait for if their windows are full, and changes of it."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.db import connection, transaction

from allocation.features.waiting_list.models import WaitEntry
from allocation.features.waiting_list.offers import approval_refuse
from allocation.features.waiting_list.queries import access_wait_entry
from allocation.models import Booking, WaitMode
from allocation.points.bookings import Waits, Windows
from allocation.rules.ask import AskDocument
from allocation.rules.changes import MOST_WAITING, Strength, strength_of
from allocation.rules.states import State
from allocation.services.bookings.approval.changes import approval_needed
from allocation.services.bookings.change.waiting import too_many
from allocation.services.bookings.change.writer import ChangeWriter
from allocation.services.bookings.checks.terms import hold_of, stronger_terms, weaker_terms
from allocation.services.bookings.creation import booking_request
from allocation.services.bookings.departures import growth_check
from allocation.services.bookings.request_text import project_named, request_read
from allocation.services.bookings.requests import BookingRequest
from allocation.services.record.history import Event
from allocation.services.record.refusals import refusal
from allocation.services.record.terms import booking_with
from allocation.services.runs.transition import Change, booking_change, booking_lock, bookings_change
from allocation.words.events import event_text
from allocation.words.refusals import refusal_text
from tenants.access import Actor
from tenants.outbox import task_request
from tenants.platform.errors import Refused, invalid
from tenants.platform.terms import term, terms

USUAL_TIER = "standard"


@terms
class OfferAskTerms:
    """A booking that is offered in one of several windows."""

    request: str = term("What, and for how long", example="4 h100 for 6h", max_length=200)
    project: str = term("Project", max_length=40)
    since_1: datetime | None = term("Any time from", asks="moment", default=None)
    until_1: datetime | None = term("until", asks="moment", default=None)
    since_2: datetime | None = term("Or from (second time)", asks="moment", default=None)
    until_2: datetime | None = term("until (second time)", asks="moment", default=None)
    since_3: datetime | None = term("Or from (third time)", asks="moment", default=None)
    until_3: datetime | None = term("until (third time)", asks="moment", default=None)

    def windows(self) -> Windows:
        """The windows that are given, in UTC. Raises Refused."""
        pairs = (
            (self.since_1, self.until_1),
            (self.since_2, self.until_2),
            (self.since_3, self.until_3),
        )
        found = []
        for number, (since, until) in enumerate(pairs, 1):
            if since is None and until is None:
                continue
            if since is None or until is None:
                name = "since" if since is None else "until"
                raise invalid("not_a_time", refusal_text("time_example"), f"{name}_{number}")
            if until <= since:
                raise invalid("bad_windows", refusal_text("window_backward"), f"until_{number}")
            found.append((since.astimezone(UTC), until.astimezone(UTC)))
        if not found:
            raise invalid("bad_windows", refusal_text("window_missing"), "since_1")
        return tuple(found)


def offer_ask(*, actor: Actor, terms: OfferAskTerms, now: datetime) -> Booking:
    """Puts a booking on the list that is offered in one of the windows.

    Raises:
        Refused: the request or a window can't be read, or as `booking_request`.
    """
    named = project_named(actor, terms.project)
    ask, tier = request_read(terms.request, project=named, zone=actor.time_zone, now=now)
    wanted = BookingRequest(
        project=terms.project,
        tier=tier or USUAL_TIER,
        ask=ask,
        zone=actor.time_zone,
        request_text=terms.request,
        waitlist=WaitMode.OFFER,
        windows=terms.windows(),
    )
    return booking_request(actor=actor, request=wanted, now=now)


def waits_of(
    actor: Actor, bookings: Mapping[UUID, Booking], windows: Mapping[UUID, Windows], now: datetime
) -> Waits:
    """Returns what new bookings wait for. Without `windows` a booking waits for its own."""
    entries: list[WaitEntry] = []
    refused: dict[UUID, Refused] = {}
    waiting = {key: booking for key, booking in bookings.items() if booking.waitlist}
    slots = _free_slots(actor) if waiting else []
    for key, booking in waiting.items():
        mine = windows.get(key) or _own_window(booking)
        problem = _entry_problem(booking, mine, now) or (None if slots else too_many())
        if problem is not None:
            refused[key] = problem
            continue
        length = timedelta(seconds=booking.duration_seconds)
        entries.append(
            WaitEntry(
                tenant_id=booking.tenant_id,
                booking=booking,
                owner_id=booking.owner_id,
                mode=booking.waitlist,
                slot=slots.pop(0),
                windows=[[since.isoformat(), until.isoformat()] for since, until in mine],
                until=max(until for _, until in mine) - length,
                cost=booking.hold_amount,
                created_at=now,
            )
        )
        if booking.waitlist == WaitMode.OFFER:
            # Nothing is held before an offer is accepted.
            booking.hold_amount = Decimal(0)

    def write(written: Collection[UUID]) -> None:
        rows = [entry for entry in entries if entry.booking_id in written]
        WaitEntry.objects.bulk_create(rows)
        _offers_await(actor, [row for row in rows if row.mode == WaitMode.OFFER], now)

    return Waits(refused, write)


def _offers_await(actor: Actor, entries: Sequence[WaitEntry], now: datetime) -> None:
    """Puts new bookings that wait for an offer on the waiting list."""
    for entry in entries:
        approval_refuse(actor, entry.booking, entry.cost, now)
    event = Event("waitlisted", event_text("awaits_offer"), actor.user_id)
    bookings_change([Change(entry.booking, event, State.WAITLISTED) for entry in entries], now=now)


def _own_window(booking: Booking) -> Windows:
    if booking.starts is None:
        return ()
    return ((booking.starts, booking.starts + timedelta(seconds=booking.duration_seconds)),)


def _entry_problem(booking: Booking, windows: Windows, now: datetime) -> Refused | None:
    """Why a booking can't wait for these windows; None: it can."""
    length = timedelta(seconds=booking.duration_seconds)
    if booking.series_id is not None or booking.array_id is not None:
        return invalid("wait_in_series", refusal_text("wait_in_series"), "if_full")
    if not windows or (booking.waitlist == WaitMode.AUTO and booking.starts is None):
        return invalid("wait_needs_window", refusal_text("wait_needs_window"), "if_full")
    if booking.ask.get("groups") and booking.waitlist == WaitMode.OFFER:
        return invalid("wait_mixed", refusal_text("wait_mixed"), "if_full")
    if booking.class_durations or booking.ask.get("workload"):
        return invalid("wait_needs_length", refusal_text("wait_needs_length"), "if_full")
    if all(until - length <= max(now, since - length) for since, until in windows):
        return invalid("wait_too_late", refusal_text("wait_too_late"), "if_full")
    return None


def _free_slots(actor: Actor) -> list[int]:
    """The slots that a person has left, under a lock that lasts as long as the transaction."""
    with connection.cursor() as cursor:
        key = f"waitlist {actor.tenant_id} {actor.user_id}"
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [key])
    open_entries = WaitEntry.objects.filter(
        tenant_id=actor.tenant_id, owner=actor.user_id, slot__isnull=False
    )
    taken = set(open_entries.values_list("slot", flat=True))
    return [slot for slot in range(1, MOST_WAITING + 1) if slot not in taken]


def waiting_change(writer: ChangeWriter, request_text: str) -> Booking:
    """Replaces what a locked booking on the list waits for. If it is more than before, it ranks as
    asked for now. An entry that got no more offers gets them again.

    Raises:
        Refused: `offer_open` while it has an offer, `approval_needed`, `wait_needs_window`,
            `wait_needs_length`, `wait_too_late`, or by the rule that the request breaks.
    """
    booking, now = writer.booking, writer.now
    if booking.state == State.OFFERED:
        raise Refused("offer_open", refusal_text("offer_open", label=booking.label))
    entry = WaitEntry.objects.select_for_update().get(booking=booking)
    is_weaker = strength_of(writer.old, writer.new) is Strength.WEAKER
    facts: dict[str, object] = {} if is_weaker else {"ranked_at": now}
    if is_weaker and entry.mode == WaitMode.AUTO:
        terms = weaker_terms(booking, writer.new, request_text)
    else:
        terms = stronger_terms(booking, writer.new, request_text, now)
    needed = approval_needed(writer.actor, booking, terms, now)
    if needed is not None:
        names = ", ".join(rule["name"] for rule in needed.named)
        sentence = refusal_text("offer_needs_approval", rules=names)
        raise refusal("approval_needed", sentence, "conflict", "request")
    _entry_follow(entry, booking_with(booking, terms), now)
    change = writer.row(terms, Strength.WEAKER if is_weaker else Strength.STRONGER)
    change.restores = {}
    if entry.mode == WaitMode.OFFER:
        # Nothing is held before an offer is accepted.
        facts["hold_amount"] = 0
        writer.store(terms, Strength(change.strength), change, **facts)
    else:
        request = hold_of(booking, terms)
        writer.hold_delta(change, request)
        writer.store(terms, Strength(change.strength), change, **facts)
        writer.exchange(request, change)
    entry.cost, entry.expired_count = terms.hold_amount, 0
    entry.save(update_fields=["windows", "until", "cost", "expired_count"])
    task_request("allocation.cycle")
    return booking


def entry_wake(*, actor: Actor, entry_id: UUID, now: datetime) -> WaitEntry:
    """Makes an entry get offers again after two that nobody answered. Idempotent.

    Raises:
        Refused: `not_found`, `not_allowed`, or `entry_over`.
    """
    with transaction.atomic():
        found = access_wait_entry(actor, entry_id)
        booking = booking_lock(found.booking_id, "project", "tier", "owner")
        entry = WaitEntry.objects.select_for_update().get(id=found.id)
        if entry.slot is None:
            raise Refused("entry_over", refusal_text("entry_over", label=booking.label))
        if entry.is_dormant:
            growth_check(booking)
            entry.expired_count = 0
            entry.save(update_fields=["expired_count"])
            text = event_text("entry_woken", actor=actor.name)
            booking_change(booking, event=Event("changed", text, actor.user_id), now=now)
            task_request("allocation.cycle")
    return entry


def _entry_follow(entry: WaitEntry, changed: Booking, now: datetime) -> None:
    """Gives an entry the windows of the changed booking: its own, or those that it had."""
    length = timedelta(seconds=changed.duration_seconds)
    windows = tuple(entry.times)
    if AskDocument.from_json(changed.ask).starts is not None and changed.starts is not None:
        windows = ((changed.starts, changed.starts + length),)
    problem = _entry_problem(changed, windows, now)
    if problem is not None:
        raise problem
    entry.windows = [[since.isoformat(), until.isoformat()] for since, until in windows]
    entry.until = max(until for _, until in windows) - length
