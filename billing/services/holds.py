"""Holds: money that a booking reserves, charged or released when the booking ends."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from django.db import IntegrityError, transaction

from billing.models import Guardrail, Transfer
from billing.queries import BudgetFigures, budget_figures_of, reached
from billing.rules import ledger_amount
from billing.services.guardrails import (
    approval_needed,
    bookings_stopped,
    new_bookings_refusal,
    restraint_at,
    rungs_asking,
    rungs_at,
    rungs_of_holds,
)
from billing.services.holding.attempts import Stopped, any_decides, holds_place_each, rungs_guard
from billing.services.holding.shares import (
    BudgetShare,
    HoldRequest,
    budgets_of_requests,
    hold_copy,
    hold_end,
    holds_of,
    shares_of,
)
from billing.services.holding.shortages import budget_exceeded
from billing.services.ledger import OVERSPENT, constraint_of
from tenants.models import Project
from tenants.platform.database.compiled import ANY_TENANT, Compiled
from tenants.platform.database.look import ASKED_AT
from tenants.platform.errors import Refused
from tenants.platform.rows import last_rows_allowed, rows_insert_free, rows_write, statements_send


@dataclass(frozen=True, slots=True)
class Charge:
    """An amount to charge, and the part of it that is for peak hours. A fee is for no GPU time."""

    amount: Decimal
    surcharge: Decimal = Decimal(0)
    fee: str = ""


def hold_place(  # noqa: PLR0913 (a hold has exactly these facts; callers have no object for them)
    *,
    tenant_id: UUID,
    project_id: UUID,
    reference: UUID,
    amount: Decimal,
    starts: datetime,
    ends: datetime,
    now: datetime,
) -> None:
    """Holds `amount` in the budgets of [starts, ends), split by seconds at UTC midnights.

    A reference may have several holds (an extension adds one). Writes nothing for zero. No person
    and no campaign counts it: see `holds_place`.

    Raises:
        Refused: `no_budget` or `budget_exceeded`; then nothing is held.
    """
    request = HoldRequest(reference, amount, starts, ends)
    refused = holds_place(tenant_id=tenant_id, project_id=project_id, requests=[request], now=now)
    if refused:
        raise refused[reference]


@dataclass(frozen=True, slots=True)
class NewHolds:
    """What the ladders of budgets say about new bookings.

    `refused` are references with nothing held. `asking` rungs want an approval of the others
    together, and `restraints` name the strongest restraint on each.
    """

    refused: dict[UUID, Refused]
    asking: Sequence[tuple[Guardrail, BudgetFigures]] = ()
    restraints: Mapping[UUID, str] = field(default_factory=dict)


def holds_place(
    *, tenant_id: UUID, project_id: UUID, requests: Sequence[HoldRequest], now: datetime
) -> dict[UUID, Refused]:
    """Like `hold_place`, for many references of a project in one statement.

    Returns the refused references with their reasons; if money is short, earlier ones are served
    first. No rung of a ladder refuses them: see `new_holds_place`.
    """
    parts, refused = _shares(tenant_id, project_id, requests)
    return refused | _place(parts, holds_of(requests, parts, now), are_new=False)[0]


def new_holds_place(
    *, tenant_id: UUID, project_id: UUID, requests: Sequence[HoldRequest], now: datetime
) -> NewHolds:
    """Like `holds_place`, for new bookings, on which the ladders of budgets have a say.

    If no rung that decides is marked, the holds are sent with the commit where that is allowed, and
    a rung that they find reached there undoes the transaction.
    """
    parts, refused = _shares(tenant_id, project_id, requests)
    holds = holds_of(requests, parts, now)
    rungs = _rungs_of(parts)
    if last_rows_allowed() and not any_decides(rungs):
        rows_write(holds, is_last=True, order="debit_id")
        rungs_guard(parts.values(), rungs)
        return NewHolds(refused, restraints=_restraints(parts, rungs, now))
    stopped, rungs = _place(parts, holds, are_new=True)
    refused |= stopped
    held = {key: mine for key, mine in parts.items() if key not in refused}
    shares = [part for mine in held.values() for part in mine]
    return NewHolds(refused, rungs_asking(shares, rungs), _restraints(held, rungs, now))


def new_holds_check(*, tenant_id: UUID, project_id: UUID, requests: Sequence[HoldRequest]) -> None:
    """Checks new holds together by the figures of now, and writes nothing.

    Raises:
        Refused: `no_budget`, `budget_exceeded` or `bookings_stopped`, as `new_holds_place` would.
    """
    parts, refused = _shares(tenant_id, project_id, requests)
    for refusal in refused.values():
        raise refusal
    shares = [share for mine in parts.values() for share in mine]
    needs: dict[UUID, Decimal] = defaultdict(Decimal)
    for share in shares:
        for budget in (share.budget, *share.limits):
            needs[budget.id] += share.amount
    rungs, figures = _rungs_of(parts), budget_figures_of(needs)
    acting = [rung for rung in rungs if rung.action == Guardrail.Action.NO_BOOKINGS]
    if any(rung.budget_id in figures and reached(rung, figures[rung.budget_id]) for rung in acting):
        # Whose rung it is is said where the booking is made; no offer needs the sentence.
        raise Refused("bookings_stopped", "", "budget")
    if any(each.is_hard and each.left < needs[each.budget_id] for each in figures.values()):
        raise budget_exceeded(shares)


def uncovered_refusal(*, tenant_id: UUID, project_id: UUID, request: HoldRequest) -> Refused | None:
    """Returns the refusal `no_budget` that a new hold would get, for quotes."""
    _, refused = _shares(tenant_id, project_id, [request])
    return refused.get(request.reference)


def _restraints(
    parts: Mapping[UUID, Sequence[BudgetShare]], rungs: Sequence[Guardrail], now: datetime
) -> dict[UUID, str]:
    return {key: restraint_at(mine, rungs, now) for key, mine in parts.items()}


def _shares(
    tenant_id: UUID, project_id: UUID, requests: Sequence[HoldRequest]
) -> tuple[dict[UUID, list[BudgetShare]], dict[UUID, Refused]]:
    """The shares of each reference, and the references that no budget covers."""
    refused: dict[UUID, Refused] = {}
    parts: dict[UUID, list[BudgetShare]] = {}
    budgets = budgets_of_requests(tenant_id, project_id, requests)
    for request in requests:
        try:
            parts[request.reference] = shares_of(project_id, request, budgets)
        except Refused as refusal:
            refused[request.reference] = refusal
    return parts, refused


def _place(
    parts: dict[UUID, list[BudgetShare]], holds: Sequence[Transfer], *, are_new: bool
) -> tuple[dict[UUID, Refused], list[Guardrail]]:
    """Writes the holds in one statement, or one by one where some are refused. Returns the refused
    ones and, for new bookings, the rungs of their budgets."""
    # Else the savepoint would send them, and a refusal of earlier holds would count as one of these.
    statements_send()
    try:
        with transaction.atomic():
            Transfer.objects.bulk_create(holds)
            return {}, _stop(parts) if are_new else []
    except IntegrityError as error:
        if constraint_of(error) != OVERSPENT:
            raise
    except Stopped:
        pass
    refused = holds_place_each(parts, holds, _stop if are_new else None)
    return refused, _rungs_of(parts) if are_new else []


def _rungs_of(parts: dict[UUID, list[BudgetShare]]) -> list[Guardrail]:
    return rungs_of_holds(part for mine in parts.values() for part in mine)


def _stop(parts: dict[UUID, list[BudgetShare]]) -> list[Guardrail]:
    """Returns the rungs; raises Stopped if one refuses one of the new bookings."""
    rungs = _rungs_of(parts)
    for mine in parts.values():
        refusal = bookings_stopped(mine, rungs)
        if refusal is not None:
            raise Stopped(refusal)
    return rungs


def holds_move(
    *, tenant_id: UUID, project_id: UUID, requests: Sequence[HoldRequest], now: datetime
) -> dict[UUID, Refused]:
    """Moves the holds of a project's bookings to the budgets of their planned windows.

    Returns the bookings whose new budgets are missing or have too little money, with the reason:
    their holds stay in the budgets of the requested window. Two statements find the holds that
    are already right, for which nothing is written, and one moves all others if they fit.
    """
    parts, refused = _shares(tenant_id, project_id, requests)
    there: dict[UUID | None, list[Transfer]] = defaultdict(list)
    for hold in _open_holds(tenant_id, list(parts)):
        there[hold.reference].append(hold)
    moved = {key: mine for key, mine in parts.items() if not _is_placed(mine, there[key])}
    ends = [hold_end(hold, Decimal(0), Decimal(0), now) for key in moved for hold in there[key]]
    holds = holds_of(requests, moved, now)
    return refused | holds_place_each(moved, [*ends, *holds], None)


def hold_delta_place(
    *, tenant_id: UUID, project_id: UUID, old: UUID, request: HoldRequest, now: datetime
) -> Decimal:
    """Holds what the request needs beyond the open holds of `old`, budget by budget. Returns the
    held amount. A rung of a budget's ladder can refuse it, as it refuses a new booking.

    Raises:
        Refused: `no_budget`, `budget_exceeded`, `bookings_stopped` or `approval_needed`; then
            nothing is held.
    """
    there: dict[UUID, Decimal] = defaultdict(Decimal)
    for hold in _open_holds(tenant_id, [old]):
        there[hold.debit_id] += hold.amount
    parts: list[BudgetShare] = []
    budgets = budgets_of_requests(tenant_id, project_id, [request])
    for part in shares_of(project_id, request, budgets):
        covered = min(part.amount, there[part.budget.account_id])
        there[part.budget.account_id] -= covered
        if part.amount > covered:
            parts.append(replace(part, amount=part.amount - covered))
    if parts:
        _parts_hold(request, parts, now)
    return sum((part.amount for part in parts), Decimal(0))


def _parts_hold(request: HoldRequest, parts: list[BudgetShare], now: datetime) -> None:
    """Holds the parts of a change; raises Refused."""
    by_reference = {request.reference: parts}
    holds = holds_of([request], by_reference, now)
    rungs = _rungs_of(by_reference)
    if last_rows_allowed() and not any_decides(rungs):
        rows_write(holds, is_last=True, order="debit_id")
        rungs_guard(by_reference.values(), rungs)
        return
    with transaction.atomic():
        refused = holds_place_each(by_reference, holds, _stop)
        if refused:
            raise refused[request.reference]
        for rung, effect in rungs_asking(parts, rungs_of_holds(parts)):
            raise approval_needed(rung, effect)


def hold_exchange(
    *,
    tenant_id: UUID,
    project_id: UUID,
    request: HoldRequest,
    delta: UUID | None = None,
    now: datetime,
) -> None:
    """Replaces the open holds of the request's reference, and of `delta`, by those of the request.

    Together they must have its amount. It is never refused: what the budgets of its window can't
    pay stays in the budgets that hold it now.
    """
    try:
        with transaction.atomic():
            hold_release(tenant_id=tenant_id, reference=request.reference, now=now)
            if delta is not None:
                hold_release(tenant_id=tenant_id, reference=delta, now=now)
            short = holds_place(tenant_id=tenant_id, project_id=project_id, requests=[request], now=now)
            if short:
                raise short[request.reference]
    except Refused:
        _holds_join(tenant_id, request, delta, now)


def _holds_join(tenant_id: UUID, request: HoldRequest, delta: UUID | None, now: datetime) -> None:
    """Keeps the request's amount in the budgets that hold it and `delta`."""
    with transaction.atomic():
        added = [] if delta is None else _open_holds(tenant_id, [delta])
        _settle(added, [Charge(Decimal(0))] * len(added), now)
        copies = [hold_copy(hold, hold.amount, now) for hold in added]
        for copy in copies:
            copy.reference = request.reference
        Transfer.objects.bulk_create(copies)
        hold_settle_partially(
            tenant_id=tenant_id,
            reference=request.reference,
            amount=Decimal(0),
            keep=request.amount,
            now=now,
        )


def hold_settle(*, tenant_id: UUID, reference: UUID, amount: Decimal | Charge, now: datetime) -> Decimal:
    """Charges `amount` to the open holds of the reference, oldest period first; ends them all.

    Never charges more than was held. Returns the charged amount: zero if an earlier call has ended
    the holds.
    """
    holds = _open_holds(tenant_id, [reference])
    return _settle(holds, _taken(holds, _charge(amount)), now)


def hold_settle_partially(
    *, tenant_id: UUID, reference: UUID, amount: Decimal | Charge, keep: Decimal, now: datetime
) -> tuple[Decimal, Decimal]:
    """Charges `amount` now, oldest period first, and keeps `keep` on hold.

    The rest stays in the budgets that held it, the latest period first, so it always fits. Returns
    the charged and the held amount, together never more than was held.
    """
    with transaction.atomic():
        holds = _open_holds(tenant_id, [reference])
        taken = _taken(holds, _charge(amount))
        charged = _settle(holds, taken, now)
        kept: list[Transfer] = []
        rest = ledger_amount(keep)
        for hold, used in reversed(list(zip(holds, taken, strict=True))):
            again = min(rest, hold.amount - used.amount)
            rest -= again
            if again:
                kept.append(hold_copy(hold, again, now))
        Transfer.objects.bulk_create(kept)
    return charged, sum((each.amount for each in kept), Decimal(0))


def hold_release(*, tenant_id: UUID, reference: UUID, now: datetime) -> None:
    """Ends the open holds of the reference without a charge."""
    holds_release(tenant_id=tenant_id, references=[reference], now=now)


def holds_release(*, tenant_id: UUID, references: Sequence[UUID], now: datetime) -> None:
    """Like `hold_release`, for many references of a tenant in two statements."""
    holds = _open_holds(tenant_id, references)
    _settle(holds, [Charge(Decimal(0))] * len(holds), now)


def _is_placed(parts: Sequence[BudgetShare], holds: Sequence[Transfer]) -> bool:
    """Whether the open holds are these shares already, whichever day of its period each has."""
    rest = list(holds)
    for part in parts:
        same = next((hold for hold in rest if _is_share(part, hold)), None)
        if same is None:
            return False
        rest.remove(same)
    return not rest


def _is_share(part: BudgetShare, hold: Transfer) -> bool:
    in_period = hold.day is not None and part.period.starts <= hold.day < part.period.ends
    return in_period and hold.debit_id == part.budget.account_id and hold.amount == part.amount


_holds = Compiled(
    lambda _, keys: Transfer.objects.filter(
        tenant_id=ANY_TENANT, reference__in=keys, kind="hold", end__isnull=True
    ).order_by("day", "at", "id")
)


def _open_holds(tenant_id: UUID, references: Sequence[UUID]) -> list[Transfer]:
    return _holds(ASKED_AT, references, {ANY_TENANT: tenant_id})


def _charge(amount: Decimal | Charge) -> Charge:
    return amount if isinstance(amount, Charge) else Charge(amount)


def _taken(holds: Sequence[Transfer], charge: Charge) -> list[Charge]:
    """The part of the charge that each hold pays, in order; its surcharge in proportion."""
    rest, surcharge = ledger_amount(charge.amount), ledger_amount(charge.surcharge)
    if not 0 <= surcharge <= rest:
        raise ValueError("a charge can't be negative, or below its surcharge")
    taken = []
    for hold in holds:
        amount = min(rest, hold.amount)
        part = ledger_amount(surcharge * amount / rest) if rest else Decimal(0)
        taken.append(Charge(amount, part, charge.fee))
        rest, surcharge = rest - amount, surcharge - part
    return taken


def _settle(holds: Sequence[Transfer], taken: Sequence[Charge], now: datetime) -> Decimal:
    ends = [
        hold_end(hold, charged.amount, charged.surcharge, now, charged.fee)
        for hold, charged in zip(holds, taken, strict=True)
    ]
    # Holds that have ended are skipped. Their unique keys are waited for in one order.
    ends.sort(key=lambda transfer: str(transfer.hold_id))
    written = rows_insert_free(ends)
    charged = (end.amount for end in ends if end.id in written and end.kind == "settle")
    return sum(charged, Decimal(0))


def more_money_refusal(
    project: Project, person_id: int, campaign_id: UUID | None, day: datetime
) -> Refused | None:
    """Returns the refusal that a change which needs more money would get from a ladder."""
    stopped = new_bookings_refusal(project, person_id, campaign_id, day)
    if stopped is not None:
        return stopped
    asking = [
        rung
        for rung in rungs_at(project, person_id, campaign_id, day)
        if rung.action == Guardrail.Action.APPROVAL and rung.tenant_id
    ]
    figures = budget_figures_of({rung.budget_id for rung in asking}) if asking else {}
    acting = (rung for rung in asking if reached(rung, figures[rung.budget_id]))
    return next((approval_needed(rung, figures[rung.budget_id]) for rung in acting), None)
