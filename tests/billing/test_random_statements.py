"""Statements of random months: every sum that somebody can read, against one that is counted from the ledger
in whole numbers."""

import csv
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import StringIO
from random import Random
from typing import Any

import pytest
from django.test import Client

from allocation.models import Booking
from allocation.queries.bookings.money.statements import (
    StatementOf,
    group_page,
    spend_by_day,
    spend_of,
    statement_lines,
    statement_of,
)
from billing.focus import focus_csv, statement_csv
from billing.models import Budget, Transfer
from billing.queries import budget_figures
from billing.rules import Period, money_text
from billing.services import (
    budget_set,
    charge_add,
    charge_refund,
    hold_place,
    hold_settle,
)
from billing.services.holds import Charge
from tenants.models import Lab, Project, Tenant
from tests.billing.builders import DECEMBER, NOVEMBER
from tests.builders import a_gpu_class, a_member, a_project, a_tenant, a_tenant_admin
from tests.roles import as_system
from tests.web.flat import flat
from tests.web.fleet_builders import a_booking

BEGIN = datetime(2026, 11, 2, tzinfo=UTC)
END = datetime(2026, 12, 28, tzinfo=UTC)
FEES = ("no_show", "setup", "late_share", "burst")
GROUPED = ("project", "lab", "person", "tier", "gpu_class", "ticket", "label:team")


def cents(micros: int) -> int:
    """Millionths to cents, half to even."""
    whole, rest = divmod(abs(micros), 10_000)
    whole += rest > 5_000 or (rest == 5_000 and whole % 2 == 1)
    return whole if micros >= 0 else -whole


def micros_of(amount: Decimal) -> int:
    return int(amount * 10**6)


class World:
    """Projects with and without a lab, people in several of them, bookings with what happened to them."""

    def __init__(self, draw: Random) -> None:
        self.draw, self.now = draw, BEGIN
        self.tenant: Tenant = a_tenant()
        self.admin = a_tenant_admin(self.tenant)
        self.paid: Counter[Any] = Counter()
        with as_system():
            for name in ("h100", "a100"):
                a_gpu_class(name)
            labs = [Lab.objects.create(tenant=self.tenant, slug=each, name=each) for each in ("bio", "ml")]
            self.projects = [a_project(self.tenant, f"p{number}") for number in range(draw.randrange(2, 6))]
            for project in self.projects:
                project.lab = draw.choice((None, *labs))
                project.save(update_fields=["lab"])
                for period in (NOVEMBER, DECEMBER):
                    budget_set(actor_id=None, project=project, period=period, amount=Decimal(5000), now=BEGIN)
            self.bookings = [self._booking() for _ in range(draw.randrange(3, 12))]

    def _booking(self) -> Booking:
        draw = self.draw
        booking = a_booking(
            a_member(draw.choice(self.projects)), now=BEGIN, tier=draw.choice(("standard", "spot"))
        )
        Booking.objects.filter(id=booking.id).update(
            planned_class=draw.choice(("h100", "a100")),
            labels=draw.choice(({}, {"team": "vision"}, {"team": "speech"})),
            external_ref=draw.choice(("", "", "HX-1", "HX-2")),
            price_per_hour=draw.choice(("2.4", "0.333333", "0")),
        )
        booking.refresh_from_db()
        return booking

    def play(self, acts: int) -> None:
        """Charges, fees and corrections over two months."""
        draw = self.draw
        for _ in range(acts):
            booking = draw.choice(self.bookings)
            self.now += timedelta(seconds=draw.randrange(1, int((END - BEGIN).total_seconds() / acts)))
            micros = draw.choice(
                (draw.randrange(1, 40_000_000), draw.randrange(1, 4_000) * 5_000, draw.randrange(1, 20_000))
            )
            act = draw.choice(("charge", "charge", "fee", "add", "refund", "refund", "all_back"))
            with as_system():
                getattr(self, f"_{act}")(booking, micros)

    def _charge(self, booking: Booking, micros: int, fee: str = "") -> None:
        amount = Decimal(micros) / 10**6
        starts = BEGIN + timedelta(days=self.draw.randrange(50))
        hold_place(
            tenant_id=self.tenant.id,
            project_id=booking.project_id,
            reference=booking.id,
            amount=amount + 1,
            starts=starts,
            ends=starts + timedelta(hours=self.draw.choice((1, 30, 200))),
            now=self.now,
        )
        peak = Decimal(0 if fee else self.draw.randrange(micros + 1)) / 10**6
        charge = Charge(amount, peak, fee)
        self.paid[booking.id] += micros_of(
            hold_settle(tenant_id=self.tenant.id, reference=booking.id, amount=charge, now=self.now)
        )

    def _fee(self, booking: Booking, micros: int) -> None:
        self._charge(booking, micros, self.draw.choice(FEES))

    def _add(self, booking: Booking, micros: int) -> None:
        if self.paid[booking.id]:
            more = Decimal(micros) / 10**6
            charge_add(tenant_id=self.tenant.id, reference=booking.id, amount=more, note="late", now=self.now)
            self.paid[booking.id] += micros

    def _refund(self, booking: Booking, micros: int) -> None:
        if back := min(micros, self.paid[booking.id]):
            less = Decimal(back) / 10**6
            charge_refund(
                tenant_id=self.tenant.id, reference=booking.id, amount=less, note="slow", now=self.now
            )
            self.paid[booking.id] -= back

    def _all_back(self, booking: Booking, _: int) -> None:
        self._refund(booking, self.paid[booking.id])

    def of_month(self, of: StatementOf) -> list[tuple[Booking, int, Project]]:
        """The transfers of a month as booking, millionths and project, straight from the ledger."""
        own = {each.account_id: each for each in Budget.objects.select_related("project__lab")}
        bookings = Booking.objects.in_bulk()
        found = []
        for each in Transfer.objects.filter(kind__in=("settle", "charge", "reverse"), tenant=self.tenant):
            back = each.kind == "reverse"
            budget = own[each.credit_id if back else each.debit_id]
            project = budget.project
            assert project is not None
            is_mine = of.project in (None, project) and (of.lab is None or project.lab_id == of.lab.id)
            if each.reference and is_mine and of.month.starts <= each.at.date() < of.month.ends:
                found.append(
                    (bookings[each.reference], micros_of(each.amount) * (-1 if back else 1), project)
                )
        return found


def name_in(by: str, booking: Booking, project: Project) -> str:
    names: dict[str, str] = {
        "project": project.slug,
        "lab": project.lab.slug if project.lab else "",
        "person": booking.owner.username,
        "tier": booking.tier_id,
        "gpu_class": booking.planned_class,
        "ticket": booking.external_ref,
        "label:team": booking.labels.get("team", ""),
    }
    return names[by]


def statements_of(world: World) -> list[StatementOf]:
    owners: list[dict[str, Any]] = [{}, *({"project": each} for each in world.projects)]
    owners += [{"lab": lab} for lab in Lab.objects.filter(tenant=world.tenant)]
    return [StatementOf(world.tenant.id, month, **each) for month in (NOVEMBER, DECEMBER) for each in owners]


def assert_statement(world: World, of: StatementOf) -> None:
    ledger = world.of_month(of)
    total = sum(micros for _, micros, _ in ledger)
    lines = list(statement_lines(of))
    assert sorted(micros_of(each.exact) for each in lines) == sorted(micros for _, micros, _ in ledger)
    for by in GROUPED:
        expected: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        for booking, micros, project in ledger:
            expected[name_in(by, booking, project)] += micros
            counts[name_in(by, booking, project)] += 1
        shown = statement_of(of, by)
        assert (micros_of(shown.totals.exact), int(shown.totals.amount * 100)) == (total, cents(total))
        assert {name: (micros_of(each.exact), each.lines) for name, each in shown.groups} == {
            name: (expected[name], counts[name]) for name in counts
        }, by
        for name, each in shown.groups:
            assert abs(each.amount * 100 - Decimal(expected[name]) / 10_000) < 1
            if by == "project":
                assert int(each.amount * 100) == cents(expected[name])
            page = group_page(of, by, name, offset=0, limit=999)
            assert sum(micros_of(line.exact) for line in page) == expected[name]
        if by != "project":
            assert sum(int(each.amount * 100) for _, each in shown.groups) == cents(total)
    assert_files(of, lines, total)
    assert_days(of)


def assert_days(of: StatementOf) -> None:
    """What each day has is what a statement of that day alone has."""
    days = [
        of.month.starts + timedelta(days=number) for number in range((of.month.ends - of.month.starts).days)
    ]
    for by in ("project", "person", "tier", "gpu_class"):
        alone = {
            (day, name): found.exact
            for day in days
            for name, found in spend_of(replace(of, month=Period(day, day + timedelta(days=1))), by).items()
        }
        assert spend_by_day(of, by) == alone


def assert_files(of: StatementOf, lines: list[Any], total: int) -> None:
    rows = list(csv.DictReader(StringIO("".join(statement_csv(lines)))))
    assert int(Decimal(rows[-1]["amount"]) * 100) == cents(total)
    assert sum(Decimal(row["amount"]) for row in rows[:-1]) * 100 == cents(total)
    focus = csv.DictReader(StringIO("".join(focus_csv(lines, ("t", "T"), of.month.starts))))
    assert sum(micros_of(Decimal(row["BilledCost"])) for row in focus) == total


def assert_page(world: World, of: StatementOf, total: int) -> None:
    client = Client()
    client.force_login(world.admin.user)
    asked = {"month": f"{of.month.starts:%Y-%m}", "project": of.owner}
    page = flat(client.get(f"/t/{world.tenant.slug}/statements", asked).content.decode())
    assert money_text(Decimal(cents(total)) / 100, "EUR") in page


def assert_budgets(world: World) -> None:
    """What budgets say is spent, by what the ledger has debited."""
    for budget in Budget.objects.filter(project__in=world.projects):
        spent, project_id = 0, budget.project_id
        assert project_id is not None
        for each in Transfer.objects.filter(kind__in=("settle", "charge", "reverse")):
            if budget.account_id in (each.debit_id, each.credit_id):
                spent += micros_of(each.amount) * (-1 if each.kind == "reverse" else 1)
        at = datetime.combine(budget.starts, datetime.min.time(), UTC)
        figures = budget_figures(project_id=project_id, at=at)
        assert figures is not None
        assert micros_of(figures.spent) == spent


@pytest.mark.turn
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 16))])
def test_every_sum_of_random_statements_is_the_ledgers(db: None, seed: int) -> None:
    """By month, project and lab; by groups; in the files, on the page and in budgets."""
    world = World(Random(seed))  # noqa: S311 (not a secret)
    world.play(60)
    with as_system():
        every = statements_of(world)
        for of in every:
            assert_statement(world, of)
        assert_budgets(world)
        totals = [sum(micros for _, micros, _ in world.of_month(of)) for of in every]
    for of, total in zip(every, totals, strict=True):
        assert_page(world, of, total)
