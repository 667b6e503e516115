"""Arithmetic of money."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.rules import (
    CENT,
    Period,
    amount_parse,
    cents_after,
    cents_apart,
    cents_of,
    cost_of,
    ledger_amount,
    midnight,
    money_text,
    month_after,
    month_of,
    period_text,
    split_by_seconds,
    uncovered_from,
)
from tenants.platform.errors import Refused
from tests.rings import holds_for

NOVEMBER = Period(date(2026, 11, 1), date(2026, 12, 1))
DECEMBER = Period(date(2026, 12, 1), date(2027, 1, 1))


@pytest.mark.parametrize(
    ("price", "units", "seconds", "expected"),
    [
        pytest.param("4.80", 2 * 56_000, 6 * 3600, "57.600000", id="two whole GPUs for six hours"),
        pytest.param("4.80", 28_000, 3600, "2.400000", id="a 3g slice pays half a GPU"),
        pytest.param("4.80", 8_000, 1, "0.000190", id="a second of 1g, rounded down"),
        pytest.param("0.01", 56_000, 3600, "0.010000", id="a cent"),
        pytest.param("1", 56_000, 0, "0.000000", id="no time"),
        pytest.param("0.0018", 56_000, 1, "0.000000", id="half a step goes to the even zero"),
        pytest.param("0.0054", 56_000, 1, "0.000002", id="one and a half steps go to the even two"),
    ],
)
def test_cost_is_price_times_gpus_times_hours(price: str, units: int, seconds: int, expected: str) -> None:
    cost = cost_of(per_gpu_hour=Decimal(price), units=units, seconds=seconds)
    assert str(cost) == expected


def test_cost_of_something_negative_is_a_bug_of_the_caller() -> None:
    with pytest.raises(ValueError, match="negative"):
        cost_of(per_gpu_hour=Decimal(1), units=-1, seconds=1)


def test_a_window_in_one_month_is_not_split() -> None:
    starts, ends = datetime(2026, 11, 3, tzinfo=UTC), datetime(2026, 11, 4, tzinfo=UTC)
    assert split_by_seconds(Decimal(10), starts, ends, [NOVEMBER]) == (Decimal(10),)


def test_a_window_over_the_turn_of_the_month_is_split_by_seconds() -> None:
    starts, ends = datetime(2026, 11, 30, 18, tzinfo=UTC), datetime(2026, 12, 1, 12, tzinfo=UTC)
    shares = split_by_seconds(Decimal(10), starts, ends, [NOVEMBER, DECEMBER])
    assert shares == (Decimal("3.333333"), Decimal("6.666667"))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    amount=st.decimals("0.000001", "999999999", places=6),
    start=st.integers(0, 5 * 86_400),
    seconds=st.integers(1, 90 * 86_400),
    lengths=st.lists(st.integers(1, 10), min_size=100, max_size=100),
)
def test_shares_add_up_exactly_and_none_is_negative(
    amount: Decimal, start: int, seconds: int, lengths: list[int]
) -> None:
    day = date(2026, 11, 1).toordinal()
    periods = []
    for length in lengths:
        periods.append(Period(date.fromordinal(day), date.fromordinal(day + length)))
        day += length
    base = int(midnight(date(2026, 11, 1)).timestamp()) + start
    starts, ends = datetime.fromtimestamp(base, UTC), datetime.fromtimestamp(base + seconds, UTC)
    shares = split_by_seconds(amount, starts, ends, periods)
    assert sum(shares) == amount
    assert all(share >= 0 for share in shares)
    assert all(share == ledger_amount(share) for share in shares)


@pytest.mark.parametrize(
    ("periods", "expected"),
    [
        pytest.param([NOVEMBER, DECEMBER], None, id="covered"),
        pytest.param([NOVEMBER], datetime(2026, 12, 1, tzinfo=UTC), id="second month missing"),
        pytest.param([DECEMBER], datetime(2026, 11, 30, tzinfo=UTC), id="first month missing"),
        pytest.param([], datetime(2026, 11, 30, tzinfo=UTC), id="nothing there"),
    ],
)
def test_the_first_uncovered_instant_is_found(periods: list[Period], expected: datetime | None) -> None:
    starts, ends = datetime(2026, 11, 30, tzinfo=UTC), datetime(2026, 12, 2, tzinfo=UTC)
    assert uncovered_from(starts, ends, periods) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "NaN",
        "nan",
        "sNaN",
        "Infinity",
        "-inf",
        "-1",
        "+1",
        "1e30",
        "1E3",
        "1,00.00",
        "1.000,00",
        "1_000",
        "0x10",
        "12.",
        ".5",
        "1.234",
        "1000000000",
        "\u0663",
        "\uff11",
        "1 000",
        "1\n2",
        "five",
        "€",
        "1,0000",
        "CHF 5",
        "5 $",
    ],
)
def test_what_is_not_a_plain_amount_is_refused_at_its_field(text: str) -> None:
    with pytest.raises(Refused) as refusal:
        amount_parse(text, param="amount", currency="EUR")
    assert (refusal.value.code, refusal.value.param) == ("bad_amount", "amount")


@pytest.mark.parametrize("text", ["0", "1000", "1000.5", " 0.01 ", "999999999.99"])
def test_plain_amounts_are_read(text: str) -> None:
    assert amount_parse(text, param="amount", currency="EUR") == Decimal(text.strip())


@pytest.mark.parametrize("text", ["1,800.50", "€1800.50", "€ 1,800.5", "1800.50 EUR", "1,800.5 €"])
def test_amounts_are_read_as_people_write_them(text: str) -> None:
    assert amount_parse(text, param="amount", currency="EUR") == Decimal("1800.5")


@pytest.mark.parametrize(
    ("amount", "currency", "text"),
    [
        ("-0.004", "EUR", "€0.00"),
        ("-0.000000", "EUR", "€0.00"),
        ("1204.5", "EUR", "€1,204.50"),
        ("-3.005", "EUR", "\u2212€3.00"),
        ("7", "CHF", "CHF 7.00"),
        ("0", "USD", "$0.00"),
    ],
)
def test_money_is_shown_with_two_places(amount: str, currency: str, text: str) -> None:
    assert money_text(Decimal(amount), currency) == text


def test_months_and_other_periods_are_named() -> None:
    assert period_text(NOVEMBER) == "November 2026"
    assert period_text(Period(date(2026, 11, 3), date(2026, 11, 18))) == ("3 Nov 2026 to 17 Nov 2026")
    assert month_of(date(2026, 12, 31)) == DECEMBER
    assert month_after(date(2026, 1, 31)) == date(2026, 2, 1)


MICROS = st.lists(st.integers(-(10**8), 10**8).map(lambda each: Decimal(each) / 10**6), max_size=12)


@holds_for(MICROS, few=200, many=5_000)
def test_amounts_in_cents_add_up_to_their_sum(amounts: list[Decimal]) -> None:
    """By largest remainder, and one after the other as the lines of a statement."""
    whole = cents_of(sum(amounts, Decimal(0)))
    shared = cents_apart(amounts)
    assert sum(shared, Decimal(0)) == whole
    assert all(abs(cents - exact) < CENT for cents, exact in zip(shared, amounts, strict=True))
    before, lines = Decimal(0), []
    for amount in amounts:
        lines.append(cents_after(before, amount))
        before += amount
    assert sum(lines, Decimal(0)) == whole
    assert all(abs(cents - exact) <= CENT for cents, exact in zip(lines, amounts, strict=True))


def test_the_largest_remainders_are_rounded_up() -> None:
    parts = [Decimal(each) for each in ("4.795", "4.795", "4.794")]
    assert cents_apart(parts) == [Decimal("4.80"), Decimal("4.79"), Decimal("4.79")]
    assert cents_apart([]) == []
    third = [Decimal("0.003333")] * 3
    assert cents_apart(third) == [Decimal("0.01"), Decimal("0.00"), Decimal("0.00")]
