"""Effects of the rungs of a budget: the bookings that each would refuse, keep waiting or pause."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from django.db.models import Count, Q

from allocation.models import Booking
from allocation.rules.states import RUNNING, State
from billing.models import Budget, Guardrail
from billing.queries import BudgetFigures, open_holds, would_have_stopped
from tenants.models import Tier

# Bookings of which the earliest end decides among several classes.
CHOOSES = Q(starts=None, deadline=None, class_durations__1__isnull=False)
NOT_STARTED = (State.REQUESTED, State.QUEUED, State.SCHEDULED, State.WAITLISTED)
Action = Guardrail.Action
OF_NEW_BOOKINGS = (Action.NO_BOOKINGS, Action.APPROVAL)


@dataclass(frozen=True, slots=True)
class Restrained:
    """Numbers of a budget's bookings now.

    Of those that are `waiting`, `choosing` take the class with the earliest end, and `borrowing`
    are planned on borrowed GPUs. Of those that are `running`, `pausable` can be paused.
    """

    waiting: int
    choosing: int
    borrowing: int
    running: int
    pausable: int


def budget_scope(budget: Budget) -> Q:
    """The bookings that the budget counts."""
    if budget.tenant_id is None:
        return Q(tenant__isnull=False)
    found = Q(tenant=budget.tenant_id)
    if budget.lab_id is not None:
        found &= Q(project__lab=budget.lab_id)
    if budget.project_id is not None:
        found &= Q(project=budget.project_id)
    if budget.campaign_id is not None:
        found &= Q(campaign=budget.campaign_id)
    if budget.person_id is not None:
        found &= Q(owner=budget.person_id)
    return found


def pausable(now: datetime) -> Q:
    """Running bookings that their tiers allow to pause now, with time left after the notice."""
    found = Q(pk__in=[])
    for tier in Tier.objects.filter(pausable=True):
        rows = Q(
            tier=tier.slug,
            planned_ends__gt=now + timedelta(seconds=tier.grace_seconds),
            ready_at__lte=now - timedelta(seconds=tier.protected_seconds),
        )
        if tier.max_pauses is not None:
            rows &= Q(pause_count__lt=tier.max_pauses)
        found |= rows
    return Q(state=State.ACTIVE) & found


def restrained_now(budget: Budget, now: datetime) -> Restrained:
    """Counts the bookings that a rung of the budget would restrain if it acted now."""
    waits = Q(state__in=NOT_STARTED)
    found = Booking.objects.filter(budget_scope(budget)).aggregate(
        waiting=Count("id", filter=waits),
        choosing=Count("id", filter=waits & CHOOSES),
        borrowing=Count("id", filter=waits & Q(borrowed_units__gt=0)),
        running=Count("id", filter=Q(state__in=RUNNING)),
        pausable=Count("id", filter=pausable(now)),
    )
    return Restrained(**found)


@dataclass(frozen=True, slots=True)
class RungEffect:
    """What a rung would do; numbers that its action does not touch are 0.

    `stopped` and `amount` count the bookings of the period so far that it would have refused or
    sent to an approval. The other numbers count the bookings of now.
    """

    share: Decimal
    acts: bool
    stopped: int = 0
    amount: Decimal = Decimal(0)
    first: datetime | None = None
    kept: int = 0
    held: Decimal = Decimal(0)
    paused: int = 0
    runs_on: int = 0
    gives_up: int = 0
    moved: int = 0


def rung_effect(
    budget: Budget, figures: BudgetFigures, rung: tuple[str, int, str], now: datetime
) -> RungEffect:
    """The effect of a rung (measure, percent, action) if it acted now."""
    measure, percent, action = rung
    share = figures.share_of(measure)
    acts = share >= percent
    if action in OF_NEW_BOOKINGS:
        stopped = would_have_stopped(budget, measure, percent)
        return RungEffect(share, acts, stopped.bookings, stopped.amount, stopped.first)
    if action == Action.NOTIFY:
        return RungEffect(share, acts)
    found = restrained_now(budget, now)
    if action == Action.NO_BORROWING:
        return RungEffect(share, acts, gives_up=found.borrowing)
    if action == Action.CHEAPER:
        return RungEffect(share, acts, moved=found.choosing)
    held = open_holds(budget).amount
    if action == Action.DRAIN:
        return RungEffect(share, acts, kept=found.waiting, held=held)
    return RungEffect(
        share,
        acts,
        kept=found.waiting,
        held=held,
        paused=found.pausable,
        runs_on=found.running - found.pausable,
    )
