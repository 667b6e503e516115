"""The check of a request: the rules, and what they would admit instead of what they refuse."""

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import uuid4

from django.db.models import Q

from allocation.models import Booking
from allocation.rules.ask import AskDocument
from allocation.services.bookings.checks.admission import Admission, Asker, admitted
from allocation.services.bookings.checks.offers import offer_price
from allocation.services.bookings.checks.planned_time import PlannedTime
from allocation.services.bookings.checks.remedies import OF_DEADLINE, with_remedies
from allocation.services.record.refusals import refusal
from allocation.services.snapshot.demands import solver_ask
from allocation.services.snapshot.hardware import gpus_read, models_read
from allocation.services.snapshot.snapshot import seconds as unix_seconds
from allocation.words.refusals import refusal_text
from billing.price_books import PriceShelf
from billing.queries import tightest_figures
from billing.services import HoldRequest, new_holds_check
from solver import QuoteRequest
from solver.fleet.pool import pools_of
from tenants.models import Project
from tenants.platform.errors import Refused

NOBODY = Asker()


def admission_check(
    *,
    project: Project,
    tier_slug: str,
    ask: AskDocument,
    now: datetime,
    asker: Asker = NOBODY,
) -> Admission:
    """Checks every rule that needs no calendar. A refusal names what would be admitted instead.

    Raises:
        Refused: `unknown_tier`, `unknown_class`, `impossible_profile`, `window_past`,
            `deadline_passed`, `tier_audience`, `tier_class`, `shorter_than_tier`, `too_soon`,
            `start_hours`, `too_long`, `advance_window`, `class_not_open`, `tenant_quota`,
            `project_quota`, `lab_quota`, `person_quota`, `guarantee_only`, `gpu_hours`, `no_speed`,
            `pin_elsewhere`, `pin_too_small`, `host_too_small`, `stopped`, `terms_missing`,
            `training_missing`.
    """
    try:
        return admitted(project, tier_slug, ask, now, asker)
    except Refused as refusal:
        plan = PlannedTime(asker.booking, now)

        def try_it(tier: str, other: AskDocument) -> Admission:
            """Admits it, and tries its deadline in the plan: of a length that the rules allow, the
            plan may have no room in time."""
            try:
                found = admitted(project, tier, other, now, asker)
            except Refused as again:
                raise planned(again, tier, other) from again
            _money_check(found, project, asker, now)
            _together_check(found.ask)
            is_moved = other.starts is not None and other.starts != ask.starts
            if (other.deadline or is_moved) and not plan.fits(_question_of(found, project, asker)):
                raise planned(_late(found), tier, other) if other.deadline else Refused("window_busy", "")
            return found

        def planned(refused: Refused, tier: str, other: AskDocument) -> Refused:
            """Returns the refusal of a deadline with what the plan has room for."""
            if refused.code not in OF_DEADLINE:
                return refused
            try:
                free = admitted(project, tier, replace(other, deadline=None), now, asker)
            except Refused:
                return refused
            dated = replace(free, ask=other)
            remedies = plan.remedies(_question_of(dated, project, asker))
            return replace(refused, alternatives=tuple(remedies))

        raise with_remedies(planned(refusal, tier_slug, ask), ask, tier_slug, try_it) from refusal


def _question_of(admission: Admission, project: Project, asker: Asker) -> QuoteRequest:
    """The admitted request as a quote would ask the plan for it."""
    document, ask = admission.ask, solver_ask(admission.ask)
    if document.workload is not None:
        ask = replace(ask, classes=tuple(admission.units))
    return QuoteRequest(
        ask=ask,
        duration=min(map(admission.seconds_on, admission.units)),
        earliest=unix_seconds(admission.not_before),
        latest=unix_seconds(document.deadline) if document.deadline else None,
        fixed=document.starts is not None,
        tenant=str(project.tenant_id),
        project=str(project.id),
        tier=admission.tier.slug,
        priority=admission.tier.priority,
        lengths=admission.lengths,
        reference=document.classes[0],
        owner="" if asker.person_id is None else str(asker.person_id),
    )


def _money_check(admission: Admission, project: Project, asker: Asker, now: datetime) -> None:
    """Raises Refused `no_price`, `no_budget`, `budget_exceeded` or `bookings_stopped`: an offer that the
    money refuses is none."""
    cost = offer_price(admission, PriceShelf.read(now)).most
    if asker.person_id is None:
        return
    if asker.booking is not None:
        _change_money_check(admission, project, asker.booking, cost, now)
        return
    longest = timedelta(seconds=max(map(admission.seconds_on, admission.units)))
    starts = admission.not_before
    hold = HoldRequest(uuid4(), cost, starts, starts + longest, asker.person_id)
    new_holds_check(tenant_id=project.tenant_id, project_id=project.id, requests=[hold])


def _change_money_check(
    admission: Admission, project: Project, booking: Booking, cost: Decimal, now: datetime
) -> None:
    """Raises Refused `budget_exceeded`. What the booking holds already is free for its change."""
    figures = tightest_figures(
        project_id=project.id,
        person_id=booking.owner_id,
        campaign_id=booking.campaign_id,
        at=max(now, admission.not_before),
    )
    held = booking.hold_amount
    if figures is not None and figures.is_hard and cost > figures.left + held:
        numbers = {"left": str(figures.left + held), "needs": str(cost)}
        raise Refused("budget_exceeded", figures.name, numbers=numbers)


def _together_check(ask: AskDocument) -> None:
    """Raises Refused `impossible_together` where the site has not so many GPUs together."""
    if not ask.required or ask.count == 1 or ask.groups:
        return
    pools = pools_of(gpus_read(Q(gpu_class__in=ask.classes)), models_read())
    most = max((pool.most(ask.shape, ask.together) for pool in pools.values()), default=0)
    if most < ask.count:
        apart: list[dict[str, object]] = [{"together": "any", "required": False}]
        fewer = [{"count": most}] if most else []
        raise Refused("impossible_together", "", "invalid", alternatives=[*fewer, *apart])


def _late(admission: Admission) -> Refused:
    ends = admission.not_before + timedelta(seconds=min(map(admission.seconds_on, admission.units)))
    numbers = {"earliest_end": ends.isoformat()}
    code = "deadline_unreachable"
    return refusal(code, refusal_text(code), "invalid", "request", numbers=numbers)
