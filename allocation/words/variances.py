"""Sentences about unusual spend: what was compared, and each cause of the difference."""

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _

from billing.rules import money_text

ZERO = Decimal(0)


def variance_headline(said: Mapping[str, Any]) -> str:
    """`Protein folding spent €80.00 more than on usual Tuesdays`."""
    actual, expected = Decimal(said["actual"]), Decimal(said["expected"])
    more = _("more") if actual >= expected else _("less")
    amount = money_text(abs(actual - expected), said["currency"])
    facts = {"name": said["name"], "amount": amount, "more": more}
    if said["against"] == "plan":
        return _("%(name)s has spent %(amount)s %(more)s than planned") % facts
    weekday = f"{date.fromisoformat(said['day']):%A}s"
    return _("%(name)s spent %(amount)s %(more)s than on usual %(weekday)s") % (
        facts | {"weekday": weekday}
    )


def variance_sentence(said: Mapping[str, Any]) -> str:
    """What was spent and what was expected, on or until which day."""
    day = date.fromisoformat(said["day"])
    facts = {
        "actual": money_text(Decimal(said["actual"]), said["currency"]),
        "expected": money_text(Decimal(said["expected"]), said["currency"]),
        "day": f"{day:%a} {day.day} {day:%b}",
    }
    if said["against"] == "plan":
        return (
            _("%(actual)s were spent until %(day)s, and an even plan allows %(expected)s.") % facts
        )
    return _("%(actual)s were spent on %(day)s, and %(expected)s are usual.") % facts


def cause_name(part: Mapping[str, Any]) -> str:
    """The cause in a few words."""
    is_more = Decimal(part["amount"]) > 0
    return {
        "plan": _("The plan is below usual spend")
        if is_more
        else _("The plan is above usual spend"),
        "volume": _("More GPU-hours") if is_more else _("Fewer GPU-hours"),
        "class": _("More expensive GPU classes") if is_more else _("Cheaper GPU classes"),
        "tier": _("More expensive tiers") if is_more else _("Cheaper tiers"),
        "price": _("Higher prices") if is_more else _("Lower prices"),
        "fees": _("Fees"),
        "corrections": _("Corrections"),
    }[str(part["cause"])]


def cause_sentence(part: Mapping[str, Any], currency: str) -> str:
    """The facts of the cause; empty without any."""
    facts: Mapping[str, str] = part["facts"]
    if not facts:
        return ""
    if part["cause"] == "plan":
        usual, planned = (
            money_text(Decimal(facts[name]), currency) for name in ("usual", "planned")
        )
        return _("Usual days of this number cost %(usual)s; the plan has %(planned)s.") % {
            "usual": usual,
            "planned": planned,
        }
    if part["cause"] == "volume":
        hours = {name: f"{Decimal(facts[name]):,}" for name in ("before", "after")}
        return _("%(after)s GPU-hours instead of %(before)s.") % hours
    if part["cause"] == "price":
        before, after = (money_text(Decimal(facts[name]), currency) for name in ("before", "after"))
        return _("A GPU-hour cost %(after)s on average instead of %(before)s.") % {
            "before": before,
            "after": after,
        }
    return _("%(name)s had %(after)s %% of the hours instead of %(before)s %%.") % facts


def variance_explained(said: Mapping[str, Any]) -> str:
    """The largest causes with their amounts and bookings, in one sentence."""
    parts = sorted(said["parts"], key=lambda part: -abs(Decimal(part["amount"])))
    shown = []
    for part in parts[:3]:
        amount = money_text(Decimal(part["amount"]), said["currency"])
        names = ", ".join(each["booking"] for each in part["bookings"][:3])
        shown.append(f"{cause_name(part)} {amount}" + (f" ({names})" if names else ""))
    return "; ".join(shown) + "." if shown else ""
