"""Words on which nodes a request may run, and reasons that say so."""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from allocation.rules.ask import AskDocument
from allocation.rules.ask.line.text import gigabytes_text
from tenants.platform.nouns import Sentence

zone_names: ContextVar[Callable[[], Mapping[str, str]]] = ContextVar("zone_names", default=dict)
"""The names of zones by slug; `class_names` sets it."""
site_currency: ContextVar[Callable[[], str]] = ContextVar("site_currency", default=str)
"""The currency of the site; `class_names` sets it."""


def zone_name(slug: str) -> str:
    """Returns the name of a zone; without one its slug."""
    return zone_names.get()().get(slug, slug)


def energy_words(facts: Mapping[str, Any]) -> str:
    """`It starts at 02:00 instead of 22:00, for cheaper energy in Basel: 0.12 instead of 0.31 CHF …`"""
    if facts["prefers"] == "price":
        amounts = {name: f"{facts[name] / 10_000:.4f}".rstrip("0").ljust(4, "0") for name in _COSTS}
        energy, costs = "cheaper energy", "%(cost)s instead of %(cost_before)s"
        costs += f" {site_currency.get()()} per kWh".replace("  ", " ")
    else:
        amounts = {name: str(facts[name]) for name in _COSTS}
        energy, costs = "cleaner energy", "%(cost)s instead of %(cost_before)s g of CO2 per kWh"
    if facts["zone"] == facts["zone_before"]:
        text = "It starts at %(clock)s instead of %(clock_before)s, for %(energy)s in %(zone)s: %(costs)s."
    else:
        text = (
            "It starts at %(clock)s in %(zone)s instead of %(clock_before)s in %(zone_before)s, for "
            "%(energy)s: %(costs)s."
        )
    zones = {name: zone_name(str(facts[name])) for name in ("zone", "zone_before")}
    return text % {**facts, **zones, "energy": energy, "costs": costs % amounts}


_COSTS = ("cost", "cost_before")
WHERE: dict[str, Sentence | Callable[[Any], str]] = {
    "energy": energy_words,
    "where_elsewhere": "There are no %(gpu_class)s %(where)s.",
    "where_too_small": "Nodes %(where)s have room for %(most_shape)s together; %(shape)s are needed.",
    "zone_too_small": "%(shape)s must be in one zone, and no zone has room for more than %(most_shape)s.",
    "no_zone_for_all": "Its GPUs must be in one zone, and no zone has room for all of them.",
    "free_elsewhere": "It may only run %(where)s; other %(gpu_class)s are free.",
}


def where_words(ask: AskDocument) -> str:
    """`in basel or zurich with 2 TB of local NVMe`."""
    return where_said(ask.zones, ask.not_zones, ask.storage, ask.scratch)


def where_said(zones: tuple[str, ...], others: tuple[str, ...], storage: str | None, scratch: int) -> str:
    """Returns these fields of a request in words; empty for none."""
    words = []
    if zones:
        words.append("in " + " or ".join(map(zone_name, zones)))
    if others:
        words.append("outside of " + " and ".join(map(zone_name, others)))
    if scratch:
        words.append(f"with {gigabytes_text(scratch)} of local NVMe")
    if storage == "shared":
        words.append("with shared storage")
    elif storage and not scratch:
        words.append("with local NVMe")
    return " ".join(words)
