"""A request for approval as its approvers read it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

from allocation.access import deciding_refusal
from allocation.models import Approval, Booking
from allocation.queries.bookings.approvals import (
    PersonHistory,
    dates_of_series,
    histories_of,
)
from allocation.rules.ask import AskDocument
from allocation.services.bookings.approval_requests import booking_as_asked
from allocation.web.bookings.page_context import PageContext
from allocation.web.bookings.summary import what_words
from allocation.web.parts.approvals import outcome_words, step_words
from allocation.web.parts.changes import difference_lines
from allocation.web.parts.times import length_words, moment_words, window_words
from billing.queries import BudgetFigures, tightest_figures
from billing.rules import money_text
from billing.web.budget_bar import Meter
from tenants.access import Actor
from tenants.models import User


@dataclass(frozen=True, slots=True)
class BudgetEffect:
    """The tightest budget that the booking counts in, with the booking's money as held."""

    left: str
    before: str
    amount: str
    meter: Meter
    is_short: bool


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


def cards_of(actor: Actor, approvals: Sequence[Approval], ctx: PageContext) -> list[ApprovalCard]:
    """Returns a card for each request; dates of a series are one card."""
    dates = dates_of_series(approvals)
    histories = histories_of(approvals, ctx.now)
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
        history = histories.get((each.project_id, each.asker_id), PersonHistory())
        cards.append(_card(actor, each, bookings, (history, budgets[key]), ctx))
    return cards


@dataclass(frozen=True, slots=True)
class RequestWords:
    """A request in sentences, for a mail."""

    person: str
    sentences: tuple[str, ...]


def request_words(approval: Approval, ctx: PageContext) -> RequestWords:
    """Returns who asks for what, where, at what price, and by which rule it needs an approval."""
    booking, person = _asked(approval), _name(approval.asker)
    together = dates_of_series([approval]).get(approval.id, [approval])
    cost = sum((_asked(each).hold_amount for each in together), Decimal(0))
    what = what_words(AskDocument.from_json(booking.ask), ctx.labels)
    dates = f", {len(together)} dates" if len(together) > 1 else ""
    rules = ", ".join(rule["name"] for rule in approval.rules)
    requested = f"asked to change {booking.label} to" if approval.change else "requested"
    return RequestWords(
        person,
        (
            f"{person} {requested} {what} in {approval.project.name}: "
            f"{_when(booking, ctx)}{dates}.",
            f"It costs {money_text(cost, booking.currency)} at most, which is held already.",
            f"It needs an approval by the rule {rules}.",
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
    known: tuple[PersonHistory, BudgetFigures | None],
    ctx: PageContext,
) -> ApprovalCard:
    booking, (history, budget) = _asked(approval), known
    change = approval.change
    refusal = deciding_refusal(actor, approval)
    cost = sum((each.hold_amount for each in bookings), Decimal(0))
    added = change.delta_held if change is not None else cost
    many = f"Step {approval.step} of {len(approval.steps)}: " if len(approval.steps) > 1 else ""
    return ApprovalCard(
        approval=approval,
        digest=approval.digest,
        href=f"{ctx.base}approvals/{approval.id}",
        title=booking.name or booking.label,
        label=booking.label,
        person=_name(approval.asker),
        what=what_words(AskDocument.from_json(booking.ask), ctx.labels),
        when=_when(booking, ctx),
        tier=booking.tier.name,
        price=money_text(cost, booking.currency),
        rules=", ".join(rule["name"] for rule in approval.rules),
        step=f"{many}{step_words(approval.present_step, approval.project.name)}",
        decide_by=moment_words(approval.decide_by, ctx.zone, ctx.now),
        history=_history(history, booking.currency),
        budget=None if budget is None else _budget(budget, added, approval),
        refusal=refusal.sentence if refusal else "",
        state=outcome_words(approval, ctx.zone, ctx.now),
        dates=tuple(_when(each, ctx) for each in bookings) if len(bookings) > 1 else (),
        changes=tuple(difference_lines(change.differences, ctx.zone, ctx.now)) if change else (),
    )


def _asked(approval: Approval) -> Booking:
    """The booking as it would be approved."""
    if approval.change is None:
        return approval.booking
    return booking_as_asked(approval.booking, approval.change)


def _name(person: User) -> str:
    return person.get_full_name() or person.get_username()


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
    if not history.bookings:
        return "No earlier booking in this project in the last 90 days"
    word = "booking" if history.bookings == 1 else "bookings"
    parts = [
        f"{history.bookings} {word} in the last 90 days",
        f"{money_text(history.charged, currency)} charged",
        f"{history.no_shows} no-show{'' if history.no_shows == 1 else 's'}",
    ]
    if history.declined:
        parts.append(f"{history.declined} declined")
    return ", ".join(parts)


def _budget(figures: BudgetFigures, cost: Decimal, approval: Approval) -> BudgetEffect:
    held = cost if approval.state == Approval.State.OPEN else Decimal(0)
    amount, left = (money_text(each, figures.currency) for each in (figures.amount, figures.left))
    before = money_text(figures.left + held, figures.currency)
    whole = figures.amount or Decimal(1)
    return BudgetEffect(
        left=left,
        before=before,
        amount=amount,
        meter=Meter(
            figures.spent * 100 / whole,
            figures.held * 100 / whole,
            f"{left} of {amount} left with this booking, {before} without it",
        ),
        is_short=figures.is_warning,
    )
