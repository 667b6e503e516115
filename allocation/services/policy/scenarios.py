"""Scenarios: what a version of the policy also sets of tiers, quotas and prices.

A scenario names values of tiers, of quotas of organisations and projects, and of prices that exist. It is
applied in the transaction that puts its version into force, by the services that pages use: all or nothing.
What it changed is kept with the activation. Going back gives those values back, except where somebody
has set another one since.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from datetime import datetime
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any

from django.db import transaction
from django.db.models import F

from allocation.words.refusals import refusal_text
from billing.models import PriceBook
from billing.peak_text import peak_hours_read, peak_hours_text
from billing.price_books import peak_prices_of, prices_of
from billing.rates import PeakHours
from billing.services import price_book_publish
from billing.services.prices import Peaks, slices_kept
from tenants.models import Quota, Tier, User
from tenants.platform.errors import Refused, invalid, missing
from tenants.services.input_values import gpus_text
from tenants.services.labs.share import Share, ShareMore
from tenants.services.platform import TierTerms, tier_set
from tenants.services.quotas import project_quota_set, tenant_quota_set

Key = tuple[str, str, str]
"""`tier`, `quota`, `price` or `peak_hours`; the tier, `organisation/class`, `organisation/project/class`,
`class/tier` or nothing; the field."""
Value = str | int | bool | None
Values = dict[Key, Value]
Prices = dict[tuple[str, str], Decimal]
"""Per GPU-hour, by class and tier."""
NOTHING: Mapping[Key, Value] = MappingProxyType({})
QUOTA_FIELDS = (
    "guaranteed_units",
    "borrow_limit_units",
    "lend_limit_units",
    "weight",
    "cap_gpu_hours",
    "cap_days",
    "cap_carries",
)
_MORE_FIELDS = frozenset(each.name for each in fields(ShareMore))
TIER_FIELDS = tuple(each.name for each in fields(TierTerms) if each.name not in ("name", "description"))
PRICE, PEAK = "per_gpu_hour", "peak_per_gpu_hour"
PRICE_FIELDS, PEAK_FIELDS = (PRICE, PEAK), ("hours", "zone")
_KINDS = ("tiers", "quotas", "prices", "peak_hours")
MOST_VALUES = 500
MOST_WHOLE = 2**31 - 1
_LABELS = {
    "guaranteed_units": "guaranteed GPUs",
    "borrow_limit_units": "most GPUs borrowed",
    "lend_limit_units": "most GPUs lent",
    "cap_gpu_hours": "cap of GPU-hours",
    "cap_days": "days of the cap",
    "cap_carries": "carries what is left",
    PRICE: "price of a GPU-hour",
    PEAK: "price in peak hours",
    "hours": "peak hours",
    "zone": "time zone of peak hours",
}


def scenario_read(document: object) -> Values:
    """The values of a scenario. Raises Refused `bad_scenario`, which names the entry."""
    if not isinstance(document, dict):
        raise _bad("scenario_object", name="scenario")
    for name in document:
        if name not in _KINDS:
            raise _bad("scenario_unknown", name=str(name)[:40], known=", ".join(_KINDS))
    found: Values = {}
    for tier, entry in _object(document.get("tiers", {}), "tiers").items():
        own = _object(entry, f"tiers.{tier}")
        found |= {("tier", tier, name): own[name] for name in _known(own, TIER_FIELDS, f"tiers.{tier}")}
    for row in _rows(document.get("quotas", []), "quotas", ("tenant", "gpu_class")):
        project = row.pop("project", None)
        names = (row.pop("tenant"), *([str(project)] if project is not None else []), row.pop("gpu_class"))
        whose = "/".join(names)
        found |= {("quota", whose, name): row[name] for name in _known(row, QUOTA_FIELDS, f"quotas {whose}")}
    for row in _rows(document.get("prices", []), "prices", ("gpu_class", "tier")):
        whose = f"{row.pop('gpu_class')}/{row.pop('tier')}"
        found |= {
            ("price", whose, name): _price(row[name], name) for name in _known(row, PRICE_FIELDS, whose)
        }
    hours = _object(document.get("peak_hours", {}), "peak_hours")
    found |= {("peak_hours", "", name): hours[name] for name in _known(hours, PEAK_FIELDS, "peak_hours")}
    if len(found) > MOST_VALUES:
        raise _bad("scenario_many", most=MOST_VALUES)
    return found


def scenario_check(document: object) -> Values:
    """The values of a scenario whose tiers, quotas and prices exist. Raises Refused `bad_scenario`."""
    found = scenario_read(document)
    known = present_values(found)
    for key in found:
        if key not in known:
            raise _bad("scenario_missing", name=f"{key[0]} {key[1][:80]}")
        if not _is_of_kind(key, found[key], known[key]):
            raise _bad("scenario_value", name=f"{key[1][:80]} {key[2]}".strip())
    return found


def _is_of_kind(key: Key, value: Value, present: Value) -> bool:
    """Whether a value has the type of its field."""
    kind, _, name = key
    if value is None:
        models: dict[str, type[Tier | Quota]] = {"tier": Tier, "quota": Quota}
        return name == PEAK if kind not in models else models[kind]._meta.get_field(name).null
    for each in (bool, str):
        if isinstance(value, each) or isinstance(present, each):
            return isinstance(value, each) and (isinstance(present, each) or name == PEAK)
    return True


def present_values(keys: Iterable[Key]) -> Values:
    """The values that are in force now; what does not exist is missing."""
    found: Values = {}
    tiers = {each.slug: each for each in Tier.objects.all()}
    quotas = {_whose(each): each for each in Quota.objects.select_related("tenant", "project")}
    prices = _present_prices()
    for kind, whose, name in keys:
        if kind in ("price", "peak_hours"):
            if (kind, whose, name) in prices:
                found[kind, whose, name] = prices[kind, whose, name]
            continue
        row: Tier | Quota | None = tiers.get(whose) if kind == "tier" else quotas.get(whose)
        if row is not None:
            found[kind, whose, name] = getattr(row, name)
    return found


def scenario_keys(tenant: str, gpu_class: str) -> Iterator[Key]:
    """All that a scenario can set, in the order of a page; quotas of one organisation and class."""
    for tier in Tier.objects.order_by("-priority", "slug"):
        yield from (("tier", tier.slug, name) for name in TIER_FIELDS)
    rows = Quota.objects.select_related("tenant", "project")
    rows = rows.filter(tenant__slug=tenant, gpu_class_id=gpu_class)
    for row in rows.order_by(F("project__slug").asc(nulls_first=True)):
        yield from (("quota", _whose(row), name) for name in QUOTA_FIELDS)
    yield from _present_prices()


def scenario_document(values: Mapping[Key, Value]) -> dict[str, Any]:
    """The document that `scenario_read` reads these values of."""
    rows: dict[tuple[str, str], dict[str, Value]] = {}
    for (kind, whose, name), value in values.items():
        rows.setdefault((kind, whose), {})[name] = value
    found: dict[str, Any] = {}
    for (kind, whose), own in rows.items():
        first, _, last = whose.rpartition("/")
        if kind == "tier":
            found.setdefault("tiers", {})[whose] = own
        elif kind == "peak_hours":
            found["peak_hours"] = own
        elif kind == "price":
            found.setdefault("prices", []).append({"gpu_class": first, "tier": last, **own})
        else:
            tenant, _, project = first.partition("/")
            of = {"tenant": tenant, **({"project": project} if project else {}), "gpu_class": last}
            found.setdefault("quotas", []).append(of | own)
    return found


def _whose(row: Quota) -> str:
    project = (row.project.slug,) if row.project is not None else ()
    return "/".join((row.tenant.slug, *project, row.gpu_class_id))


def _present_prices() -> Values:
    """Prices and peak hours of the latest price book."""
    book = PriceBook.objects.order_by("-version").first()
    if book is None:
        return {}
    peaks = peak_prices_of(book)
    found: Values = {}
    for (gpu_class, tier), price in sorted(prices_of(book).items()):
        peak = peaks.get((gpu_class, tier))
        found["price", f"{gpu_class}/{tier}", PRICE] = _text(price)
        found["price", f"{gpu_class}/{tier}", PEAK] = None if peak is None else _text(peak)
    hours = book.hours
    return found | {
        ("peak_hours", "", "hours"): peak_hours_text(hours),
        ("peak_hours", "", "zone"): hours.zone if hours.weekly else "",
    }


def scenario_apply(wanted: Mapping[Key, Value], operator: User | None, now: datetime) -> list[list[Any]]:
    """Sets the values that differ, in the caller's transaction; returns [kind, whose, field, before,
    after] for each. Raises Refused as the services of tiers, quotas and prices do, or `bad_scenario`."""
    present = present_values(wanted)
    gone = next((key for key in wanted if key not in present), None)
    if gone is not None:
        raise _bad("scenario_missing", name=f"{gone[0]} {gone[1][:80]}")
    changed = {key: value for key, value in sorted(wanted.items()) if present[key] != value}
    for tier in dict.fromkeys(whose for kind, whose, _ in changed if kind == "tier"):
        _tier_apply(tier, _of(changed, "tier", tier), operator, now)
    for whose in sorted(
        {whose for kind, whose, _ in changed if kind == "quota"}, key=_turn(changed, present)
    ):
        _quota_apply(whose, _of(changed, "quota", whose), operator, now)
    _prices_apply(
        {key: each for key, each in changed.items() if key[0] in ("price", "peak_hours")}, operator, now
    )
    return [[*key, present[key], value] for key, value in changed.items()]


def scenario_try(wanted: Mapping[Key, Value], now: datetime) -> None:
    """Sets the values and takes them back. Raises Refused as `scenario_apply`."""
    with transaction.atomic():
        scenario_apply(wanted, None, now)
        transaction.set_rollback(True)


def scenario_undo(applied: Iterable[Iterable[list[Any]]]) -> Values:
    """The values to give back, from what activations changed, the newest first; what somebody has set to
    another value since is left as it is."""
    before: Values = {}
    after: Values = {}
    for rows in applied:
        for kind, whose, name, was, became in rows:
            before[kind, whose, name] = was
            after.setdefault((kind, whose, name), became)
    present = present_values(before)
    return {key: before[key] for key in before if key in present and present[key] == after[key]}


def scenario_lines(document: Mapping[str, Any]) -> list[str]:
    """What a scenario would change now, in words."""
    wanted = scenario_read(dict(document))
    present = present_values(wanted)
    changed = [(key, present.get(key), value) for key, value in sorted(wanted.items())]
    return [
        f"{whose or 'The site'}, {field_label(name)}: {value_text(name, before) or 'none'} to "
        f"{value_text(name, value) or 'none'}"
        for (_, whose, name), before, value in changed
        if before != value
    ]


def field_label(name: str) -> str:
    """Returns a field in words."""
    return _LABELS.get(name, name.replace("_", " "))


def _turn(changed: Mapping[Key, Value], present: Mapping[Key, Value]) -> Callable[[str], tuple[int, str]]:
    """The order in which quotas are set, so that no guarantee is promised twice in between: projects that
    get less, organisations, and projects that get more."""

    def turn(whose: str) -> tuple[int, str]:
        key = ("quota", whose, "guaranteed_units")
        is_more = int(changed.get(key) or 0) > int(present.get(key) or 0) if key in changed else False
        return (1 if whose.count("/") < 2 else 2 * is_more, whose)

    return turn


def _of(changed: Mapping[Key, Value], kind: str, whose: str) -> dict[str, Any]:
    return {key[2]: value for key, value in changed.items() if key[:2] == (kind, whose)}


def _tier_apply(slug: str, values: Mapping[str, Any], operator: User | None, now: datetime) -> None:
    row = Tier.objects.get(slug=slug)
    present = {each.name: getattr(row, each.name) for each in fields(TierTerms)}
    tier_set(operator=operator, slug=slug, terms=TierTerms(**(present | dict(values))), now=now)


def _quota_apply(whose: str, values: Mapping[str, Any], operator: User | None, now: datetime) -> None:
    owner, _, gpu_class = whose.rpartition("/")
    slug, _, project = owner.partition("/")
    rows = Quota.objects.select_related("tenant", "project").filter(project__slug=project or None)
    row = rows.get(tenant__slug=slug, gpu_class_id=gpu_class)
    more = ShareMore(row.weight, row.cap_gpu_hours, row.cap_days, row.cap_carries)
    share = Share(row.guaranteed_units, row.borrow_limit_units, row.lend_limit_units)
    units = {name: value for name, value in values.items() if name not in _MORE_FIELDS}
    more = replace(more, **{name: value for name, value in values.items() if name in _MORE_FIELDS})
    facts: dict[str, Any] = {"gpu_class": gpu_class, "share": replace(share, **units, more=more), "now": now}
    if row.project is None:
        tenant_quota_set(operator=operator, tenant=row.tenant, **facts)
    else:
        project_quota_set(operator=operator, project=row.project, **facts)


def _prices_apply(changed: Mapping[Key, Value], operator: User | None, now: datetime) -> None:
    """Publishes the present prices with those that are changed."""
    if not changed:
        return
    book = PriceBook.objects.order_by("-version").first()
    if book is None:
        raise missing("price book")
    prices, peaks, hours = scenario_prices(changed, book)
    price_book_publish(
        actor_id=operator.pk if operator else None,
        valid_from=now,
        prices=prices,
        peaks=Peaks(hours, peaks),
        slices=slices_kept(),
        setup=book.setups,
        note="By a version of the policy.",
        now=now,
    )


def scenario_prices(wanted: Mapping[Key, Value], book: PriceBook) -> tuple[Prices, Prices, PeakHours]:
    """The prices, peak prices and peak hours of a book with those of a scenario. Raises Refused
    `bad_peak_hours` or `bad_zone`."""
    prices, peaks, hours = prices_of(book), peak_prices_of(book), book.hours
    for (kind, whose, name), value in wanted.items():
        gpu_class, _, tier = whose.partition("/")
        if kind != "price":
            continue
        if name == PRICE:
            prices[gpu_class, tier] = Decimal(str(value))
        elif value is None:
            peaks.pop((gpu_class, tier), None)
        else:
            peaks[gpu_class, tier] = Decimal(str(value))
    if any(kind == "peak_hours" for kind, _, _ in wanted):
        text = wanted.get(("peak_hours", "", "hours"), peak_hours_text(hours))
        zone = wanted.get(("peak_hours", "", "zone")) or hours.zone
        hours = peak_hours_read(str(text), str(zone), "scenario")
    return prices, peaks, hours


def _text(price: Decimal) -> str:
    return f"{price:.4f}"


def _price(value: object, name: str) -> str | None:
    if value is None and name == PEAK:
        return None
    try:
        price = Decimal(str(value))
    except InvalidOperation:
        raise _bad("scenario_value", name=name) from None
    if not price.is_finite() or abs(price) >= MOST_WHOLE:
        raise _bad("scenario_value", name=name)
    return _text(price)


def value_text(name: str, value: Value) -> str:
    """Returns a value as people read and type it: units of a quota as GPUs, nothing as empty."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name.endswith("_units"):
        return gpus_text(value)
    return "" if value is None else str(value)


def _object(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _bad("scenario_object", name=name)
    return value


def _rows(value: object, name: str, needed: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    if not isinstance(value, list):
        raise _bad("scenario_list", name=name)
    for row in value:
        own = dict(_object(row, name))
        if any(not isinstance(own.get(each), str) for each in needed):
            raise _bad("scenario_needs", name=name, needed=", ".join(needed))
        yield own


def _known(own: Mapping[str, Any], known: tuple[str, ...], name: str) -> Iterator[str]:
    for each, value in own.items():
        if each not in known:
            raise _bad("scenario_unknown", name=f"{name}.{each}"[:80], known=", ".join(known))
        if not isinstance(value, str | int | None) or (isinstance(value, int) and abs(value) > MOST_WHOLE):
            raise _bad("scenario_value", name=f"{name}.{each}"[:80])
        yield each


def _bad(sentence: str, **values: object) -> Refused:
    return invalid("bad_scenario", refusal_text(sentence, **values), "scenario")
