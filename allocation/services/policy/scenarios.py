"""Scenarios: what a version of the policy also sets of tiers, quotas and prices.

A scenario names values of tiers, of organisations' quotas and of prices that exist. It is applied in the
transaction that puts its version into force, by the services that pages use, so all of it is or nothing.
What it changed is kept with the activation. Going back gives those values back, except where somebody
has set another one since.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from datetime import datetime
from decimal import Decimal, InvalidOperation
from types import MappingProxyType
from typing import Any

from allocation.words.refusals import refusal_text
from billing.models import PriceBook
from billing.price_books import prices_of
from billing.services import price_book_publish
from billing.services.prices import peaks_kept, slices_kept
from solver import Limit, Snapshot
from solver import Tier as SolverTier
from tenants.models import Quota, Tenant, Tier, User
from tenants.platform.errors import Refused, invalid, missing
from tenants.services.labs.share import Share, ShareMore
from tenants.services.platform import TierTerms, tier_set
from tenants.services.quotas import tenant_quota_set

Key = tuple[str, str, str]
"""`tier`, `quota` or `price`; the tier, `organisation/class` or `class/tier`; the field."""
Value = str | int | bool | None
Values = dict[Key, Value]
NOTHING: Mapping[Key, Value] = MappingProxyType({})
QUOTA_FIELDS = ("guaranteed_units", "borrow_limit_units", "lend_limit_units", "weight")
TIER_FIELDS = tuple(each.name for each in fields(TierTerms) if each.name not in ("name", "description"))
PRICE = "per_gpu_hour"
_KINDS = ("tiers", "quotas", "prices")
MOST_VALUES = 500
# Fields of a tier by those that the solver has of it.
_SOLVER_TIER = {
    "priority": "priority",
    "pausable": "pausable",
    "counts_against_guarantee": "counts",
    "grace_seconds": "grace",
    "protected_seconds": "protected",
    "max_pauses": "pauses",
}
_SOLVER_LIMIT = {
    "guaranteed_units": "guaranteed",
    "borrow_limit_units": "borrow",
    "lend_limit_units": "lend",
    "weight": "weight",
}
_LABELS = {
    "guaranteed_units": "guarantee",
    "borrow_limit_units": "most borrowed",
    "lend_limit_units": "most lent",
    PRICE: "price of a GPU-hour",
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
        whose = f"{row.pop('tenant')}/{row.pop('gpu_class')}"
        found |= {("quota", whose, name): row[name] for name in _known(row, QUOTA_FIELDS, f"quotas {whose}")}
    for row in _rows(document.get("prices", []), "prices", ("gpu_class", "tier")):
        whose = f"{row.pop('gpu_class')}/{row.pop('tier')}"
        found |= {("price", whose, name): _price(row[name]) for name in _known(row, (PRICE,), whose)}
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
        if isinstance(found[key], bool) != isinstance(known[key], bool) and known[key] is not None:
            raise _bad("scenario_value", name=f"{key[1][:80]} {key[2]}")
        if isinstance(found[key], str) != isinstance(known[key], str) and found[key] is not None:
            raise _bad("scenario_value", name=f"{key[1][:80]} {key[2]}")
    return found


def present_values(keys: Iterable[Key]) -> Values:
    """The values that are in force now; what does not exist is missing."""
    found: Values = {}
    tiers = {each.slug: each for each in Tier.objects.all()}
    rows = Quota.objects.filter(project=None).select_related("tenant")
    quotas = {f"{each.tenant.slug}/{each.gpu_class_id}": each for each in rows}
    book = PriceBook.objects.order_by("-version").first()
    prices = {f"{a}/{b}": price for (a, b), price in prices_of(book).items()} if book else {}
    for kind, whose, name in keys:
        if kind == "price":
            if whose in prices:
                found[kind, whose, name] = _text(prices[whose])
            continue
        row: Tier | Quota | None = tiers.get(whose) if kind == "tier" else quotas.get(whose)
        if row is not None:
            found[kind, whose, name] = getattr(row, name)
    return found


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
    for whose in dict.fromkeys(whose for kind, whose, _ in changed if kind == "quota"):
        _quota_apply(whose, _of(changed, "quota", whose), operator, now)
    _prices_apply({key: value for key, value in changed.items() if key[0] == "price"}, operator, now)
    return [[*key, present[key], value] for key, value in changed.items()]


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
    return [
        f"{whose}, {_LABELS.get(name, name.replace('_', ' '))}: {present.get((kind, whose, name))} to {value}"
        for (kind, whose, name), value in sorted(wanted.items())
        if present.get((kind, whose, name)) != value
    ]


def scenario_site(site: Snapshot, wanted: Mapping[Key, Value]) -> Snapshot:
    """A snapshot with the tiers and limits of a scenario."""
    if not wanted:
        return site
    ids = {slug: str(key) for slug, key in Tenant.objects.values_list("slug", "id")}
    tiers, limits = dict[str, Any](), dict[tuple[str, str], Any]()
    for (kind, whose, name), value in wanted.items():
        if kind == "tier" and name in _SOLVER_TIER:
            tiers.setdefault(whose, {})[_SOLVER_TIER[name]] = value
        if kind == "quota":
            tenant, _, gpu_class = whose.partition("/")
            limits.setdefault((ids.get(tenant, ""), gpu_class), {})[_SOLVER_LIMIT[name]] = value
    return replace(
        site,
        tiers=tuple(_tier_of(each, tiers) for each in site.tiers),
        limits=tuple(_limit_of(each, limits) for each in site.limits),
        requests=tuple(
            replace(each, priority=tiers.get(each.tier, {}).get("priority", each.priority))
            for each in site.requests
        ),
    )


def _tier_of(tier: SolverTier, changed: Mapping[str, Any]) -> SolverTier:
    return replace(tier, **changed.get(tier.slug, {}))


def _limit_of(limit: Limit, changed: Mapping[tuple[str, str], Any]) -> Limit:
    own = changed.get((limit.owner, limit.gpu_class), {}) if limit.parent is None else {}
    return replace(limit, **own)


def _of(changed: Mapping[Key, Value], kind: str, whose: str) -> dict[str, Any]:
    return {key[2]: value for key, value in changed.items() if key[:2] == (kind, whose)}


def _tier_apply(slug: str, values: Mapping[str, Any], operator: User | None, now: datetime) -> None:
    row = Tier.objects.get(slug=slug)
    present = {each.name: getattr(row, each.name) for each in fields(TierTerms)}
    tier_set(operator=operator, slug=slug, terms=TierTerms(**(present | dict(values))), now=now)


def _quota_apply(whose: str, values: Mapping[str, Any], operator: User | None, now: datetime) -> None:
    slug, _, gpu_class = whose.partition("/")
    row = Quota.objects.select_related("tenant").get(project=None, tenant__slug=slug, gpu_class_id=gpu_class)
    more = ShareMore(row.weight, row.cap_gpu_hours, row.cap_days, row.cap_carries)
    share = Share(row.guaranteed_units, row.borrow_limit_units, row.lend_limit_units, more)
    units = {name: value for name, value in values.items() if name != "weight"}
    if "weight" in values:
        more = replace(more, weight=values["weight"])
    share = replace(share, **units, more=more)
    tenant_quota_set(operator=operator, tenant=row.tenant, gpu_class=gpu_class, share=share, now=now)


def _prices_apply(changed: Mapping[Key, Value], operator: User | None, now: datetime) -> None:
    """Publishes the present prices with those that are changed."""
    if not changed:
        return
    book = PriceBook.objects.order_by("-version").first()
    if book is None:
        raise missing("price book")
    prices = prices_of(book)
    for (_, whose, _), value in changed.items():
        gpu_class, _, tier = whose.partition("/")
        prices[gpu_class, tier] = Decimal(str(value))
    price_book_publish(
        actor_id=operator.pk if operator else None,
        valid_from=now,
        prices=prices,
        peaks=peaks_kept(),
        slices=slices_kept(),
        setup=book.setups,
        note="By a version of the policy.",
        now=now,
    )


def _text(price: Decimal) -> str:
    return f"{price:.4f}"


def _price(value: object) -> str:
    try:
        return _text(Decimal(str(value)))
    except InvalidOperation:
        raise _bad("scenario_value", name=PRICE) from None


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
        if not isinstance(value, str | int | None):
            raise _bad("scenario_value", name=f"{name}.{each}"[:80])
        yield each


def _bad(sentence: str, **values: object) -> Refused:
    return invalid("bad_scenario", refusal_text(sentence, **values), "scenario")
