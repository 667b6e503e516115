"""Facts as text: `2 h100`, `16 cores and 64 GiB`, `GPU 2 of n0003`, and the names of GPU classes and zones.

Who answers people opens `class_names`: then sentences have the labels that pages show. Elsewhere, as
in a cycle of the solver, they have the slugs of requests. What is stored keeps the slug, so a label
that changes is in old sentences, too.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from allocation.rules.ask.words.times import duration_words
from allocation.rules.pools import class_of
from allocation.words.where import site_currency, where_said, zone_names
from solver.reasons.reason import Fact
from tenants.platform.nouns import core_classes, plural, unit_noun

UNITS_PER_GPU = 56_000
LEVELS = {
    "gpu": "single GPU",
    "domain": "NVLink domain",
    "node": "node",
    "rack": "rack",
    "any": "class",
}

Read = Callable[[], Mapping[str, str]]

_read: ContextVar[Read] = ContextVar("class_names", default=dict)


@contextmanager
def class_names(
    read: Read,
    zones: Read = dict,
    cores: Callable[[], Collection[str]] = frozenset,
    currency: Callable[[], str] = str,
) -> Iterator[None]:
    """Sentences have the labels of classes by slug that `read` returns, the names of zones that `zones`
    does, cores for the classes of `cores`, and the site's `currency`. Each is called once, by the first
    sentence that needs it."""
    token, of_zones = _read.set(cache(read)), zone_names.set(cache(zones))
    of_money = site_currency.set(cache(currency))
    try:
        with core_classes(cores):
            yield
    finally:
        _read.reset(token)
        zone_names.reset(of_zones)
        site_currency.reset(of_money)


def class_name(slug: str) -> str:
    """Returns the label of a class; without one its slug."""
    slug = class_of(slug)
    return _read.get()().get(slug, slug)


class Facts(dict[str, Fact]):
    """The facts of a sentence and the texts derived from them, for `%`.

    `NAME_gpus` is the fact NAME in GPUs instead of units, `NAME_grouped` has separators. A GPU class
    is named by its label; `of_class` is its slug.
    """

    def __init__(self, facts: Mapping[str, Fact] | Iterable[tuple[str, Fact]]) -> None:
        super().__init__(facts)
        self.of_class = str(self.get("gpu_class", ""))
        if "gpu_class" in self:
            self["gpu_class"] = class_name(str(self["gpu_class"]))

    def __missing__(self, name: str) -> str:
        """Returns the derived text. KeyError: its fact is missing."""
        if name.endswith("_gpus"):
            return gpus(int(self[name.removesuffix("_gpus")]))
        if name.endswith("_grouped"):
            return f"{int(self[name.removesuffix('_grouped')]):,}"
        return _TEXTS[name](self)


def unit_of(ask: Mapping[str, Any]) -> str:
    """Returns the noun of what a stored request is for: `GPU` or `core`."""
    return unit_noun(are_cores=bool(ask.get("host")))


def gpus(units: int) -> str:
    """Returns quota units as GPUs, with three places as on pages: `8`, `2.857`."""
    return thousandths((units * 1_000 + UNITS_PER_GPU // 2) // UNITS_PER_GPU)


def thousandths(amount: int) -> str:
    """Returns thousandths as a number: `0.25`, `16`."""
    whole, rest = divmod(amount, 1_000)
    return f"{whole}.{rest:03}".rstrip("0").rstrip(".")


def _shape(facts: Mapping[str, Fact]) -> str:
    """`2 h100` or `2 × 3g.40gb on h100`."""
    if "share" in facts:
        share = {"share": thousandths(int(facts["share"])), "gpu_class": facts["gpu_class"]}
        return "%(share)s of one %(gpu_class)s, shared" % share
    if "profile" in facts:
        return "%(asked)s × %(profile)s on %(gpu_class)s" % facts
    return f"{facts['asked']} {facts['gpu_class']}"


def _some(facts: Mapping[str, Fact], fact: str) -> str:
    """So many of the kind that is asked for: `1 h100`, `0 × 3g.40gb on h100`, or `2 shares of 0.25
    h100`."""
    if "share" in facts:
        words = {**facts, "many": facts[fact], "share": thousandths(int(facts["share"]))}
        text = plural(
            "%(many)s share of %(share)s %(gpu_class)s",
            "%(many)s shares of %(share)s %(gpu_class)s",
            int(facts[fact]),
        )
        return text % words
    return _shape({**facts, "asked": facts[fact]})


def _host(facts: Mapping[str, Fact]) -> str:
    """`16 cores and 64 GiB`."""
    cores, memory = int(facts["cores"]), int(facts["memory"])
    both = {"cores": thousandths(cores), "memory": thousandths(memory * 1000 // 1024)}
    if cores and memory:
        return "%(cores)s and %(memory)s GiB" % {**both, "cores": _cores(cores)}
    return _cores(cores) if cores else "%(memory)s GiB" % both


def _cores(thousandth: int) -> str:
    text = plural("%(cores)s core", "%(cores)s cores", 1 if thousandth == 1_000 else 2)
    return text % {"cores": thousandths(thousandth)}


def _hours(fact: str) -> Callable[[Mapping[str, Fact]], str]:
    """Returns what says the fact in GPU-hours: `1 GPU-hour`, `1,200 GPU-hours`."""

    def said(facts: Mapping[str, Fact]) -> str:
        hours = int(facts[fact])
        return plural("%(hours)s GPU-hour", "%(hours)s GPU-hours", hours) % {"hours": f"{hours:,}"}

    return said


def _span(facts: Mapping[str, Fact]) -> str:
    """`day`, `7 days`: of `in any …`."""
    days = int(facts["days"])
    return plural("day", "%(days)s days", days) % {"days": days}


def _pins(facts: Mapping[str, Fact]) -> str:
    """`n0003`, `GPU 2 of n0003 or n0004`."""
    split = (name.rpartition("/") for name in str(facts["pin"]).split(","))
    return " or ".join(
        "GPU %(index)s of %(node)s" % {"index": last, "node": node} if node else last
        for node, _slash, last in split
    )


def _where(facts: Mapping[str, Fact]) -> str:
    """`in basel with 2 TB of local NVMe`."""
    zones, others = (
        tuple(str(facts[name]).split(",")) if name in facts else () for name in ("zones", "not_zones")
    )
    return where_said(zones, others, str(facts.get("storage", "")), int(facts.get("scratch", 0)))


def _nodes(facts: Mapping[str, Fact]) -> str:
    """Returns the named nodes: `n0001, n0002 and more`."""
    names = str(facts["on"]).split(",")
    text = ", ".join(names)
    return "%(names)s and more" % {"names": text} if int(facts["nodes"]) > len(names) else text


_TEXTS = {
    "borrow_length": lambda facts: duration_words(int(facts["borrow_seconds"])),
    "group": lambda facts: str(LEVELS[str(facts["level"])]),
    "host": _host,
    "limit_hours": _hours("limit"),
    "span": _span,
    "left_shape": lambda facts: _some(facts, "left"),
    "most_shape": lambda facts: _some(facts, "most"),
    "kind": lambda facts: str(facts.get("profile", facts["gpu_class"])),
    "on_nodes": _nodes,
    "pins": _pins,
    "shape": _shape,
    "where": _where,
}


def data_place(facts: Mapping[str, Fact]) -> str:
    """`imagenet is on n1, which was preferred for it.`"""
    said = {name: _listed(facts, name) for name in ("data", "has", "lacks", "elsewhere_on")}
    if not said["lacks"]:
        return "%(data)s: on %(has)s, which was preferred for that." % said
    if said["has"]:
        text = "%(data)s: on %(has)s, but not on %(lacks)s."
    elif said["elsewhere_on"]:
        text = (
            "%(data)s: not on %(lacks)s. It is on %(elsewhere_on)s, where no GPUs for this booking are as "
            "early and as close together."
        )
    else:
        text = "%(data)s: on no node."
    fetched = "What is missing is fetched before the start where the site has set that up."
    return f"{text % said} {fetched}"


def _listed(facts: Mapping[str, Fact], name: str) -> str:
    return str(facts.get(name, "")).replace(",", ", ")
