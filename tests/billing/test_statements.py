"""Statements: lines that add up, files that other programs take, months that stay closed."""

import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import BytesIO, StringIO
from random import Random
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from allocation.models import Booking
from allocation.queries.bookings.statements import (
    GROUPS,
    StatementOf,
    group_page,
    statement_lines,
    statement_of,
    statement_page,
)
from allocation.rules.ask import AskDocument, AskGroup
from billing.focus import (
    FOCUS_COLUMNS,
    ClassShare,
    LineUse,
    StatementLine,
    Totals,
    focus_csv,
    focus_rows,
    statement_csv,
)
from billing.focus.csv_files import STATEMENT_COLUMNS
from billing.focus.lines import ZERO
from billing.focus.parquet import focus_parquet
from billing.models import Transfer
from billing.queries import budget_figures
from billing.rates import Rate, Spell
from billing.rules import money_text
from billing.services import (
    budget_set,
    charge_add,
    charge_refund,
    hold_place,
    hold_settle,
    month_close,
    price_book_publish,
)
from billing.web.statement_pdf import statement_pdf
from tenants.models import Project, Role, Tenant
from tenants.platform.errors import Refused
from tests.billing.builders import NOVEMBER, NOW
from tests.builders import a_member, a_project, a_tenant, a_tenant_admin, actor_now
from tests.roles import as_system
from tests.web.fleet_builders import a_booking, a_model

DECEMBER_2 = datetime(2026, 12, 2, 1, tzinfo=UTC)


def a_line(exact: str = "4.8", **more: object) -> StatementLine:
    facts: dict[str, object] = {
        "transfer": uuid4(), "at": NOW, "kind": "settle", "booking": "BK-7", "name": "run",
        "project": "folding", "person": "mara", "campaign": "", "tier": "standard",
        "gpu_class": "h100", "per_hour": Decimal("2.4"), "peak_per_hour": Decimal(3),
        "surcharge": Decimal(0), "exact": Decimal(exact), "currency": "EUR", "note": "",
        "fee": "", "day": NOW.date(), "labels": {},
    }  # fmt: skip
    return StatementLine(**(facts | more))  # type: ignore[arg-type]


def rows_of(text: Iterator[str]) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO("".join(text))))


def cents_half_even(micros: int) -> int:
    """The oracle's rounding, in whole numbers: millionths to cents."""
    whole, rest = divmod(abs(micros), 10_000)
    whole += rest > 5_000 or (rest == 5_000 and whole % 2 == 1)
    return whole if micros >= 0 else -whole


def a_random_line(draw: Random) -> tuple[StatementLine, int]:
    """A charge, fee or correction, and its millionths."""
    kind = draw.choice(("settle", "settle", "charge", "reverse"))
    micros = draw.randrange(10**9) if draw.random() < 0.7 else draw.randrange(10**5) * 5_000
    micros = -micros if kind == "reverse" else micros
    fee = draw.choice(("", "", "no_show")) if kind == "settle" else ""
    peak = draw.randrange(micros + 1) if kind == "settle" and not fee else 0
    line = a_line(
        str(Decimal(micros) / 10**6), kind=kind, fee=fee, booking=f"BK-{draw.randrange(3)}",
        surcharge=Decimal(peak) / 10**6,
    )  # fmt: skip
    return line, micros


@pytest.mark.parametrize("months", [1_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_the_lines_of_random_months_add_up_to_the_last_digit(months: int) -> None:
    """In the sums, the CSV and the FOCUS file, against an oracle that counts in whole numbers."""
    draw = Random(6)  # noqa: S311 (not a secret)
    for _ in range(months):
        drawn = [a_random_line(draw) for _ in range(draw.randrange(1, 7))]
        lines, micros = [line for line, _ in drawn], [each for _, each in drawn]
        cents = Decimal(sum(map(cents_half_even, micros))) / 100
        total = Totals()
        for line in lines:
            total.add(line)
        assert (total.amount, total.exact) == (cents, Decimal(sum(micros)) / 10**6)
        uses = {
            f"BK-{number}": LineUse(ZERO, Decimal(draw.randrange(10**9)) / 10**6, ZERO, None)
            for number in range(draw.randrange(3))
        }
        *_, last = statement_csv(lines, uses)
        row = next(csv.reader([last]))
        at = STATEMENT_COLUMNS.index
        assert (Decimal(row[at("amount")]), Decimal(row[at("exact")])) == (cents, total.exact)
        focus = focus_rows(lines, ("helix", "Helix"), NOVEMBER.starts, uses)
        billed = [each["BilledCost"] for each in focus]
        assert sum(billed) == total.exact  # type: ignore[arg-type]


def test_a_csv_ends_with_its_sums_and_holds_no_formula() -> None:
    rows = rows_of(statement_csv([a_line("1.005"), a_line("-2", kind="reverse", name="=1+1")]))
    assert [row["amount"] for row in rows] == ["1.00", "-2.00", "-1.00"]
    assert (rows[1]["name"], rows[1]["hours"], rows[0]["hours"]) == ("'=1+1", "", "0.418750")
    assert (rows[2]["at"], rows[2]["exact"]) == ("total", "-0.995")


# Published rules of FOCUS 1.2 that these rows can break: columns that must not be empty, and the
# values that are allowed.
NEVER_EMPTY = (
    "BilledCost", "BillingAccountId", "BillingAccountType", "BillingCurrency", "BillingPeriodStart",
    "BillingPeriodEnd", "ChargeCategory", "ChargePeriodStart", "ChargePeriodEnd", "ContractedCost",
    "EffectiveCost", "InvoiceIssuerName", "ListCost", "ProviderName", "PublisherName",
    "ServiceCategory", "ServiceName", "ServiceSubcategory",
)  # fmt: skip
NULLABLE = (
    "BillingAccountName",
    "ChargeClass",
    "ChargeDescription",
    "PricingQuantity",
    "PricingUnit",
)


def test_the_focus_export_keeps_the_published_rules_of_its_columns() -> None:
    lines = [
        a_line(day=date(2026, 10, 30), campaign="ablation"),
        a_line("-1.5", kind="reverse", note="Node was slow"),
        a_line("3", name="=HYPERLINK(1)"),
        # An hour at 2.40, and two in peak hours at 3.00.
        a_line("8.4", surcharge=Decimal("1.2")),
    ]
    rows = rows_of(focus_csv(lines, ("helix", "Helix Institute"), NOVEMBER.starts))
    assert set(NEVER_EMPTY) | set(NULLABLE) <= set(FOCUS_COLUMNS)
    assert len(set(FOCUS_COLUMNS)) == len(FOCUS_COLUMNS)
    for row in rows:
        assert [name for name in NEVER_EMPTY if not row[name]] == []
        assert row["ChargeCategory"] in ("Usage", "Purchase", "Tax", "Credit", "Adjustment")
        assert row["ChargeClass"] in ("", "Correction")
        assert row["ChargeFrequency"] in ("One-Time", "Recurring", "Usage-Based")
        assert row["ServiceCategory"] == "Compute"
        assert len(row["BillingCurrency"]) == 3
        for name in ("BillingPeriod", "ChargePeriod"):
            first, last = (datetime.fromisoformat(row[f"{name}{end}"]) for end in ("Start", "End"))
            assert first < last
        # A quantity has a unit, a price has a category, and they multiply to the cost.
        assert (
            bool(row["PricingQuantity"]) == bool(row["PricingUnit"]) == bool(row["PricingCategory"])
        )
        assert bool(row["ConsumedQuantity"]) == bool(row["ConsumedUnit"])
        if row["PricingQuantity"]:
            cost = Decimal(row["PricingQuantity"]) * Decimal(row["ListUnitPrice"])
            assert abs(cost - Decimal(row["ListCost"])) < Decimal("0.00001")
        assert isinstance(json.loads(row["Tags"]), dict)
    assert (rows[1]["ChargeClass"], rows[1]["PricingQuantity"]) == ("Correction", "")
    assert rows[2]["ResourceName"].startswith("'=")
    assert [(row["PricingQuantity"], row["ListUnitPrice"]) for row in rows[3:]] == [
        ("1.000000", "2.4"),
        ("2.000000", "3"),
    ]
    assert sum(Decimal(row["BilledCost"]) for row in rows) == Decimal("14.7")


def test_the_parts_of_random_lines_add_up_to_the_last_digit() -> None:
    random = Random(8)  # noqa: S311 (not a secret)
    for _ in range(2_000):
        plain, rise = (Decimal(random.randrange(1, 10**7)) / 10**6 for _ in range(2))
        seconds = random.randrange(1, 10**6)
        peak = random.randrange(seconds + 1)
        rate = Rate(plain, plain + rise)
        spell = Spell(seconds, peak)
        line = a_line(
            str(rate.cost(spell)), per_hour=plain, peak_per_hour=plain + rise,
            surcharge=rate.surcharge(spell),
        )  # fmt: skip
        assert sum(part.exact for part in line.parts()) == line.exact
        step = Decimal("0.000002") / min(plain, rise)
        assert abs((line.hours or 0) - Decimal(seconds) / 3600) <= step + Decimal("0.000001")
        assert abs((line.peak_hours or 0) - Decimal(peak) / 3600) <= step + Decimal("0.000001")


def test_a_pdf_of_the_same_lines_is_the_same_file() -> None:
    lines = [a_line(name="<b>&</b>" * 9), a_line("-3", kind="reverse")]
    first, second, other = (pdf_of(each) for each in (lines, lines, lines[:1]))
    assert first == second != other
    assert first.startswith(b"%PDF-")
    # 51 rows fit on the first page: every line of a long statement is on one of many.
    assert pdf_of([a_line()] * 4_000).count(b"/Type /Page\n") > 70


def pdf_of(lines: list[StatementLine]) -> bytes:
    file = BytesIO()
    statement_pdf("Statement", ["Helix"], lines, file)
    return file.getvalue()


USES = {
    "BK-7": LineUse(Decimal(2), Decimal("4.8"), Decimal("1.5"), Decimal("0.6")),
    "BK-9": LineUse(Decimal(1), Decimal("2.4"), Decimal("0.5"), None),
}


def test_unused_time_and_energy_are_columns_of_a_statement_that_add_up() -> None:
    rows = rows_of(statement_csv([a_line("3"), a_line("6")], USES))
    assert [(row["unused_hours"], row["energy_kwh"], row["amount"]) for row in rows] == [
        ("2", "1.5", "3.00"),
        ("", "", "6.00"),
        ("1", "0.5", ""),
        ("3", "2.0", "9.00"),
    ]
    assert [row["kind"] for row in rows] == ["settle", "settle", "use", ""]
    assert [row["co2_kg"] for row in rows] == ["0.6", "", "", "0.6"]


def test_unused_time_is_rows_of_its_own_in_the_focus_export() -> None:
    lines = [a_line("3"), a_line("-1", kind="reverse"), a_line("6"), a_line("1", booking="BK-8")]
    rows = rows_of(focus_csv(lines, ("helix", "Helix"), NOVEMBER.starts, USES))
    shown = [
        (row["CapacityReservationStatus"], row["BilledCost"], row["x_EnergyKwh"]) for row in rows
    ]
    assert shown == [
        ("Unused", "3", "1.5"),
        ("", "-1", ""),
        ("Used", "4.2", ""),
        ("Unused", "1.8", ""),
        ("Used", "1", ""),
    ]
    assert sum(Decimal(row["BilledCost"]) for row in rows) == 9


def test_a_parquet_file_has_the_rows_of_the_csv_file_with_types() -> None:
    lines = [a_line("8.4", surcharge=Decimal("1.2"), labels={"team": "vision"}), a_line("3")]
    lines += [a_line("-1.5", kind="reverse", note="Node was slow")] * 3
    file, owner = BytesIO(), ("helix", "Helix")
    focus_parquet(iter(lines), owner, NOVEMBER.starts, USES, file)
    table = pq.read_table(file)
    assert table.schema.field("BilledCost").type == pa.decimal128(20, 6)
    assert table.schema.field("BillingPeriodStart").type == pa.timestamp("us", tz="UTC")
    rows = rows_of(focus_csv(lines, owner, NOVEMBER.starts, USES))
    read = table.to_pylist()
    assert len(read) == len(rows) > len(lines)
    for found, row in zip(read, rows, strict=True):
        assert found["BilledCost"] == Decimal(row["BilledCost"])
        assert found["ChargePeriodEnd"] == datetime.fromisoformat(row["ChargePeriodEnd"])
        assert dict(found["Tags"]) == json.loads(row["Tags"])
        assert (found["ChargeClass"] or "") == row["ChargeClass"]
        assert found["PricingQuantity"] == (Decimal(row["PricingQuantity"] or 0) or None)


class Site:
    """A project with one charged and corrected run."""

    def __init__(self) -> None:
        self.tenant: Tenant = a_tenant("helix", name="Helix Institute")
        self.project: Project = a_project(self.tenant, "folding", name="Protein folding")
        self.member = a_member(self.project, Role.RESEARCHER)
        self.admin = a_tenant_admin(self.tenant)
        with as_system():
            budget_set(
                actor_id=None, project=self.project, period=NOVEMBER, amount=Decimal(100), now=NOW
            )
            self.booking = a_booking(self.member, now=NOW)
            Booking.objects.update(labels={"team": "vision"})
            self.charge("12.345678")

    def charge(self, amount: str, now: datetime = NOW) -> None:
        """Holds and charges an amount."""
        hold_place(
            tenant_id=self.tenant.id, project_id=self.project.id, reference=self.booking.id,
            amount=Decimal(amount), starts=NOW, ends=NOW + timedelta(hours=1), now=now,
        )  # fmt: skip
        hold_settle(
            tenant_id=self.tenant.id, reference=self.booking.id, amount=Decimal(amount), now=now
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
        at = {"tenant_id": site.tenant.id, "reference": site.booking.id}
        charge_refund(**at, amount=Decimal("2.1"), note="slow", now=NOW + timedelta(seconds=1))
        charge_add(**at, amount=Decimal(1), note="late", now=DECEMBER_2)
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
            hold_settle(
                tenant_id=site.tenant.id, reference=site.booking.id, amount=Decimal(1), now=now
            )
            at = {"tenant_id": site.tenant.id, "reference": site.booking.id}
            charge_add(**at, amount=Decimal("0.125"), note="late", now=now)
            charge_refund(**at, amount=Decimal("0.115"), note="slow", now=now)
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
                assert dict(statement_of(of, by).groups) == expected
                for name, sums in expected.items():
                    assert sum_of(group_page(of, by, name, offset=0, limit=99)) == sums
            pages = [statement_page(of, offset=first, limit=5) for first in range(0, 50, 5)]
            assert [line for page in pages for line in page] == lines[::-1]


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
    assert "1 to 100 of 121, the latest first" in shown
    assert "101 to 121 of 121" in page("2")[0]
    assert len(after) == len(before) > 0
    ledger = [sql for sql in after if "FROM billing_transfer" in sql]
    assert len(ledger) == 2
    assert all("LIMIT 100" in sql or "t.id = ANY" in sql for sql in ledger)


def test_the_page_says_why_its_total_differs_from_the_budgets(site: Site) -> None:
    with as_system():
        for _ in range(3):
            site.charge("1.004")
    shown = site.client().get("/t/helix/statements", {"month": "2026-11"}).content.decode()
    with as_system():
        figures = budget_figures(project_id=site.project.id, at=NOW)
    # 12.35 + 3 × 1.00 in the lines; 12.345678 + 3.012 in the ledger.
    assert "€15.35" in shown
    assert "rounding each to cents takes €0.01" in shown
    assert "€15.36" in shown
    assert "15.357678 EUR" in shown
    assert figures is not None
    assert money_text(figures.spent, "EUR") == "€15.36"


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
    assert "can't be undone" in admin.post(page, {"month": "2020-01"}).content.decode().replace(
        "&#x27;", "'"
    )
    assert admin.post(page, {"month": "2020-01", "sure": "1"}).status_code == 302
    assert "closed on" in admin.get(page, {"month": "2020-01"}).content.decode()


def a_mixed_line(exact: str = "39", **more: object) -> StatementLine:
    """Three hours of 2 H100 and 4 L40S at 12 an hour together, of which an hour in peak hours."""
    shares = (ClassShare("h100", "", Decimal(8)), ClassShare("l40s", "", Decimal(4)))
    facts: dict[str, object] = {
        "per_hour": Decimal(12), "peak_per_hour": Decimal(15), "surcharge": Decimal(3),
        "shares": shares,
    }  # fmt: skip
    return a_line(exact, **(facts | more))


def test_a_booking_of_several_classes_has_a_line_for_each_that_add_up() -> None:
    lines = a_mixed_line().by_class()
    found = [(each.gpu_class, each.exact, each.hours, each.peak_hours) for each in lines]
    assert found == [("h100", 26, 3, 1), ("l40s", 13, 3, 1)]
    rows = rows_of(statement_csv([a_mixed_line()]))
    assert [row["gpu_class"] for row in rows] == ["h100", "l40s", ""]
    focus = list(focus_rows([a_mixed_line()], ("helix", "Helix"), NOVEMBER.starts, {}))
    assert {row["SkuId"] for row in focus} == {"h100/standard", "l40s/standard"}
    assert sum(row["BilledCost"] for row in focus) == 39  # type: ignore[misc]  # a Decimal
    assert len(a_mixed_line(fee="no_show").by_class()) == 1
    draw = Random(7)  # noqa: S311 (not a secret)
    for _ in range(300):
        exact = Decimal(draw.randrange(-(10**9), 10**9)) / 10**6
        shares = tuple(
            ClassShare(name, "", Decimal(draw.randrange(1, 10**6)) / 1_000) for name in "abcd"
        )
        line = a_mixed_line(str(exact), shares=shares)
        for name in ("amount", "exact", "surcharge", "per_hour"):
            assert sum(getattr(each, name) for each in line.by_class()) == getattr(line, name)


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
            ask=mixed.to_json(), price_version=book.version,
            price_per_hour=Decimal(6),
        )  # fmt: skip
        site.charge("3")
        of = StatementOf(site.tenant.id, NOVEMBER)
        before = statement_of(of, "tier").totals
        sums = dict(statement_of(of, "gpu_class").groups)
        (line,) = group_page(of, "gpu_class", "l40s", offset=0, limit=9)
        assert statement_of(of, "gpu_class").totals == before
    assert (line.gpu_class, line.exact) == ("l40s", Decimal(1))
    assert (sums["l40s"].exact, sums["h100"].exact) == (Decimal(1), Decimal("14.345678"))
