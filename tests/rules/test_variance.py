"""The causes of a difference in spend."""

from decimal import Decimal
from random import Random

from allocation.rules.variance import (
    CAUSES,
    HALF_CENT,
    ZERO,
    Cell,
    Metered,
    Spend,
    mean_prices,
    mix_change,
    usual_price,
    variance_parts,
)

H100, L40S = ("h100", "standard"), ("l40s", "standard")
SPOT = ("h100", "spot")


def spend(cells: dict[Cell, tuple[str, str]], fees: str = "0", corrections: str = "0") -> Spend:
    """Hours and amount by cell."""
    metered = {cell: Metered(Decimal(h), Decimal(a)) for cell, (h, a) in cells.items()}
    return Spend(metered, Decimal(fees), Decimal(corrections))


def changed(usual: Spend, actual: Spend, planned: str | None = None) -> dict[str, Decimal]:
    parts = variance_parts(usual, actual, None if planned is None else Decimal(planned))
    return {cause: amount for cause, amount in parts.items() if amount}


def test_each_cause_alone_is_the_whole_difference() -> None:
    usual = spend({H100: ("10", "40"), L40S: ("10", "10")})
    for actual, cause, amount in [
        (spend({H100: ("20", "80"), L40S: ("20", "20")}), "volume", 50),
        (spend({H100: ("20", "80")}), "class", 30),
        (spend({H100: ("10", "50"), L40S: ("10", "10")}), "price", 10),
        (spend({H100: ("10", "40"), L40S: ("10", "10")}, fees="7"), "fees", 7),
        (spend({H100: ("10", "40"), L40S: ("10", "10")}, corrections="-3"), "corrections", -3),
    ]:
        assert changed(usual, actual) == {cause: Decimal(amount)}
    # A tier that was not used before is a cause by its share of the class.
    moved = spend({H100: ("5", "20"), SPOT: ("5", "5"), L40S: ("10", "10")})
    assert changed(usual, moved) == {"tier": Decimal(-15)}
    assert changed(moved, usual) == {"tier": Decimal(15)}


def test_a_plan_below_usual_spend_is_a_cause_of_its_own() -> None:
    usual = spend({H100: ("10", "40")})
    assert changed(usual, usual, planned="30") == {"plan": Decimal(10)}
    more = spend({H100: ("15", "60")})
    assert changed(usual, more, planned="30") == {"plan": Decimal(10), "volume": Decimal(20)}


def test_no_usual_spend_and_no_spend_are_explained_by_hours() -> None:
    some = spend({H100: ("3", "10"), L40S: ("1", "1")})
    assert changed(Spend(), some) == {"volume": Decimal(11)}
    assert changed(some, Spend()) == {"volume": Decimal(-11)}
    assert changed(Spend(), Spend()) == {}
    # Free work has no price; hours without an amount cause nothing.
    assert changed(Spend(), spend({H100: ("3", "0")})) == {}


def test_the_parts_of_random_differences_add_up_to_the_last_digit() -> None:
    draw = Random(23)  # noqa: S311 (not a secret)

    def drawn() -> Spend:
        cells = {
            (gpu_class, tier): Metered(
                Decimal(draw.randrange(10**8)) / 10**6, Decimal(draw.randrange(10**9)) / 10**6
            )
            for gpu_class in ("h100", "l40s", "a100")
            for tier in ("standard", "spot", "")
            if draw.random() < 0.6
        }
        fees, corrections = (Decimal(draw.randrange(-(10**7), 10**7)) / 10**6 for _ in range(2))
        return Spend(cells, fees, corrections)

    for _ in range(2_000):
        usual, actual = drawn().scaled(1, draw.randrange(1, 5)), drawn()
        planned = Decimal(draw.randrange(10**9)) / 10**6 if draw.random() < 0.5 else None
        parts = variance_parts(usual, actual, planned)
        assert tuple(parts) == CAUSES
        expected = usual.total if planned is None else planned
        assert sum(parts.values(), ZERO) == actual.total - expected
        assert all(part == part.quantize(Decimal("0.000001")) for part in parts.values())
        assert all(not part or abs(part) >= HALF_CENT for part in parts.values()), parts
        _facts_agree(usual, actual, parts)


def _facts_agree(usual: Spend, actual: Spend, parts: dict[str, Decimal]) -> None:
    """What a page says of a cause points in the direction of its amount."""
    before, after = mean_prices(usual, actual)
    if abs(parts["price"]) > 1:
        assert (after > before) == (parts["price"] > 0)
    if abs(parts["class"]) > 1:
        cell, was, now = mix_change(usual, actual, of_class=False)
        mean = sum((each.amount for each in usual.cells.values()), ZERO) / usual.hours
        price = (
            _class_price(usual, cell[0])
            if cell[0] in {name for name, _ in usual.cells}
            else (_class_price(actual, cell[0]))
        )
        assert ((now > was) == (price > mean)) == (parts["class"] > 0)
    if abs(parts["tier"]) > 1:
        cell, was, now = mix_change(usual, actual, of_class=True)
        costs_more = usual_price(usual, actual, cell) > _class_price(
            usual if any(name == cell[0] for name, _ in usual.cells) else actual, cell[0]
        )
        assert ((now > was) == costs_more) == (parts["tier"] > 0)


def _class_price(spend: Spend, name: str) -> Decimal:
    cells = [each for cell, each in spend.cells.items() if cell[0] == name]
    hours = sum((each.hours for each in cells), ZERO)
    return sum((each.amount for each in cells), ZERO) / hours if hours else ZERO


def test_what_no_page_shows_in_cents_is_no_cause() -> None:
    usual, actual = spend({H100: ("10", "40")}), spend({H100: ("15", "60")}, fees="0.004")
    parts = changed(usual, actual, planned="39.999999")
    assert parts == {"volume": Decimal("20.004001")}
