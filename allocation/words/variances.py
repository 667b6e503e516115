"""Sentences about unusual spend: what was compared, and each cause of the difference."""

from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from typing import Any

from billing.rules import money_text, rate_text

HALF_CENT = Decimal("0.005")
Names = Mapping[str, Mapping[str, str]]
"""By cause (`class`, `tier`) and slug."""


def variance_headline(said: Mapping[str, Any]) -> str:
    """`Protein folding spent €80.00 more than on usual Tuesdays`."""
    actual, expected = Decimal(said["actual"]), Decimal(said["expected"])
    more = "more" if actual >= expected else "less"
    amount = money_text(abs(actual - expected), said["currency"])
    facts = {"name": said["name"], "amount": amount, "more": more}
    if said["against"] == "plan":
        return "%(name)s has spent %(amount)s %(more)s than planned" % facts
    weekday = f"{date.fromisoformat(said['day']):%A}s"
    return "%(name)s spent %(amount)s %(more)s than on usual %(weekday)s" % (facts | {"weekday": weekday})


def variance_sentence(said: Mapping[str, Any]) -> str:
    """What was spent and what was expected, on or until which day."""
    day = date.fromisoformat(said["day"])
    facts = {
        "actual": money_text(Decimal(said["actual"]), said["currency"]),
        "expected": money_text(Decimal(said["expected"]), said["currency"]),
        "day": f"{day:%a} {day.day} {day:%b}",
    }
    if said["against"] == "plan":
        return "%(actual)s were spent until %(day)s, and an even plan allows %(expected)s." % facts
    return "%(actual)s were spent on %(day)s, and %(expected)s are usual." % facts


def cause_name(part: Mapping[str, Any]) -> str:
    """The cause in a few words."""
    is_more = Decimal(part["amount"]) > 0
    return {
        "plan": "The plan is below usual spend" if is_more else "The plan is above usual spend",
        "volume": "More GPU-hours" if is_more else "Fewer GPU-hours",
        "class": "More expensive GPU classes" if is_more else "Cheaper GPU classes",
        "tier": "More expensive tiers" if is_more else "Cheaper tiers",
        "price": "Higher prices" if is_more else "Lower prices",
        "fees": "Fees",
        "corrections": "Corrections",
    }[str(part["cause"])]


def cause_sentence(part: Mapping[str, Any], currency: str, names: Names) -> str:
    """The facts of the cause; empty without any. `names` are those of classes and of tiers."""
    facts: Mapping[str, str] = part["facts"]
    # An earlier release stored numbers that are alike once they are rounded.
    if not facts or facts.get("before", "") == facts.get("after"):
        return ""
    if part["cause"] == "plan":
        usual, planned = (money_text(Decimal(facts[name]), currency) for name in ("usual", "planned"))
        if usual == planned:
            return ""
        return f"Usual days of this number cost {usual}; the plan has {planned}."
    if part["cause"] == "volume":
        hours = {name: f"{Decimal(facts[name]):,}" for name in ("before", "after")}
        return "%(after)s GPU-hours instead of %(before)s." % hours
    if part["cause"] == "price":
        before, after = (rate_text(Decimal(facts[name]), currency) for name in ("before", "after"))
        text = "A GPU-hour of these classes and tiers cost %(after)s on average instead of %(before)s."
        return text % {"before": before, "after": after}
    name = names[part["cause"]].get(facts["name"], facts["name"])
    return f"{name} had {facts['after']} % of the hours instead of {facts['before']} %."


def parts_shown(parts: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The causes that are not nothing in cents: an earlier release stored smaller ones."""
    return [part for part in parts if abs(Decimal(part["amount"])) >= HALF_CENT]


def variance_explained(said: Mapping[str, Any]) -> str:
    """The largest causes with their amounts and bookings, in one sentence."""
    parts = sorted(parts_shown(said["parts"]), key=lambda part: -abs(Decimal(part["amount"])))
    shown = []
    for part in parts[:3]:
        amount = money_text(Decimal(part["amount"]), said["currency"])
        names = ", ".join(each["booking"] for each in part["bookings"][:3])
        shown.append(f"{cause_name(part)} {amount}" + (f" ({names})" if names else ""))
    return "; ".join(shown) + "." if shown else ""
