"""Asks the organisation's policy hook about new requests and stronger changes.

The hook is asked before admission, so what it changes is admitted like any other request.
It never widens rights: another tier must be open to the asker, and a window inside the asked one.
What it answered is kept as an event of each booking; a later cycle or replay never asks it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from allocation.models import Booking
from allocation.queries.fleet.catalogue import ask_units
from allocation.rules.ask import AskDocument, time_text
from allocation.rules.changes import Target
from allocation.rules.states import ON_WAITLIST, RUNNING, State
from allocation.services.bookings.checks.offers import (
    most_of,
    priced_from,
    rate_for,
    rate_of_all,
)
from allocation.services.bookings.checks.terms import target_of
from allocation.services.bookings.checks.tiers import TierUse, audience_check, classes_within
from allocation.services.bookings.requests import BookingRequest
from allocation.services.record.history import Event
from allocation.services.record.refusals import refusal
from allocation.services.record.workloads import has_run
from allocation.words.events import event_text
from allocation.words.refusals import refusal_text
from billing.price_books import PriceShelf
from billing.queries import tightest_figures
from billing.services import campaign_to_charge
from tenants.access import Actor, access_project_to_book
from tenants.models import Tier
from tenants.platform.errors import Refused
from tenants.rules.policy_hooks import Decision
from tenants.services.policy_hooks.questions import HookAnswer, HookItem, hook_consult

_TIER_BEGUN = "{} has begun, so it keeps its tier."
_WINDOW_BEGUN = "{} has begun, so it has no window any more."
_FIXED = "The start of this request is fixed, so its window can't change."


def requests_ask(
    actor: Actor,
    act: str,
    requests: Sequence[BookingRequest],
    now: datetime,
    more: Mapping[str, Any] | None = None,
) -> list[BookingRequest | Refused]:
    """Asks about new requests in one call; returns them as they count, in order. `more` is sent
    with each. Without a hook they are the same.

    Raises:
        HookQuestion: Nobody was asked yet; see `hook_asking`.
    """

    def items() -> list[HookItem]:
        return [_item(actor, each, more or {}, now) for each in requests]

    answers = hook_consult(actor, act, items, now)
    if answers is None:
        return list(requests)
    return [_answered(each, said) for each, said in zip(requests, answers, strict=True)]


def request_ask(
    actor: Actor,
    act: str,
    request: BookingRequest,
    now: datetime,
    more: Mapping[str, Any] | None = None,
) -> BookingRequest:
    """As `requests_ask`, about one.

    Raises:
        Refused: `policy_hook_denied` or `policy_hook_failed`.
    """
    (found,) = requests_ask(actor, act, [request], now, more)
    if isinstance(found, Refused):
        raise found
    return found


def changes_ask(
    actor: Actor, changes: Sequence[tuple[Booking, Target]], now: datetime
) -> list[tuple[Target, Event]] | None:
    """Asks about stronger changes of bookings in one call; returns the targets as they count, each
    with the event that records the answer. None without a hook.

    Raises:
        HookQuestion, Refused: as `request_ask`. One denial denies all.
    """

    def items() -> list[HookItem]:
        return [_change_item(*each, now) for each in changes]

    answers = hook_consult(actor, "change", items, now)
    if answers is None:
        return None
    for said in answers:
        if not said.decision.is_admitted:
            raise _refusal(said)
    return [_changed(new, said) for (_, new), said in zip(changes, answers, strict=True)]


def change_ask(actor: Actor, booking: Booking, new: Target, now: datetime) -> tuple[Target, Event | None]:
    """As `changes_ask`, about one; without a hook the target is the same."""
    found = changes_ask(actor, [(booking, new)], now)
    return (new, None) if found is None else found[0]


def _item(actor: Actor, request: BookingRequest, more: Mapping[str, Any], now: datetime) -> HookItem:
    data = {
        "project": request.project,
        "tier": request.tier,
        "ask": request.ask.to_json(),
        "request": request.request_text,
        "name": request.name,
        "campaign": request.campaign,
        "labels": dict(request.labels),
        "external_ref": request.external_ref,
        **hook_money(actor, request, now),
        **more,
    }
    return HookItem(data, lambda said: _fault(actor, request, said, now))


def _change_data(booking: Booking, new: Target, now: datetime) -> dict[str, Any]:
    old = target_of(booking)
    return {
        "project": booking.project.slug,
        "tier": new.tier,
        "ask": new.ask.to_json(),
        "name": new.name,
        "labels": booking.labels,
        "external_ref": booking.external_ref,
        **change_money(booking, new, now),
        "change": {
            "booking": booking.label,
            "tier": booking.tier_id,
            "ask": booking.ask,
            "cost": most_cost(old.ask, old.tier, now),
        },
    }


def _change_item(booking: Booking, new: Target, now: datetime) -> HookItem:
    is_listed = booking.state in ON_WAITLIST

    def use(tier: Tier) -> TierUse:
        return TierUse.of(booking.project, tier, booking.owner_id, booking, now)

    def fault(said: Decision) -> str:
        if _has_begun(booking) and said.tier not in ("", new.tier):
            return _TIER_BEGUN.format(booking.label)
        if _has_begun(booking) and said.has_window:
            return _WINDOW_BEGUN.format(booking.label)
        return _tier_fault(new.tier, new.ask, said.tier, use) or _window_fault(
            new.ask, said, now, is_fixed=is_listed
        )

    return HookItem(_change_data(booking, new, now), fault)


def _has_begun(booking: Booking) -> bool:
    begun = (*RUNNING, State.PAUSING, State.PAUSED)
    return booking.state in begun or has_run(booking)


def _fault(actor: Actor, request: BookingRequest, said: Decision, now: datetime) -> str:
    """Returns why the decision is not valid for the request; empty if it is."""

    def use(tier: Tier) -> TierUse:
        project = access_project_to_book(actor, request.project, "project")
        return TierUse.of(project, tier, actor.user_id, None, now)

    return _tier_fault(request.tier, request.ask, said.tier, use) or _window_fault(
        request.ask, said, now, is_fixed=bool(request.windows)
    )


def _tier_fault(asked: str, ask: AskDocument, slug: str, use: Callable[[Tier], TierUse]) -> str:
    if not slug or slug == asked:
        return ""
    tier = Tier.objects.filter(slug=slug).first()
    if tier is None:
        return f"There is no tier {slug!r}."
    try:
        found = use(tier)
        audience_check(found)
        classes_within(found, dict.fromkeys(ask.classes, 0))
    except Refused as refused:
        return refused.sentence
    return ""


def _window_fault(ask: AskDocument, said: Decision, now: datetime, *, is_fixed: bool) -> str:
    if not said.has_window:
        return ""
    if ask.starts is not None or is_fixed:
        return _FIXED
    earliest = max(ask.not_before or now, now)
    if said.not_before is not None and said.not_before < earliest:
        return f"`not_before` is before the window of the request, {time_text(earliest)}."
    if said.deadline is not None and ask.deadline is not None and said.deadline > ask.deadline:
        return f"`deadline` is after the window of the request, {time_text(ask.deadline)}."
    until = said.deadline or ask.deadline
    since = max(said.not_before or earliest, earliest)
    if until is not None and until < since + timedelta(seconds=ask.duration):
        return "The window is shorter than the request."
    return ""


def _answered(request: BookingRequest, answer: HookAnswer) -> BookingRequest | Refused:
    """The request as it counts after the answer."""
    if not answer.decision.is_admitted:
        return _refusal(answer)
    tier, ask, event = _moved(request.tier, request.ask, answer)
    return replace(request, tier=tier, ask=ask, hook=event)


def _changed(new: Target, answer: HookAnswer) -> tuple[Target, Event]:
    """The target of a change as it counts after the answer."""
    tier, ask, event = _moved(new.tier, new.ask, answer)
    return replace(new, tier=tier, ask=ask), event


def _moved(tier: str, ask: AskDocument, answer: HookAnswer) -> tuple[str, AskDocument, Event]:
    """The tier and the request after a valid answer, and the event that says so."""
    said = answer.decision
    facts: dict[str, Any] = {}
    if said.tier and said.tier != tier:
        names = dict(Tier.objects.values_list("slug", "name"))
        facts |= {"from": names.get(tier, tier), "to": names[said.tier]}
    if said.has_window:
        facts["window"] = True
        since, until = said.not_before or ask.not_before, said.deadline or ask.deadline
        ask = replace(ask, not_before=since, deadline=until)
    return said.tier or tier, ask, _event(answer, facts)


def _event(answer: HookAnswer, facts: Mapping[str, Any]) -> Event:
    """The event: what the hook said, with the number of its call in the log."""
    said = answer.decision
    detail = {"call": f"phk_{answer.call.hex}"}
    window = {"not_before": said.not_before, "deadline": said.deadline}
    detail |= {name: moment.isoformat() for name, moment in window.items() if moment is not None}
    if "to" in facts:
        detail["tier"] = said.tier
    words = {"tenant": answer.tenant, "words": said.message}
    if answer.error:
        text = event_text("hook_passed", tenant=answer.tenant, error=answer.error)
    elif facts:
        moved = {"from": "", "to": "", "window": False, **facts}
        text = event_text("hook_moved", **words, **moved)
    else:
        text = event_text("hook_admitted", **words)
    return Event("policy_hook", text, detail=detail)


def _refusal(answer: HookAnswer) -> Refused:
    facts, numbers = {"tenant": answer.tenant}, {"call": f"phk_{answer.call.hex}"}
    if answer.error:
        # Not a rule about the request: the same one can be admitted a moment later.
        return Refused(
            "policy_hook_failed",
            refusal_text("policy_hook_failed", **facts),
            param="request",
            owner="tenant_admin",
            numbers=numbers,
        )
    sentence = refusal_text("policy_hook_denied", **facts, words=answer.decision.message)
    return refusal("policy_hook_denied", sentence, "conflict", "request", numbers=numbers)


def hook_money(actor: Actor, request: BookingRequest, now: datetime) -> dict[str, Any]:
    """Returns `cost` and `budget`, for JSON. `cost`: the most that the request can cost at the
    prices of its day, without what admission may still change. `budget`: the hard budget with the
    least money left of those that would pay. Each is None if there is none."""
    try:
        project = access_project_to_book(actor, request.project, "project")
        campaign = campaign_to_charge(project, request.campaign, request.labels, request.external_ref)
    except Refused:
        # Admission says why, to the person.
        return {"cost": None, "budget": None}
    campaign_id = campaign.id if campaign else None
    at = priced_from(request.ask, now)
    budget = _budget(project_id=project.id, person_id=actor.user_id, campaign_id=campaign_id, at=at)
    return {"cost": most_cost(request.ask, request.tier, now), "budget": budget}


def change_money(booking: Booking, new: Target, now: datetime) -> dict[str, Any]:
    """Returns `cost` and `budget` of a change, for JSON: the whole booking as changed, at the
    prices of its day, and the hard budget with the least money left of those that pay for its
    owner. What the booking already holds is not in the money left."""
    budget = _budget(
        project_id=booking.project_id,
        person_id=booking.owner_id,
        campaign_id=booking.campaign_id,
        at=priced_from(new.ask, now),
    )
    return {"cost": most_cost(new.ask, new.tier, now), "budget": budget}


def _budget(
    *, project_id: UUID, person_id: int, campaign_id: UUID | None, at: datetime
) -> dict[str, str] | None:
    figures = tightest_figures(project_id=project_id, person_id=person_id, campaign_id=campaign_id, at=at)
    if figures is None:
        return None
    return {
        "name": figures.name,
        "level": figures.level,
        "amount": str(figures.amount),
        "left": str(figures.left),
        "currency": figures.currency,
        "starts": figures.starts.isoformat(),
        "ends": figures.ends.isoformat(),
    }


def most_cost(ask: AskDocument, tier: str, now: datetime) -> dict[str, str] | None:
    """Returns the most that a request can cost at the prices of its day, for JSON; None if a class
    has no price."""
    prices = PriceShelf.read(now).on(priced_from(ask, now))
    known = {
        name: (price, rate_for(price, ask.on(name), units))
        for name, units in ask_units(ask).items()
        if (price := prices.get((name, tier))) is not None
    }
    if not known or (ask.groups and len(known) < len(ask.all_classes)):
        return None
    rates = [rate for _, rate in known.values()]
    if ask.groups:
        rates = [rate_of_all(rates)]
    most = max(most_of(rate, ask.starts, ask.duration) for rate in rates)
    setup = max((price.setup for price, _ in known.values()), default=Decimal(0))
    currency = next(iter(known.values()))[0].currency
    return {"most": str(most + setup), "currency": currency}
