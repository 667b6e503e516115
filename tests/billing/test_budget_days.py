"""The days of a budget add up to what is spent of it, whichever months its bookings were charged in."""

from datetime import date, timedelta
from decimal import Decimal
from random import Random
from uuid import uuid4

import pytest

from allocation.models import Booking
from allocation.queries.bookings.money.forecasts import history_of_budget
from allocation.queries.bookings.money.variances import bookings_on
from billing.models import Budget
from billing.rules import BudgetOwner, BudgetTerms, Period
from billing.services import budget_put, hold_settle
from billing.services.holding.shares import HoldRequest
from billing.services.holds import Charge, holds_place
from tenants.models import Lab
from tests.billing.builders import DECEMBER, NOVEMBER
from tests.billing.test_random_statements import BEGIN, World, micros_of
from tests.roles import as_owner, as_system

pytestmark = pytest.mark.django_db
AMOUNT = Decimal(100_000)


class PaidByPeople(World):
    """Money is held for people; a machine that is rented is held for one, and is no booking."""

    def _charge(self, booking: Booking, micros: int, fee: str = "") -> None:
        reference = self.draw.choice((booking.id, booking.id, uuid4()))
        amount, starts = Decimal(micros) / 10**6, BEGIN + timedelta(days=self.draw.randrange(50))
        ends = starts + timedelta(hours=self.draw.choice((1, 30, 200)))
        request = HoldRequest(reference, amount + 1, starts, ends, person_id=booking.owner_id)
        assert not holds_place(
            tenant_id=self.tenant.id, project_id=booking.project_id, requests=[request], now=self.now
        )
        paid = hold_settle(
            tenant_id=self.tenant.id, reference=reference, amount=Charge(amount, fee=fee), now=self.now
        )
        if reference == booking.id:
            self.paid[booking.id] += micros_of(paid)


def with_budgets(world: World) -> None:
    """Budgets of all levels above and below projects; some months, some both."""
    owners = [BudgetOwner(None), BudgetOwner(world.tenant.id)]
    owners += [BudgetOwner(world.tenant.id, lab_id=lab.id) for lab in Lab.objects.filter(tenant=world.tenant)]
    people = {(each.project_id, each.owner_id) for each in world.bookings}
    owners += [BudgetOwner(world.tenant.id, project, person_id=owner) for project, owner in sorted(people)]
    for owner in owners:
        both = (Period(NOVEMBER.starts, DECEMBER.ends),)
        for period in world.draw.choice(((NOVEMBER, DECEMBER), both)):
            budget_put(actor_id=None, owner=owner, terms=BudgetTerms(period, AMOUNT), now=BEGIN)


def faults(budget: Budget, world: World) -> list[str]:
    """What does not add up to what is spent of a budget of today."""
    history = history_of_budget(budget, world.now)
    assert history is not None
    days = [budget.starts + timedelta(days=number) for number in range(len(history.days))]
    rows = {day: bookings_on(budget, [day], only_own=True) for day in days}
    by_day = {day: sum((each.metered.amount for each in found), Decimal(0)) for day, found in rows.items()}
    together = bookings_on(budget, days, only_own=True)
    sums = {
        "chart": sum(history.days),
        "days": sum(by_day.values()),
        "bookings": sum(each.metered.amount for each in together),
    }
    name = f"{budget.level} {budget.starts}"
    wrong = [f"{name}: {each} {sum_} for {history.effect.spent}" for each, sum_ in sums.items()]
    found = [each for each, sum_ in zip(wrong, sums.values(), strict=True) if sum_ != history.effect.spent]
    return found + [
        f"{name} {day}" for day, sum_ in zip(days, history.days, strict=True) if by_day[day] != sum_
    ]


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(each, marks=pytest.mark.long) for each in range(3, 60))]
)
def test_the_days_of_each_budget_add_up_to_what_is_spent_of_it(seed: int) -> None:
    draw = Random(seed)  # noqa: S311 (not a secret)
    world = PaidByPeople(draw)
    with as_system():
        with_budgets(world)
    world.play(draw.randrange(20, 60))
    today: date = world.now.date()
    with as_owner():
        budgets = Budget.objects.filter(starts__lte=today, ends__gt=today)
        assert [fault for each in budgets for fault in faults(each, world)] == []
