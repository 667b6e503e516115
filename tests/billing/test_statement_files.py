"""Files of statements: lines that add up, in formats that other programs read."""

import base64
import csv
import json
import re
import zlib
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from io import BytesIO, StringIO
from random import Random
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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
from billing.focus.lines import ZERO
from billing.focus.parquet import focus_parquet
from billing.rates import Rate, Spell
from billing.web.statement_pdf import statement_pdf
from tests.billing.builders import NOVEMBER, NOW


def a_line(exact: str = "4.8", **more: object) -> StatementLine:
    facts: dict[str, object] = {
        "transfer": uuid4(),
        "at": NOW,
        "kind": "settle",
        "booking": "BK-7",
        "name": "run",
        "project": "folding",
        "person": "mara",
        "campaign": "",
        "tier": "standard",
        "gpu_class": "h100",
        "per_hour": Decimal("2.4"),
        "peak_per_hour": Decimal(3),
        "surcharge": Decimal(0),
        "exact": Decimal(exact),
        "currency": "EUR",
        "note": "",
        "fee": "",
        "day": NOW.date(),
        "labels": {},
    }
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
    fee = draw.choice(("", "", {"settle": "no_show", "reverse": "late_share"}.get(kind, "")))
    peak = draw.randrange(micros + 1) if kind == "settle" and not fee else 0
    line = a_line(
        str(Decimal(micros) / 10**6),
        kind=kind,
        fee=fee,
        booking=f"BK-{draw.randrange(3)}",
        surcharge=Decimal(peak) / 10**6,
    )
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
        *found, last = rows_of(statement_csv(lines, uses))
        rounded = Decimal(cents_half_even(sum(micros))) / 100
        assert (Decimal(last["amount"]), Decimal(last["exact"])) == (rounded, total.exact)
        amounts = [Decimal(row["amount"]) for row in found if row["amount"]]
        assert sum(amounts) == rounded, "with the row that says what rounding has changed"
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
    "BilledCost",
    "BillingAccountId",
    "BillingAccountType",
    "BillingCurrency",
    "BillingPeriodStart",
    "BillingPeriodEnd",
    "ChargeCategory",
    "ChargePeriodStart",
    "ChargePeriodEnd",
    "ContractedCost",
    "EffectiveCost",
    "InvoiceIssuerName",
    "ListCost",
    "ProviderName",
    "PublisherName",
    "ServiceCategory",
    "ServiceName",
    "ServiceSubcategory",
)
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
        a_line("-1.5", kind="reverse", fee="late_share", note="Node was slow"),
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
        assert bool(row["PricingQuantity"]) == bool(row["PricingUnit"]) == bool(row["PricingCategory"])
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
            str(rate.cost(spell)),
            per_hour=plain,
            peak_per_hour=plain + rise,
            surcharge=rate.surcharge(spell),
        )
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


def test_a_pdf_has_core_hours_of_work_without_a_gpu() -> None:
    line = a_line("2.56", gpu_class="cpu", per_hour=Decimal("0.64"), peak_per_hour=Decimal("0.64"), cores=16)
    text, other = (
        b"".join(
            zlib.decompress(base64.a85decode(each.strip(), adobe=False))
            for each in re.findall(rb"stream\r?\n(.*?)~>\s*endstream", pdf_of([each_line]), re.DOTALL)
        )
        for each_line in (line, a_line())
    )
    assert b"(64.00 c)" in text
    assert b"core-hours, of work without a GPU" in text
    assert b"core-hours" not in other


def pdf_of(lines: list[StatementLine]) -> bytes:
    file = BytesIO()
    statement_pdf("Statement", ["Helix"], lines, "EUR", file)
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
    shown = [(row["CapacityReservationStatus"], row["BilledCost"], row["x_EnergyKwh"]) for row in rows]
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


def a_mixed_line(exact: str = "39", **more: object) -> StatementLine:
    """Three hours of 2 H100 and 4 L40S at 12 an hour together, of which an hour in peak hours."""
    shares = (ClassShare("h100", "", Decimal(8)), ClassShare("l40s", "", Decimal(4)))
    facts: dict[str, object] = {
        "per_hour": Decimal(12),
        "peak_per_hour": Decimal(15),
        "surcharge": Decimal(3),
        "shares": shares,
    }
    return a_line(exact, **(facts | more))


def test_a_booking_without_a_gpu_has_core_hours_at_the_price_of_one() -> None:
    line = a_line("2.56", gpu_class="cpu", per_hour=Decimal("0.64"), peak_per_hour=Decimal("0.64"), cores=16)
    assert (line.hours, line.core_hours) == (Decimal(4), Decimal(64))
    assert a_line().core_hours is None
    (row,) = focus_rows([line], ("helix", "Helix"), NOVEMBER.starts, {})
    assert (row["ConsumedQuantity"], row["ConsumedUnit"], row["PricingUnit"]) == (
        64,
        "Core-Hours",
        "Core-Hours",
    )
    assert (row["ListUnitPrice"], row["BilledCost"]) == (Decimal("0.04"), Decimal("2.56"))
    assert (row["ServiceName"], row["ChargeDescription"]) == ("CPU booking", "Core time of BK-7")
    shown, _ = rows_of(statement_csv([line]))
    assert (shown["hours"], shown["core_hours"]) == ("4.000000", "64.000000")
    other, _ = rows_of(statement_csv([a_line()]))
    assert other["core_hours"] == ""


def test_a_booking_of_several_classes_has_a_line_for_each_that_add_up() -> None:
    lines = a_mixed_line().by_class()
    found = [f"{each.gpu_class} {each.exact:n} {each.hours:n}" for each in lines]
    assert found == ["h100 26.000000 3.000000", "l40s 13.000000 3.000000"]
    assert [each.peak_hours for each in lines] == [Decimal(1)] * 2
    rows = rows_of(statement_csv([a_mixed_line()]))
    assert [row["gpu_class"] for row in rows] == ["h100", "l40s", ""]
    focus = list(focus_rows([a_mixed_line()], ("helix", "Helix"), NOVEMBER.starts, {}))
    assert {row["SkuId"] for row in focus} == {"h100/standard", "l40s/standard"}
    assert sum(row["BilledCost"] for row in focus) == 39  # type: ignore[misc]  # a Decimal
    assert len(a_mixed_line(fee="no_show").by_class()) == 1
    draw = Random(7)  # noqa: S311 (not a secret)
    for _ in range(300):
        exact = Decimal(draw.randrange(-(10**9), 10**9)) / 10**6
        shares = tuple(ClassShare(name, "", Decimal(draw.randrange(1, 10**6)) / 1_000) for name in "abcd")
        line = a_mixed_line(str(exact), shares=shares)
        for name in ("amount", "exact", "surcharge", "per_hour"):
            assert sum(getattr(each, name) for each in line.by_class()) == getattr(line, name)
