"""Statements of a month: their pages, who reads them, and months that stay closed."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from allocation.models import Booking
from allocation.queries.bookings.money.statements import (
    GROUPS,
    Statement,
    StatementOf,
    group_page,
    spend_by_day,
    statement_lines,
    statement_of,
    statement_page,
)
from allocation.rules.ask import AskDocument, AskGroup
from billing.focus import (
    StatementLine,
    Totals,
)
from billing.models import Transfer
from billing.queries import budget_figures
from billing.rules import cents_of, money_text
from billing.services import (
    budget_set,
    charge_add,
    charge_refund,
    hold_place,
    hold_settle,
    month_close,
)
from tenants.models import Project, Role, Tenant
from tenants.platform.errors import Refused
from tests.api.builders import Api, a_token, said
from tests.billing.builders import NOVEMBER, NOW
from tests.builders import a_member, a_project, a_tenant, a_tenant_admin, a_tier, actor_now
from tests.prices import price_book_publish
from tests.roles import as_system
from tests.web.flat import flat
from tests.web.fleet_builders import a_booking, a_model

pytestmark = pytest.mark.turn

DECEMBER_2 = datetime(2026, 12, 2, 1, tzinfo=UTC)


class Site:
    """A project with one charged and corrected run."""

    def __init__(self) -> None:
        self.tenant: Tenant = a_tenant("helix", name="Helix Institute")
        self.project: Project = a_project(self.tenant, "folding", name="Protein folding")
        self.member = a_member(self.project, Role.RESEARCHER)
        self.admin = a_tenant_admin(self.tenant)
        with as_system():
            budget_set(actor_id=None, project=self.project, period=NOVEMBER, amount=Decimal(100), now=NOW)
            self.booking = a_booking(self.member, now=NOW)
            Booking.objects.update(labels={"team": "vision"})
            self.charge("12.345678")

    def charge(self, amount: str, now: datetime = NOW) -> None:
        """Holds and charges an amount."""
        hold_place(
            tenant_id=self.tenant.id,
            project_id=self.project.id,
            reference=self.booking.id,
            amount=Decimal(amount),
            starts=NOW,
            ends=NOW + timedelta(hours=1),
            now=now,
        )
        hold_settle(tenant_id=self.tenant.id, reference=self.booking.id, amount=Decimal(amount), now=now)

    def add(self, amount: str, now: datetime) -> None:
        """Charges more, as an operator."""
        charge_add(
            tenant_id=self.tenant.id,
            reference=self.booking.id,
            amount=Decimal(amount),
            note="late",
            now=now,
        )

    def refund(self, amount: str, now: datetime) -> None:
        """Refunds an amount, as an operator."""
        charge_refund(
            tenant_id=self.tenant.id,
            reference=self.booking.id,
            amount=Decimal(amount),
            note="slow",
            now=now,
        )

    def client(self, *, admin: bool = False) -> Client:
        """A browser of the admin or of the researcher."""
        client = Client()
        client.force_login((self.admin if admin else self.member).user)
        return client


@pytest.fixture
def site(db: None) -> Site:
    return Site()


def test_a_statement_has_charges_and_corrections_of_its_month(site: Site) -> None:
    with as_system():
        site.refund("2.1", now=NOW + timedelta(seconds=1))
        site.add("1", now=DECEMBER_2)
        statement = statement_of(of := StatementOf(site.tenant.id, NOVEMBER))
        lines = list(statement_lines(of))
    assert [(line.kind, line.amount) for line in lines] == [
        ("settle", Decimal("12.35")),
        ("reverse", Decimal("-2.10")),
    ]
    assert [line.labels for line in lines] == [{"team": "vision"}] * 2
    assert statement.totals.exact == Decimal("10.245678")
    ((who, sums),) = statement.groups
    assert (who, sums.amount) == (site.member.user.username, Decimal("10.25"))


def sum_of(lines: list[StatementLine]) -> Totals:
    """The sums of the lines."""
    found = Totals()
    for line in lines:
        found.add(line)
    return found


def assert_groups(found: Statement, by: str, expected: dict[str, Totals]) -> None:
    """The groups are those of the lines; all but those of projects add up to the total in cents."""
    shown = dict(found.groups)
    for name, each in expected.items():
        each.amount = each.rounded if by == "project" else shown[name].amount
        assert abs(each.amount - each.exact) < Decimal("0.01")
    assert shown == expected
    if by != "project":
        assert sum(each.amount for each in shown.values()) == found.totals.amount


def test_the_kept_sums_are_those_of_the_lines_in_every_grouping(site: Site) -> None:
    """Half cents on both sides, corrections, two projects, two days and a duplicate of a charge."""
    random = Random(15)  # noqa: S311 (not a secret)
    folding, other = site.project, a_project(site.tenant, "cryo")
    with as_system():
        budget_set(actor_id=None, project=other, period=NOVEMBER, amount=Decimal(100), now=NOW)
        for number in range(12):
            project = other if number % 3 else folding
            site.project, tier = project, ("standard", "spot")[number % 2]
            site.booking = a_booking(a_member(project), now=NOW, tier=tier)
            labels = {"team": f"t{number % 2}"} if number % 3 else {}
            Booking.objects.filter(id=site.booking.id).update(
                labels=labels, external_ref=labels.get("team", "")
            )
            now = NOW + timedelta(hours=5 * number)
            site.charge(f"0.{random.randrange(1, 999)}5", now=now)
            hold_settle(tenant_id=site.tenant.id, reference=site.booking.id, amount=Decimal(1), now=now)
            site.add("0.125", now=now)
            site.refund("0.115", now=now)
        for of_project in (None, folding, other):
            of = StatementOf(site.tenant.id, NOVEMBER, of_project)
            lines = list(statement_lines(of))
            for by in (*GROUPS, "label:team"):
                expected: dict[str, Totals] = {}
                for line in lines:
                    team = line.labels.get("team", "")
                    ticket = "" if team == "vision" else team
                    known = {"ticket": ticket, "lab": ""}
                    name = known[by] if by in known else getattr(line, by, team)
                    expected.setdefault(name, Totals()).add(line)
                assert_groups(statement_of(of, by), by, expected)
                for name, sums in expected.items():
                    page = group_page(of, by, name, offset=0, limit=99)
                    assert replace(sum_of(page), amount=sums.amount) == sums
            pages = [statement_page(of, offset=first, limit=5) for first in range(0, 50, 5)]
            assert [line for page in pages for line in page] == lines[::-1]


def test_a_charge_that_is_given_back_in_parts_leaves_nothing(site: Site) -> None:
    """14.384 and 4.795, 4.795 and 4.794: rounded one by one they leave −0.01."""
    with as_system():
        site.booking = a_booking(site.member, now=NOW)
        site.charge("14.384", now=NOW + timedelta(minutes=1))
        for minute, amount in enumerate(("4.795", "4.795", "4.794"), 2):
            site.refund(amount, now=NOW + timedelta(minutes=minute))
        lines = list(statement_lines(StatementOf(site.tenant.id, NOVEMBER)))[1:]
        (last,) = statement_page(StatementOf(site.tenant.id, NOVEMBER), offset=0, limit=1)
    assert [line.amount for line in lines] == [
        Decimal("14.38"),
        Decimal("-4.79"),
        Decimal("-4.80"),
        Decimal("-4.79"),
    ]
    assert last == lines[-1], "a page knows the lines before it"


def random_histories(site: Site, random: Random) -> None:
    """Charges and refunds of 24 bookings in two projects, some given back to the last digit."""
    folding, other, minute = site.project, a_project(site.tenant, "cryo"), 0
    budget_set(actor_id=None, project=other, period=NOVEMBER, amount=Decimal(900), now=NOW)
    for number in range(24):
        site.project, left = other if number % 2 else folding, 0
        site.booking = a_booking(a_member(site.project), now=NOW)
        for _ in range(random.randrange(1, 6)):
            minute += 1
            now = NOW + timedelta(minutes=minute)
            micros = random.randrange(1, 10**6) // 1_000 * 1_000 + random.choice((5, 7))
            if left and random.random() < 0.6:
                micros = random.choice((left, random.randrange(1, left + 1)))
                site.refund(str(Decimal(micros) / 10**6), now=now)
                left -= micros
            else:
                site.charge(str(Decimal(micros) / 10**6), now=now)
                left += micros


def test_random_charges_and_refunds_add_up_by_booking_by_project_and_in_all(site: Site) -> None:
    """Each booking's lines to its ledger sum in cents, each project's sum to its budget."""
    of = StatementOf(site.tenant.id, NOVEMBER)
    with as_system():
        random_histories(site, Random(32))  # noqa: S311 (not a secret)
        lines, whole = list(statement_lines(of)), statement_of(of, "project")
        for project in Project.objects.filter(tenant=site.tenant):
            figures = budget_figures(project_id=project.id, at=NOW)
            assert figures is not None
            own = statement_of(StatementOf(site.tenant.id, NOVEMBER, project)).totals
            assert own.amount == cents_of(figures.spent)
            assert dict(whole.groups)[project.slug].amount == own.amount
    bookings: dict[str, list[StatementLine]] = {}
    for line in lines:
        bookings.setdefault(line.booking, []).append(line)
        assert abs(line.amount - line.exact) <= Decimal("0.01")
    assert len(bookings) == 25
    for mine in bookings.values():
        assert sum_of(mine).amount == sum_of(mine).rounded
    assert whole.totals.amount == sum_of(lines).rounded


def test_a_charge_keeps_the_class_and_the_tier_that_its_booking_had(site: Site) -> None:
    with as_system():
        first = Booking.objects.get()
        a_tier("premium")
        Booking.objects.update(planned_class="l40s", tier_id="premium")
        site.charge("4", now=NOW + timedelta(hours=1))
        of = StatementOf(site.tenant.id, NOVEMBER)
        for by, before, after in (
            ("gpu_class", first.planned_class, "l40s"),
            ("tier", first.tier_id, "premium"),
        ):
            kept = {name: sums.exact for name, sums in statement_of(of, by).groups}
            assert kept == {before: Decimal("12.345678"), after: Decimal(4)}
            for name, amount in kept.items():
                assert [line.exact for line in group_page(of, by, name, offset=0, limit=9)] == [amount]
        lines = [(line.gpu_class, line.tier) for line in statement_lines(of)]
    assert lines == [(first.planned_class, first.tier_id), ("l40s", "premium")]


def test_a_page_of_a_statement_reads_as_many_rows_at_any_size(site: Site) -> None:
    def page(number: str) -> tuple[str, list[str]]:
        form = {"month": "2026-11", "page": number}
        with CaptureQueriesContext(connection) as queries:
            shown = site.client(admin=True).get("/t/helix/statements", form).content.decode()
            return " ".join(shown.split()), [each["sql"] for each in queries.captured_queries]

    page("1")
    _, before = page("9" * 5000)
    with as_system():
        for _ in range(120):
            site.charge("0.01")
    shown, after = page("1")
    assert "1 to 25 of 121, the latest first" in shown
    assert "101 to 121 of 121" in page("5")[0]
    assert len(after) == len(before) > 0
    ledger = [sql for sql in after if "FROM billing_transfer" in sql]
    assert len(ledger) == 2
    assert all("LIMIT 25" in sql or "t.id = ANY" in sql for sql in ledger)


def test_the_total_is_what_the_budgets_show(site: Site) -> None:
    with as_system():
        for _ in range(3):
            site.charge("1.004")
    shown = site.client().get("/t/helix/statements", {"month": "2026-11"}).content.decode()
    with as_system():
        figures = budget_figures(project_id=site.project.id, at=NOW)
    # 12.345678 + 3.012; rounded one by one the lines would have 12.35 + 3 × 1.00.
    assert "€15.35" not in shown
    assert "€15.36" in shown
    # Four lines of one project and person, by their names, are all of the month.
    for by, label in (("project", site.project.name), ("person", site.member.user.display_name)):
        form = {"month": "2026-11", "by": by}
        sums = site.client().get("/t/helix/statements", form).content.decode()
        assert f'aria-label="{label}: 100 %"' in sums
    assert figures is not None
    assert money_text(figures.spent, "EUR") == "€15.36"


def test_a_sum_that_differs_from_the_ledgers_by_a_cent_says_so(site: Site) -> None:
    """12.345678 and 1.007 are 13.35 in all, and rounded one by one 13.36."""
    api = Api(a_token(actor_now(site.admin.user_id, "helix")))
    with as_system():
        site.booking = a_booking(site.member, now=NOW, tier="spot")
        site.charge("1.007")
    for by, amounts in (("tier", ["12.34", "1.01"]), ("project", ["13.35"])):
        found = said(api.get("statements", month="2026-11", by=by))
        exact = [Decimal(each["exact"]) for each in found["sums"]]
        assert [each["amount"] for each in found["sums"]] == amounts
        assert sum(map(Decimal, amounts)) == Decimal(found["amount"])
        assert sum(exact) == Decimal(found["exact"]) == Decimal("13.352678")
        page = site.client(admin=True).get("/t/helix/statements", {"month": "2026-11", "by": by})
        assert ("a cent more or less than on other pages" in flat(page.content.decode())) == (by == "tier")


def test_sums_that_do_not_add_up_have_their_rounding_with_them(site: Site) -> None:
    """Two projects of 12.345678 and 1.007 are 12.35 and 1.01 as in their budgets, 13.35 in all."""
    with as_system():
        site.project = a_project(site.tenant, "cryo")
        budget_set(actor_id=None, project=site.project, period=NOVEMBER, amount=Decimal(9), now=NOW)
        site.booking = a_booking(a_member(site.project), now=NOW)
        site.charge("1.007")
    asked = {"month": "2026-11", "by": "project"}
    page = flat(site.client(admin=True).get("/t/helix/statements", asked).content.decode())
    foot = page.partition("<tfoot>")[2].partition("</tfoot>")[0]
    assert ("€12.35" in page, "€1.01" in page) == (True, True)
    assert ("Rounding" in foot, "\u2212€0.01" in foot, "€13.35" in foot) == (True, True, True)
    by_person = site.client(admin=True).get("/t/helix/statements", asked | {"by": "person"})
    foot = flat(by_person.content.decode()).partition("<tfoot>")[2].partition("</tfoot>")[0]
    assert ("Rounding" in foot, "€13.35" in foot) == (False, True)


def test_a_closed_month_takes_no_transfer_and_is_closed_by_admins_only(site: Site) -> None:
    admin = actor_now(site.admin.user_id, "helix")
    with as_system():
        for actor, now, code in [
            (actor_now(site.member.user_id, "helix"), DECEMBER_2, "not_allowed"),
            (admin, NOW, "month_not_over"),
        ]:
            with pytest.raises(Refused) as refusal:
                month_close(actor=actor, month=NOVEMBER.starts, now=now)
            assert refusal.value.code == code
        month_close(actor=admin, month=NOVEMBER.starts, now=DECEMBER_2)
        before = Transfer.objects.count()
        with pytest.raises(IntegrityError, match="closed"), transaction.atomic():
            site.charge("1")
        assert Transfer.objects.count() == before
        site.charge("1", now=DECEMBER_2)
        with pytest.raises(Refused, match="month_closed"):
            month_close(actor=admin, month=NOVEMBER.starts, now=DECEMBER_2)


def test_people_read_statements_of_their_projects_and_admins_of_all(site: Site) -> None:
    hidden = a_project(site.tenant, "hidden")
    member, admin = site.client(), site.client(admin=True)
    page = "/t/helix/statements"
    assert "€12.35" in admin.get(page, {"month": "2026-11", "by": "gpu_class"}).content.decode()
    mara = site.member.user.username
    only = {"month": "2026-11", "by": "person", "only": mara}
    assert f"of {mara}," in admin.get(page, only).content.decode()
    sums = admin.get(f"{page}/2026-11/sums.csv", {"by": "person"}).content.decode()
    assert sums.splitlines()[1].startswith(f"{mara},1,0,12.35,")
    assert admin.get(f"{page}/2026-11/sums.csv", {"by": "shoe"}).status_code == 422
    mine = member.get(page, {"month": "2026-11"}).content.decode()
    assert "€12.35" in mine
    assert "all projects" not in mine
    for kind, start in [
        ("csv", b"at,"),
        ("pdf", b"%PDF-"),
        ("focus.csv", b"BilledCost,"),
        ("focus.parquet", b"PAR1"),
    ]:
        answer = member.get(f"{page}/2026-11.{kind}")
        assert answer.getvalue().startswith(start)
        assert int(answer["Content-Length"]) > 100
        assert "attachment" in answer["Content-Disposition"]
        assert member.get(f"{page}/2026-11.{kind}", {"project": hidden.slug}).status_code == 404
    assert member.get(f"{page}/2026-11.exe").status_code == 404
    assert member.get(f"{page}/nonsense.csv").status_code == 422
    assert member.post(page, {"month": "2020-01", "sure": "1"}).status_code == 403
    assert "can't be undone" in admin.post(page, {"month": "2020-01"}).content.decode().replace("&#x27;", "'")
    assert admin.post(page, {"month": "2020-01", "sure": "1"}).status_code == 302
    assert "closed on" in admin.get(page, {"month": "2020-01"}).content.decode()


def test_the_class_of_each_group_has_its_part_of_a_charge(site: Site) -> None:
    a_model()
    a_model("l40s")
    with as_system():
        prices = {("h100", "standard"): Decimal(4), ("l40s", "standard"): Decimal(1)}
        book = price_book_publish(actor_id=None, valid_from=NOW, prices=prices, now=NOW)
        site.booking = a_booking(a_member(site.project), now=NOW)
        ask = AskDocument.from_json(site.booking.ask)
        mixed = replace(ask, groups=(AskGroup("l40s", 2),))
        Booking.objects.filter(id=site.booking.id).update(
            ask=mixed.to_json(),
            price_version=book.version,
            price_per_hour=Decimal(6),
        )
        site.charge("3")
        of = StatementOf(site.tenant.id, NOVEMBER)
        before = statement_of(of, "tier").totals
        sums = dict(statement_of(of, "gpu_class").groups)
        (line,) = group_page(of, "gpu_class", "l40s", offset=0, limit=9)
        assert statement_of(of, "gpu_class").totals == before
        days = spend_by_day(of, "gpu_class")
    assert (line.gpu_class, line.exact) == ("l40s", Decimal(1))
    assert (sums["l40s"].exact, sums["h100"].exact) == (Decimal(1), Decimal("14.345678"))
    assert sum_by_name(days) == {name: each.exact for name, each in sums.items()}
    assert days[line.at.date(), "l40s"] == Decimal(1)


def sum_by_name(days: dict[tuple[date, str], Decimal]) -> dict[str, Decimal]:
    return {name: sum((days[each] for each in days if each[1] == name), Decimal()) for _, name in days}
