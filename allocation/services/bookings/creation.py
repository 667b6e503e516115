"""New bookings: admitted, priced and written with their hold. Only a cycle places them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import islice
from uuid import UUID, uuid4

from django.db import transaction

from allocation.models import (
    Booking,
    BookingArray,
    BookingEvent,
    Series,
    WaitMode,
)
from allocation.points import diverted
from allocation.points.bookings import NEW_WAITS
from allocation.queries.fleet.catalogue import ask_units
from allocation.rules.ask import MIN_DURATION_SECONDS, AskDocument
from allocation.rules.states import State
from allocation.rules.workload_names import workload_named
from allocation.services.bookings.approval.requests import (
    Rule,
    approvals_request,
    budget_rule,
    rules_in_force,
    rules_met,
)
from allocation.services.bookings.checks.admission import Admission, Asker
from allocation.services.bookings.checks.admission import admitted as admitted_by_rules
from allocation.services.bookings.checks.admission_check import admission_check
from allocation.services.bookings.checks.offers import Offer, offer_price, peak_facts, priced_from, rate_for
from allocation.services.bookings.checks.persons import open_refusals, with_open_remedies
from allocation.services.bookings.checks.policy_hook import request_ask
from allocation.services.bookings.checks.remedies import shares_within, with_remedies
from allocation.services.bookings.requests import BookingRequest
from allocation.services.overrides.use import overrides_take
from allocation.services.record.history import Event, events_add
from allocation.words.events import event_text
from billing.models import Campaign
from billing.price_books import PriceShelf
from billing.rules import money_text
from billing.services import HoldRequest, campaign_to_charge, new_holds_check, new_holds_place
from billing.services.guardrails import STOPPING
from tenants.access import Actor, access_project_to_book
from tenants.audit import audit_entry, audit_write
from tenants.models import AuditEntry, Project
from tenants.outbox import task_request
from tenants.platform.errors import Refused
from tenants.platform.rows import rows_write
from tenants.services.booking_numbers import booking_numbers_take

# Of a batch of a thousand, so many refusals say what would work: each trial costs as much as a booking.
MOST_TRIED = 3


@dataclass(frozen=True, slots=True)
class AdmittedRequest:
    """A request that passed admission, with its price. With an `array` it is its first element."""

    project: Project
    request: BookingRequest
    admission: Admission
    offer: Offer
    series: Series | None = None
    campaign: Campaign | None = None
    array: BookingArray | None = None


def booking_request(
    *, actor: Actor, request: BookingRequest, now: datetime, booking_id: UUID | None = None
) -> Booking:
    """Creates a booking: refuses what can never fit, holds the money and requests a cycle.

    `booking_id` lets a retry find the row of its first attempt.

    Raises:
        Refused: by any request rule of the catalogue; nothing is written then.
    """
    with transaction.atomic():
        return booking_create(actor, request, now, booking_id or uuid4())


def booking_create(actor: Actor, request: BookingRequest, now: datetime, booking_id: UUID) -> Booking:
    """Does the same as `booking_request` in the caller's transaction, which has to end on a
    refusal."""
    project = access_project_to_book(actor, request.project, "project")
    act = "waiting" if request.waitlist == WaitMode.OFFER else "booking"
    request = by_cost(project, request_ask(actor, act, request, now), now)
    admission = admission_check(
        project=project,
        tier_slug=request.tier,
        ask=request.ask,
        now=now,
        asker=Asker(actor.user_id, zone=request.zone),
    )
    admitted = AdmittedRequest(
        project,
        request,
        admission,
        offer_price(admission, PriceShelf.read(request.priced_at or now)),
        campaign=campaign_to_charge(project, request.campaign, request.labels, request.external_ref),
    )
    (answer,) = bookings_create(actor, {booking_id: admitted}, now).values()
    if isinstance(answer, Refused):
        raise answer
    return answer


def by_cost(project: Project, request: BookingRequest, now: datetime) -> BookingRequest:
    """The request as its project has it ordered: by what its workload costs on its classes."""
    ask = request.ask
    name = workload_named(request.name, request.labels, {"workload": ask.workload})

    def prices() -> dict[str, tuple[Decimal, str]]:
        units, book = ask_units(ask), PriceShelf.read(now).on(priced_from(ask, now))
        known = {each: book.get((each, request.tier)) for each in units}
        return {
            each: (rate_for(price, ask, units[each]).plain, price.currency)
            for each, price in known.items()
            if price is not None
        }

    found = diverted(project, name, ask, prices, now)
    if found is None:
        return request
    event = Event("diverted", event_text("diverted", **found.facts), detail=found.detail)
    return replace(request, ask=replace(ask, workload=found.workload), diversion=event)


def bookings_create(
    actor: Actor, requests: Mapping[UUID, AdmittedRequest], now: datetime
) -> dict[UUID, Booking | Refused]:
    """Writes admitted bookings of one project and holds their money.

    Many take as few statements as one. Those that the budget does not cover (`no_budget`,
    `budget_exceeded`), or that can't wait for a window as they ask to, are refused and not written.
    """
    rows = {key: _booking_of(actor, admitted, now, key) for key, admitted in requests.items()}
    allowed, beyond = _within_limits(actor, rows, requests)
    windows = {key: admitted.request.windows for key, admitted in requests.items()}
    rows = allowed
    waits = [wait(actor, rows, windows, now) for wait in NEW_WAITS]
    unlisted = {key: why for each in waits for key, why in each.refused.items()}
    rows = {key: row for key, row in rows.items() if key not in unlisted}
    if not rows:
        return {**beyond, **unlisted}
    (project_id,) = {row.project_id for row in rows.values()}
    units = {key: requests[key].admission.units for key in rows}
    # Before the hold, from which on others wait for the same budget.
    rules = _rules_met(actor, project_id, rows.values(), units, now)
    held = new_holds_place(
        tenant_id=actor.tenant_id,
        project_id=project_id,
        requests=[_hold_of(row, requests[key]) for key, row in rows.items()],
        now=now,
    )
    written = [row for key, row in rows.items() if key not in held.refused]
    for row in written:
        restraint = held.restraints.get(row.id, "")
        row.is_drained = restraint in STOPPING
        row.may_borrow = restraint != "no_borrowing"
    if written:
        _numbers_give(actor.tenant_id, written)
        rows_write(written)
        overrides_take({row.id: requests[row.id].admission.overrides for row in written})
        events_add([e for row in written for e in _first_events(actor, row, requests, now)])
        audit_write([_audit_entry(actor, "booking.request", row, now) for row in written])
        for each in waits:
            each.write({row.id for row in written})
        if held.refused:
            # The others ask for less together.
            rules = _rules_met(actor, project_id, written, units, now)
        rules = [*rules, *(budget_rule(*rung) for rung in held.asking)]
        approvals_request(actor, _asking(written), rules, now)
        task_request("allocation.cycle")
    return {**rows, **_with_cheaper(actor, requests, held.refused, now), **beyond, **unlisted}


def bookings_check(actor: Actor, requests: Mapping[UUID, AdmittedRequest], now: datetime) -> None:
    """Checks admitted bookings of one project together by the limits for a person and the figures of their
    budgets, and writes nothing.

    Raises:
        Refused: as the first that `bookings_create` would refuse.
    """
    rows = {key: _booking_of(actor, admitted, now, key) for key, admitted in requests.items()}
    for refused in open_refusals(rows, {key: each.admission.use for key, each in requests.items()}).values():
        raise refused
    new_holds_check(
        tenant_id=actor.tenant_id,
        project_id=next(iter(rows.values())).project_id,
        requests=[_hold_of(row, requests[key]) for key, row in rows.items()],
    )


def _within_limits(
    actor: Actor, rows: Mapping[UUID, Booking], requests: Mapping[UUID, AdmittedRequest]
) -> tuple[dict[UUID, Booking], dict[UUID, Refused]]:
    """The new bookings that the limits for a person allow, and the refusals of the others."""
    refused = open_refusals(rows, {key: each.admission.use for key, each in requests.items()})
    allowed = {key: row for key, row in rows.items() if key not in refused}
    for key, why in islice(refused.items(), MOST_TRIED):
        if requests[key].series is not None:
            continue
        asker, use = _asker_of(actor, requests[key]), requests[key].admission.use
        refused[key] = with_open_remedies(why, rows[key], allowed, asker, use)
    return allowed, refused


def _with_cheaper(
    actor: Actor, requests: Mapping[UUID, AdmittedRequest], refused: Mapping[UUID, Refused], now: datetime
) -> Mapping[UUID, Refused]:
    """The refusals for money that is short; the first ones say what would work."""
    tried = {key: _cheaper(actor, requests[key], refused[key], now) for key in islice(refused, MOST_TRIED)}
    return {**refused, **tried}


def _cheaper(actor: Actor, admitted_request: AdmittedRequest, why: Refused, now: datetime) -> Refused:
    """The refusal with a shorter or smaller booking and the tiers that the money is enough for: each
    is admitted, and checked by the figures of its budgets."""
    ask, request = admitted_request.admission.ask, admitted_request.request
    left, needs = (Decimal(why.numbers.get(name, 0)) for name in ("left", "needs"))
    is_one = admitted_request.series is None and admitted_request.array is None
    is_short = why.code == "budget_exceeded" and 0 < left < needs
    if not is_one or not (is_short or why.code == "no_budget"):
        return why
    offers: list[dict[str, int]] = []
    if is_short:
        fixed = min(admitted_request.offer.price.setup, left)
        lengths = (int(ask.duration * part) // 60 * 60 for part in shares_within(left - fixed, needs - fixed))
        offers += [{"duration": each} for each in lengths if each >= MIN_DURATION_SECONDS]
        fewer = int(ask.count * (left - fixed) / (needs - fixed))
        offers += [{"count": fewer}] if fewer and not ask.groups else []

    asker = _asker_of(actor, admitted_request)

    def try_it(tier: str, other: AskDocument) -> None:
        found = admitted_by_rules(admitted_request.project, tier, other, now, asker)
        offer = offer_price(found, PriceShelf.read(request.priced_at or now))
        bookings_check(actor, {uuid4(): replace(admitted_request, admission=found, offer=offer)}, now)

    return with_remedies(replace(why, alternatives=offers), ask, admitted_request.admission.tier.slug, try_it)


def _asker_of(actor: Actor, admitted: AdmittedRequest) -> Asker:
    """Who asks; of a series or an array, for many bookings."""
    is_many = admitted.series is not None or admitted.array is not None
    return Asker(actor.user_id, is_many=is_many, zone=admitted.request.zone)


def _rules_met(
    actor: Actor,
    project_id: UUID,
    rows: Iterable[Booking],
    units: Mapping[UUID, Mapping[str, int]],
    now: datetime,
) -> list[Rule]:
    in_force = rules_in_force(actor, project_id)
    return rules_met(in_force, _asking(rows), units, now, are_new=True)


def _asking(rows: Iterable[Booking]) -> list[Booking]:
    """The new bookings that may have to wait for an approval; who waits for an offer asks later."""
    return [row for row in rows if row.waitlist != WaitMode.OFFER]


def _booking_of(actor: Actor, admitted: AdmittedRequest, now: datetime, key: UUID) -> Booking:
    admission, request, offer, ask = (
        admitted.admission,
        admitted.request,
        admitted.offer,
        admitted.admission.ask,
    )
    return Booking(
        id=key,
        tenant_id=actor.tenant_id,
        project=admitted.project,
        owner_id=actor.user_id,
        name=request.name,
        labels=dict(request.labels),
        external_ref=request.external_ref,
        tier=admission.tier,
        ask=ask.to_json(),
        request_text=request.request_text,
        zone=request.zone,
        duration_seconds=min(map(admission.seconds_on, admission.units)),
        starts=ask.starts,
        not_before=admission.not_before,
        deadline=ask.deadline,
        state=State.REQUESTED,
        submitted=now,
        series=admitted.series,
        array=admitted.array,
        array_index=None if admitted.array is None else 1,
        campaign=admitted.campaign,
        waitlist=request.waitlist,
        currency=offer.price.currency,
        price_version=offer.price.version,
        price_per_hour=offer.rate.plain,
        **peak_facts(offer.rate),
        hold_amount=offer.most,
        setup_fee=offer.price.setup,
        notice_seconds=admission.tier.notice_seconds,
        late_share=admission.tier.late_share,
        class_durations=list(offer.lengths),
        by_cost=request.diversion is not None,
    )


def _hold_of(booking: Booking, admitted: AdmittedRequest) -> HoldRequest:
    longest = timedelta(seconds=max(map(admitted.admission.seconds_on, admitted.admission.units)))
    return HoldRequest(
        booking.id,
        booking.hold_amount,
        booking.not_before,
        booking.not_before + longest,
        booking.owner_id,
        booking.campaign_id,
    )


def _numbers_give(tenant_id: UUID, bookings: Sequence[Booking]) -> None:
    for booking in bookings:
        if booking.array is not None:
            booking.number = booking.array.number
    bookings = [booking for booking in bookings if booking.array_id is None]
    if not bookings:
        return
    # The tenant's counter is locked last, so that other requests wait for it only briefly.
    first = booking_numbers_take(tenant_id, len(bookings))
    for number, booking in enumerate(bookings, first):
        booking.number = number


def _first_events(
    actor: Actor, booking: Booking, requests: Mapping[UUID, AdmittedRequest], now: datetime
) -> Iterator[BookingEvent]:
    held = money_text(booking.hold_amount, booking.currency)
    text = event_text("requested", actor=actor.name, held=held)
    yield Event("requested", text, actor.user_id).row(booking, now)
    request = requests[booking.id].request
    for event in (request.hook, request.diversion):
        if event is not None:
            yield event.row(booking, now)


def _audit_entry(actor: Actor, action: str, booking: Booking, now: datetime) -> AuditEntry:
    return audit_entry(
        tenant_id=booking.tenant_id,
        actor_id=actor.user_id,
        action=action,
        target=("booking", booking.id),
        now=now,
        detail={"label": booking.label, "state": booking.state},
    )
