"""What last month would have cost at the prices of a draft."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

from allocation.queries.bookings.money.price_effect import last_month, price_effect
from allocation.rules.ask import AskGroup
from allocation.rules.states import State
from billing.models import PriceBook
from billing.rates import PeakHours
from billing.rules import month_of
from billing.services import Charge, DraftTerms, Peaks, hold_place, hold_settle
from tests.builders_allocation import HOUR, NOW, Lab, a_booking, a_model, an_ask
from tests.roles import as_system

EVENINGS = PeakHours("UTC", tuple((day, 18, 24) for day in range(7)))


def test_a_mixed_booking_is_recomputed_group_by_group(lab: Lab) -> None:
    a_model("b200-180gb", product="NVIDIA B200")
    with as_system():
        # An hour of two H100 at 4.80 and a B200 at 10.
        ask = replace(an_ask(2), groups=(AskGroup("b200"),))
        charged(lab, "19.60", ask=ask, price_per_hour=Decimal("19.60"))
        terms = DraftTerms({("h100", "standard"): Decimal(5), ("b200", "standard"): Decimal(12)})
        both = price_effect(terms.current("EUR"), month_of(NOW.date()))
        lacking = DraftTerms({("h100", "standard"): Decimal(5)})
        unknown = price_effect(lacking.current("EUR"), month_of(NOW.date()))
    assert (both.old, both.new) == (Decimal("19.60"), Decimal(22))
    assert (unknown.unpriced, unknown.new) == (1, Decimal("19.60"))


def charged(lab: Lab, amount: str, **facts: Any) -> None:  # noqa: ANN401 (fields of a booking)
    """A booking that is over and was charged; it ended at 20:00."""
    ends = NOW.replace(hour=20, minute=0)
    usual = an_ask(profile="3g.40gb") if facts.pop("is_slice", False) else an_ask(2)
    ask = facts.pop("ask", usual)
    booking = a_booking(lab.project, lab.actor.user_id, state=State.ENDED, ask=ask, held="100")
    for name, value in {"planned_class": "h100", "released_at": ends, **facts}.items():
        setattr(booking, name, value)
    booking.save()
    hold_place(
        tenant_id=lab.tenant_id,
        project_id=lab.project.id,
        reference=booking.id,
        amount=Decimal(100),
        starts=NOW,
        ends=ends,
        now=NOW,
    )
    fee = str(facts.get("fee", ""))
    hold_settle(
        tenant_id=lab.tenant_id,
        reference=booking.id,
        amount=Charge(Decimal(amount), fee=fee),
        now=ends,
    )


def test_the_same_use_is_recomputed_at_other_prices(lab: Lab) -> None:
    next_month = NOW + timedelta(days=40)
    assert last_month(next_month.replace(day=3)).ends == next_month.date().replace(day=1)
    month = month_of(NOW.date())
    with as_system():
        # Three hours of two GPUs at 4.80 each, and an hour of half a GPU.
        charged(lab, "28.80", price_per_hour=Decimal("9.60"))
        charged(lab, "2.40", price_per_hour=Decimal("2.40"), is_slice=True)
        charged(lab, "5", price_per_hour=Decimal("9.60"), fee="late_share")
        # Two hours at 9.60, then one at 19.20.
        lines = [{"seconds": 7200, "per_hour": "9.60"}, {"seconds": 3600, "per_hour": "19.20"}]
        charged(lab, "38.40", price_per_hour=Decimal("9.60"), price_lines=lines)
        terms = DraftTerms.of_book(PriceBook.objects.get())
        same = price_effect(terms.current("EUR"), month)
        assert (same.old, same.charges) == (Decimal("74.60"), 4)
        # The time that cost more has the price of the book, too.
        assert same.new == Decimal("65.00")
        twice = replace(terms, prices={("h100", "standard"): Decimal("9.60")})
        (effect,) = price_effect(twice.current("EUR"), month).projects
        assert (effect.project, effect.old) == (lab.project.name, Decimal("74.60"))
        assert effect.new == 2 * (Decimal("28.80") + Decimal("2.40") + Decimal("28.80")) + 5
        # 18:00 to 20:00 becomes peak: two of three hours twice, and the hour of the slice.
        peaks = Peaks(EVENINGS, {("h100", "standard"): Decimal("5.80")})
        evening = price_effect(replace(terms, peaks=peaks).current("EUR"), month)
        assert evening.new - same.new == 2 * 2 * 2 + Decimal("0.5")
        assert price_effect({}, month).unpriced == 3
        assert price_effect({}, month_of((NOW - 40 * 24 * HOUR).date())).projects == ()
