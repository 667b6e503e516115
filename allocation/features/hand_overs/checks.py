"""Whether a booking can get another owner: its state, and the limits of the person who gets it."""

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from datetime import datetime

from django.db.models import QuerySet

from allocation.models import Allocation, Booking
from allocation.rules.ask import AskDocument
from allocation.rules.states import State
from allocation.services.bookings.approval.requests import rules_in_force, rules_met
from allocation.services.bookings.change_rows import is_change_open
from allocation.services.bookings.checks.admission import Admission, Asker, admitted
from allocation.services.bookings.checks.persons import open_refusals
from allocation.services.bookings.checks.policy_hook import request_ask
from allocation.services.bookings.checks.quota import tiers_read
from allocation.services.bookings.checks.terms import hold_of
from allocation.services.bookings.departures import growth_check
from allocation.services.bookings.requests import BookingRequest
from allocation.services.record.refusals import refusal
from allocation.services.record.terms import terms_of
from allocation.services.record.workloads import has_run
from allocation.services.snapshot.quota_rows import tiers_of
from allocation.services.snapshot.snapshot import limits_read, seconds
from allocation.words.refusals import refusal_text
from billing.services import HoldRequest, hold_release, holds_place
from billing.services.guardrails import new_bookings_refusal
from solver import Quota, Snapshot, Use
from tenants.access import Actor
from tenants.platform.errors import Refused

NOT_BEGUN = (State.REQUESTED, State.QUEUED, State.SCHEDULED)
_PERSONS = frozenset({"persons", "overrides"})


def hand_over_fault(booking: Booking) -> str:
    """Returns the code of why a booking can't be handed over; empty: it can."""
    faults = {
        "hand_over_begun": booking.state not in NOT_BEGUN or has_run(booking),
        "hand_over_group": booking.series_id is not None or booking.array_id is not None,
        "hand_over_share": booking.ask.get("share") is not None,
        "hand_over_personal": bool(booking.approved_hash) or booking.has_override,
    }
    return next((code for code, is_so in faults.items() if is_so), "")


def hand_over_check(booking: Booking) -> None:
    """Checks a booking that is to be handed over.

    Raises:
        Refused: `hand_over_begun`, `hand_over_group`, `hand_over_share`, `hand_over_personal`,
            `hand_over_change_open`, `owner_left`, or `not_allowed` (a closed project).
    """
    code = hand_over_fault(booking)
    if not code and is_change_open(booking):
        code = "hand_over_change_open"
    if code:
        raise Refused(code, refusal_text(code, label=booking.label))
    growth_check(booking)


def limits_check(actor: Actor, booking: Booking, now: datetime) -> None:
    """Checks a booking by the rules that a new one of the actor would meet, with its start.

    Raises:
        Refused: by a rule of requests that looks at the person, `hand_over_needs_approval`,
            `person_quota`, or by the ladder of a budget.
    """
    _hook_check(actor, booking, now)
    project, ask = booking.project, AskDocument.from_json(booking.ask)
    try:
        found = admitted(
            project, booking.tier_id, ask, now, Asker(actor.user_id, booking, zone=actor.time_zone)
        )
    except Refused as refused:
        # What would work is another booking, which this is not.
        raise replace(refused, alternatives=()) from refused
    theirs = copy(booking)
    theirs.owner_id = actor.user_id
    for over in open_refusals({booking.id: theirs}, {booking.id: found.use}).values():
        raise replace(over, alternatives=())
    _approval_check(actor, theirs, found, now)
    if booking.state == State.SCHEDULED:
        _quota_check(actor, booking, now)
    starts = booking.planned_starts or booking.not_before
    stopped = new_bookings_refusal(project, actor.user_id, booking.campaign_id, starts)
    if stopped is not None:
        raise stopped


def money_move(booking: Booking, person_id: int, now: datetime) -> None:
    """Holds a booking's money for another person, in the same project.

    Raises:
        Refused: `no_budget` or `budget_exceeded`, also of a budget of the person.
    """
    request = replace(_held(booking), person_id=person_id)
    hold_release(tenant_id=booking.tenant_id, reference=booking.id, now=now)
    refused = holds_place(
        tenant_id=booking.tenant_id, project_id=booking.project_id, requests=[request], now=now
    )
    for why in refused.values():
        raise why


def _held(booking: Booking) -> HoldRequest:
    """What is held now: for the planned time, where the cycle has moved it there."""
    request = hold_of(booking, terms_of(booking))
    starts, ends = booking.planned_starts, booking.planned_ends
    if booking.state == State.SCHEDULED and starts is not None and ends is not None:
        return replace(request, starts=starts, ends=ends)
    return request


def _hook_check(actor: Actor, booking: Booking, now: datetime) -> None:
    """Asks the policy hook of the organisation, if it has one, about a request of the actor."""
    request = BookingRequest(
        project=booking.project.slug,
        tier=booking.tier_id,
        ask=AskDocument.from_json(booking.ask),
        name=booking.name,
        request_text=booking.request_text,
        campaign=booking.campaign.name if booking.campaign else "",
        labels=booking.labels,
        external_ref=booking.external_ref,
    )
    more = {"hand_over": {"booking": booking.label, "giver": booking.owner.username}}
    found = request_ask(actor, "hand_over", request, now, more)
    if (found.tier, found.ask) != (request.tier, request.ask):
        raise Refused("hand_over_hook", refusal_text("hand_over_hook", label=booking.label))


def _approval_check(actor: Actor, theirs: Booking, found: Admission, now: datetime) -> None:
    """Raises Refused `hand_over_needs_approval`."""
    rules = rules_in_force(actor, theirs.project_id)
    met = rules_met(rules, [theirs], {theirs.id: found.units}, now, are_new=True)
    if met:
        names = ", ".join(rule.name for rule in met)
        raise Refused("hand_over_needs_approval", refusal_text("hand_over_needs_approval", rules=names))


def _quota_check(actor: Actor, booking: Booking, now: datetime) -> None:
    """Raises Refused `person_quota` if the person has too much at the time of a placed booking. What
    is only planned is placed anew, by the limits of its owner."""
    limits = limits_read(now, _PERSONS, ())
    # The name of a person's node has a space.
    mine = tuple(row for row in limits["overrides"] if " " in row.owner)
    tiers = tiers_of(sorted(tiers_read(), key=lambda each: each.slug))
    persons, account = limits["persons"], str(actor.user_id)
    site = Snapshot(seconds(now), (), (), (), (), (), (), tiers, persons=persons, overrides=mine)
    quota = Quota(site, {})
    live = Allocation.objects.filter(state__in=Allocation.LIVE, tenant=booking.tenant_id)
    others = live.filter(booking__owner=actor.user_id).exclude(booking=booking)
    quota.add_all(_uses(quota, others, account))
    for use, window in _uses(quota, live.filter(booking=booking), account):
        block = quota.over(use, window, hours=False)
        if block is not None:
            numbers = {"gpu_class": use.gpu_class, "limit": block.most, "used": block.used}
            text = refusal_text("hand_over_quota", label=booking.label, **numbers)
            raise refusal("person_quota", text, "quota", owner="tenant_admin", numbers=numbers)
        quota.add(use, window)


def _uses(
    quota: Quota,
    rows: QuerySet[Allocation],
    account: str,
) -> Iterator[tuple[Use, tuple[int, int]]]:
    for row in rows.select_related("gpu", "booking").order_by("id"):
        booking = row.booking
        owners = quota.owners((str(booking.tenant_id), str(booking.project_id)), account)
        use = Use(owners, booking.tier_id, row.gpu.gpu_class_id, row.units)
        yield use, (seconds(row.period.lower), seconds(row.period.upper))
