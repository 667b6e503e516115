"""Random sites: bookings of every state, charges, readings and quotas, from a seed."""

from datetime import datetime, timedelta
from decimal import ROUND_DOWN, Decimal
from random import Random

from django.utils import timezone

from allocation.models import Allocation, Booking, Gpu, GpuUse
from allocation.rules.states import State
from billing.models import Budget
from billing.rules import BudgetOwner, BudgetTerms, Period, midnight, month_after, month_of
from billing.services import budget_put, hold_place, hold_settle
from tenants.models import Project
from tests.api.builders import a_site
from tests.builders import a_quota
from tests.builders_allocation import a_booking, an_allocation
from tests.figures.places import World
from tests.roles import as_system

HOUR = timedelta(hours=1)
OPEN = (
    State.REQUESTED,
    State.AWAITING_APPROVAL,
    State.WAITLISTED,
    State.QUEUED,
    State.SCHEDULED,
    State.STARTING,
    State.ACTIVE,
    State.PAUSED,
    State.ENDING,
)
PLACES = {State.STARTING: "starting", State.ACTIVE: "active", State.ENDING: "releasing"}


def random_world(seed: int) -> World:
    """A site of two projects with budgets at three levels."""
    draw = Random(seed)  # noqa: S311 (not a secret)
    site, now = a_site(budget="9000"), timezone.now().replace(microsecond=0)
    month = month_of(now.date())
    whole = Period(month.starts, month_after(month_after(month.ends)))
    _budget(BudgetOwner(site.tenant.id), whole, "20000", now)
    _budget(BudgetOwner(site.tenant.id, site.hidden.id), whole, "7000", now)
    mara = site.people["researcher"]
    _budget(BudgetOwner(site.tenant.id, site.project.id, person_id=mara.pk), whole, "4000", now)
    a_quota(site.tenant, project=site.hidden, guaranteed=draw.randint(0, 2), limit=4)
    with as_system():
        gpus = list(Gpu.objects.order_by("number"))
    for project in (site.project, site.hidden):
        owners = [site.people[name].pk for name in ("researcher", "lead")]
        for _ in range(draw.randint(6, 12)):
            _past(draw, project, draw.choice(owners), now)
        for _ in range(draw.randint(5, 12)):
            _open(draw, project, draw.choice(owners), gpus, now)
    return World(site.tenant, site.people["admin"], site.people["operator"], site.admin, site.operator, now)


def _budget(owner: BudgetOwner, period: Period, amount: str, now: datetime) -> Budget:
    with as_system():
        terms = BudgetTerms(period, Decimal(amount))
        return budget_put(actor_id=None, owner=owner, terms=terms, now=now)


def _past(draw: Random, project: Project, owner: int, now: datetime) -> None:
    """An ended booking that was charged an amount with more places than cents."""
    begun = midnight(now.date().replace(day=1))
    days = max(1, (now - begun).days)
    at = max(begun, now - timedelta(days=draw.randrange(days), hours=1))
    amount = Decimal(draw.randrange(1, 40_000_000)) / 1_000_000
    charged = (amount * draw.randint(1, 3) / 3).quantize(Decimal("0.000001"), ROUND_DOWN)
    booking = a_booking(project, owner, state=State.ENDED, starts=at, now=at, held=str(amount))
    with as_system():
        hold_place(
            tenant_id=project.tenant_id,
            project_id=project.id,
            reference=booking.id,
            amount=amount,
            starts=at,
            ends=at + HOUR,
            now=at,
        )
        hold_settle(
            tenant_id=project.tenant_id,
            reference=booking.id,
            amount=charged,
            now=at,
        )
        Booking.objects.filter(id=booking.id).update(charged=charged, ended_at=at + HOUR)


def _open(draw: Random, project: Project, owner: int, gpus: list[Gpu], now: datetime) -> None:
    """An open booking; those on hardware have a GPU or a slice, and some of them readings."""
    state = draw.choice(OPEN)
    if state in PLACES and not gpus:
        state = State.SCHEDULED
    is_later = state not in PLACES and draw.random() < 0.3
    starts = now + (timedelta(days=40) if is_later else -HOUR)
    held = Decimal(draw.randrange(1, 90_000)) / 1_000
    booking = a_booking(project, owner, state=state, starts=starts, held=str(held), now=now)
    if state not in PLACES:
        return
    profile = draw.choice((None, "1g.10gb", "3g.40gb"))
    place = an_allocation(
        booking, gpus.pop(), profile=profile, starts=starts, ends=now + HOUR, state=PLACES[state]
    )
    if draw.random() < 0.7:
        _readings(draw, place, now)


def _readings(draw: Random, place: Allocation, now: datetime) -> None:
    with as_system():
        for number in range(1, draw.randint(2, 8)):
            GpuUse.objects.create(
                gpu_id=place.gpu_id,
                tenant_id=place.tenant_id,
                allocation_id=place.id,
                slot=None if place.profile is None else place.start,
                at=now - number * timedelta(minutes=5),
                seconds=300,
                measured=300,
                busy_avg=draw.choice((1.0, 60.0)),
                processes_max=draw.choice((0, 1)),
            )
