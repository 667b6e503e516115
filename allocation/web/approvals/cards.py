"""A request for approval as its approvers read it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo

from allocation.access import deciding_refusal
from allocation.models import Approval, Booking, CounterOffer
from allocation.queries.bookings.approvals import PersonHistory, dates_of_series
from allocation.rules.ask import AskDocument
from allocation.rules.ask.line.text import document_text
from allocation.services.approvals.alternatives import Alternative
from allocation.services.approvals.briefings import Briefing, briefing_of, briefings_of
from allocation.services.approvals.effects import Effect, effect_seen
from allocation.services.bookings.approval.facts import booking_as_asked
from allocation.services.quotes.moves import Delay
from allocation.services.record.terms import Terms, terms_of
from allocation.web.bookings.dependencies import OF_ANOTHER
from allocation.web.bookings.page_context import PageContext
from allocation.web.bookings.summary import what_words
from allocation.web.parts.approvals import outcome_words, step_words
from allocation.web.parts.changes import difference_lines
from allocation.web.parts.times import length_words, moment_words, window_words
from billing.queries import BudgetFigures, tightest_figures
from billing.rules import cents_of, money_text, share_inside
from billing.web.budget_bar import Meter
from tenants.access import Actor
from tenants.models import Tier
from tenants.web.parts import counted

# Delayed bookings that a card names.
MOST_DELAYS = 5


@dataclass(frozen=True, slots=True)
class BudgetEffect:
    """The tightest budget that the booking counts in, with the booking's money as held."""

    of: str
    left: str
    before: str
    amount: str
    meter: Meter
    is_short: bool
    inside: str = ""
    """How much of the price falls into its days, if not all does."""


@dataclass(frozen=True, slots=True)
class CounterCard:
    """What an approver would approve instead."""

    digest: str
    person: str
    what: str
    changes: tuple[str, ...]
    price: str
    reason: str


@dataclass(frozen=True, slots=True)
class ApprovalCard:
    """One request. `refusal` says why the reader does not decide it; empty if they do."""

    approval: Approval
    digest: str
    href: str
    title: str
    label: str
    person: str
    what: str
    when: str
    tier: str
    price: str
    rules: str
    step: str
    decide_by: str
    history: str
    budget: BudgetEffect | None
    refusal: str
    state: str
    dates: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    start: str = ""
    others: tuple[str, ...] = ()
    alternative: str = ""
    counter: CounterCard | None = None
    may_counter: bool = False
    request: str = ""
    is_mine: bool = False


def cards_of(
    actor: Actor, approvals: Sequence[Approval], ctx: PageContext, with_effects: Sequence[Approval] = ()
) -> list[ApprovalCard]:
    """Returns a card for each request; dates of a series are one card. The effect on others and an
    alternative are computed for those `with_effects` that wait."""
    dates = dates_of_series(approvals)
    briefings = briefings_of(approvals, ctx.now, with_effects)
    budgets: dict[tuple[UUID, int, UUID | None], BudgetFigures | None] = {}
    cards = []
    for each in approvals:
        key = (each.project_id, each.asker_id, each.booking.campaign_id)
        if key not in budgets:
            budgets[key] = tightest_figures(
                project_id=each.project_id,
                person_id=each.asker_id,
                campaign_id=each.booking.campaign_id,
                at=max(ctx.now, each.booking.not_before),
            )
        together = dates.get(each.id, [each])
        bookings = [_asked(row) for row in together]
        found = briefings[each.id]
        found = replace(found, effect=effect_seen(actor, found.effect))
        cards.append(_card(actor, each, bookings, (found, budgets[key]), ctx))
    return cards


@dataclass(frozen=True, slots=True)
class RequestWords:
    """A request in sentences, for a mail."""

    person: str
    sentences: tuple[str, ...]


def request_words(approval: Approval, ctx: PageContext) -> RequestWords:
    """Returns who asks for what, where, at what price, and by which rule it needs an approval."""
    booking, person = _asked(approval), approval.asker.display_name
    together = dates_of_series([approval]).get(approval.id, [approval])
    cost = sum((_asked(each).hold_amount for each in together), Decimal(0))
    what = what_words(AskDocument.from_json(booking.ask), ctx.labels)
    dates = f", {len(together)} dates" if len(together) > 1 else ""
    rules = ", ".join(rule["name"] for rule in approval.rules)
    briefing = briefing_of(approval, ctx.now, is_system=True)
    effect = effect_seen(None, briefing.effect)
    start = _start(effect, approval.booking, ctx)
    more = [f"{start}."] if start else []
    if effect is not None:
        more.append(f"{'; '.join(_others(effect))}.")
    if briefing.alternative is not None:
        more.append(f"Without an approval: {_alternative(briefing.alternative, booking, ctx)}.")
    more.append(f"{person}: {_history(briefing.history, booking.currency)}.")
    requested = f"asked to change {booking.label} to" if approval.change else "requested"
    return RequestWords(
        person,
        (
            f"{person} {requested} {what} in {approval.project.name}: {_when(booking, ctx)}{dates}.",
            f"It costs {money_text(cost, booking.currency)} at most, which is held already.",
            f"It needs an approval by the rule {rules}.",
            *more,
        ),
    )


def first_dates(approvals: Iterable[Approval]) -> list[Approval]:
    """Returns the requests with only the first date of each series."""
    seen: set[tuple[UUID, datetime]] = set()
    found = []
    for each in approvals:
        if each.series_id is not None:
            if (each.series_id, each.asked) in seen:
                continue
            seen.add((each.series_id, each.asked))
        found.append(each)
    return found


def _card(
    actor: Actor,
    approval: Approval,
    bookings: Sequence[Booking],
    known: tuple[Briefing, BudgetFigures | None],
    ctx: PageContext,
) -> ApprovalCard:
    booking, (briefing, budget) = _asked(approval), known
    change = approval.change
    refusal = deciding_refusal(actor, approval, ctx.now)
    cost = sum((each.hold_amount for each in bookings), Decimal(0))
    added = change.delta_held if change is not None else cost
    many = f"Step {approval.step} of {len(approval.steps)}: " if len(approval.steps) > 1 else ""
    return ApprovalCard(
        approval=approval,
        digest=approval.digest,
        href=f"{ctx.base}approvals/{approval.id}",
        title=booking.name or booking.label,
        label=booking.label,
        person=approval.asker.display_name,
        what=what_words(AskDocument.from_json(booking.ask), ctx.labels),
        when=_when(booking, ctx),
        tier=booking.tier.name,
        price=money_text(cost, booking.currency),
        rules=", ".join(rule["name"] for rule in approval.rules),
        step=f"{many}{step_words(approval.present_step, approval.project.name)}",
        decide_by=moment_words(approval.decide_by, ctx.zone, ctx.now),
        history=_history(briefing.history, booking.currency),
        budget=None if budget is None else _budget(budget, added, bookings, approval),
        refusal=refusal.sentence if refusal else "",
        state=outcome_words(approval, ctx.zone, ctx.now),
        dates=tuple(_when(each, ctx) for each in bookings) if len(bookings) > 1 else (),
        changes=tuple(difference_lines(change.differences, ctx.zone, ctx.now)) if change else (),
        start=_start(briefing.effect, approval.booking, ctx),
        others=_others(briefing.effect),
        alternative=_alternative(briefing.alternative, booking, ctx),
        counter=None if briefing.counter is None else _counter(briefing.counter, ctx),
        request=document_text(AskDocument.from_json(booking.ask), ZoneInfo(booking.zone)),
        may_counter=change is None or approval.series_id is None,
        is_mine=approval.asker_id == actor.user_id,
    )


def _start(effect: Effect | None, booking: Booking, ctx: PageContext) -> str:
    """`If approved by 13:45: starts today 14:00`: what an approval would give. The place that is kept is the
    one that the booking's page and REST name, which can be later."""
    if effect is None:
        return ""
    if effect.starts is None:
        return "If approved now: no start can be planned yet"
    words = moment_words(effect.starts, ctx.zone, ctx.now)
    held, until = booking.planned_starts, booking.place_until
    if held is not None and until is not None and until > ctx.now:
        by = moment_words(until, ctx.zone, ctx.now)
        if held == effect.starts:
            return f"If approved by {by}: starts {words}"
        kept = moment_words(held, ctx.zone, ctx.now)
        return f"If approved now: starts {words}; a place {kept} is kept until {by}"
    return f"If approved now: starts {words}; no place is kept for it"


def _others(effect: Effect | None) -> tuple[str, ...]:
    """Whose bookings would start later, in words."""
    if effect is None:
        return ()
    if not effect.delays and not effect.pauses:
        return ("No booking of your organisation starts later",)
    found = []
    if effect.delays:
        count = len(effect.delays)
        named = ", ".join(_delay(each) for each in effect.delays[:MOST_DELAYS])
        many = counted(count, "booking")
        found.append(f"Delays {many} of your organisation: {named}")
    if effect.pauses:
        found.append(f"Pauses {', '.join(each or OF_ANOTHER for each in effect.pauses[:MOST_DELAYS])}")
    return tuple(found)


def _delay(delay: Delay) -> str:
    if delay.by is None:
        return f"{delay.label or OF_ANOTHER} loses its start"
    return f"{delay.label or OF_ANOTHER} by {length_words(delay.by.total_seconds())}"


def _alternative(alternative: Alternative | None, booking: Booking, ctx: PageContext) -> str:
    """`2 × H100 80 GB for 23 h 45 min, Standard, €228.00`."""
    if alternative is None:
        return ""
    ask, tier = alternative.ask, booking.tier.name
    if alternative.tier != booking.tier_id:
        tier = Tier.objects.values_list("name", flat=True).get(slug=alternative.tier)
    price = money_text(alternative.cost, alternative.currency)
    return f"{what_words(ask, ctx.labels)} for {length_words(ask.duration)}, {tier}, {price}"


def _held(booking: Booking, cost: Decimal, figures: BudgetFigures) -> Decimal:
    """Returns the part of the cost that the budget holds; a budget of other days holds the rest."""
    starts, longest = booking.starts or booking.not_before, terms_of(booking).longest()
    return share_inside(cost, starts, starts + longest, figures.period)


def _counter(counter: CounterOffer, ctx: PageContext) -> CounterCard:
    terms = Terms.from_json(counter.terms)
    return CounterCard(
        digest=counter.digest,
        person=counter.person.display_name,
        what=what_words(AskDocument.from_json(terms.ask), ctx.labels),
        changes=tuple(difference_lines(counter.differences, ctx.zone, ctx.now)),
        price=money_text(Decimal(counter.cost), terms.currency),
        reason=counter.reason,
    )


def _asked(approval: Approval) -> Booking:
    """The booking as it would be approved."""
    if approval.change is None:
        return approval.booking
    return booking_as_asked(approval.booking, approval.change)


def _when(booking: Booking, ctx: PageContext) -> str:
    length = length_words(booking.duration_seconds)
    if booking.starts is not None:
        ends = booking.starts + timedelta(seconds=booking.duration_seconds)
        return f"{window_words(booking.starts, ends, ctx.zone, ctx.now)} ({length})"
    if booking.deadline is not None:
        until = moment_words(booking.deadline, ctx.zone, ctx.now)
        return f"{length}, done by {until}"
    if booking.not_before > booking.submitted:
        return f"{length}, from {moment_words(booking.not_before, ctx.zone, ctx.now)} on"
    return f"{length}, as soon as possible"


def _history(history: PersonHistory, currency: str) -> str:
    if not (history.bookings or history.charged or history.declined):
        return "No earlier booking that ran in this project in the last 90 days"
    parts = [
        f"{counted(history.bookings, 'booking')} ran in the last 90 days",
        f"{money_text(history.charged, currency)} charged",
        counted(history.no_shows, "no-show"),
    ]
    use = history.use
    if use.hours:
        parts.insert(1, f"{use.hours:,.1f} GPU-hours")
    if use.measured:
        idle = use.unused * 100 / use.measured
        parts.insert(2, f"{use.measured:,.1f} of them measured, {idle:.0f} % of these idle")
    if history.declined:
        parts.append(f"{history.declined} declined")
    return ", ".join(parts)


def _budget(
    figures: BudgetFigures, cost: Decimal, bookings: Sequence[Booking], approval: Approval
) -> BudgetEffect:
    held = Decimal(0)
    if approval.state == Approval.State.OPEN:
        held = sum((_held(each, cost / len(bookings), figures) for each in bookings), held)
    shown = figures.in_cents
    amount, left = (money_text(each, figures.currency) for each in (shown.amount, shown.left))
    before = money_text(shown.left + cents_of(held), figures.currency)
    whole = figures.amount or Decimal(1)
    return BudgetEffect(
        of="" if figures.level == "project" else f" of {figures.name}",
        left=left,
        before=before,
        amount=amount,
        meter=Meter(
            figures.spent * 100 / whole,
            figures.held * 100 / whole,
            f"{left} of {amount} left with this booking, {before} without it",
        ),
        is_short=figures.is_warning,
        inside=_inside_words(figures, held, cost),
    )


def _inside_words(figures: BudgetFigures, held: Decimal, cost: Decimal) -> str:
    """`€37.36 of the €288.00 fall into 1 Nov to 30 Nov`; empty if all of it does."""
    if not held or cents_of(held) == cents_of(cost):
        return ""
    part, whole = (money_text(cents_of(each), figures.currency) for each in (held, cost))
    last = figures.ends - timedelta(days=1)
    days = f"{figures.starts.day} {figures.starts:%b} to {last.day} {last:%b}"
    return f"{part} of the {whole} fall into its days, {days}; the rest counts in later budgets"
