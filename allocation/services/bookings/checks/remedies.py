"""What would work instead of a refused request. Each is tried by the rules that refuse it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import repeat
from typing import Any

from allocation.models import MigPlacement
from allocation.queries.fleet.catalogue import ask_units
from allocation.rules.ask import AskDocument
from allocation.rules.ask.words.document import GROUP_FIELDS, MIN_DURATION_SECONDS, AskGroup
from solver import Policy
from tenants.models import GpuClass, Tier
from tenants.platform.errors import Refused

Remedy = dict[str, Any]
"""The fields of a request that differ: `tier` (with its `name`), `starts`, `duration`, `count`,
`deadline`, `gpu_class`, `pin`, `zones`, `not_zones`, `storage`, `scratch`, `cores`, `memory`, `profile`,
or `groups`, which is empty where one is left."""
_FIELDS = "starts duration count deadline gpu_class pin cores memory groups profile together required"
FIELDS = frozenset([*_FIELDS.split(), "zones", "not_zones", "storage", "scratch"])
TryIt = Callable[[str, AskDocument], object]
MOST_REMEDIES = 4
_MOST_OF_TWO = 4
_MOST_OF_MORE = 24
_COUNTED = ("tenant_quota", "project_quota", "lab_quota", "person_quota")
_FEWER = (*_COUNTED, "gpu_hours", "guarantee_only", "count_out_of_bounds")
_OF_QUOTA = ("gpu_hours", "guarantee_only")
_OF_LENGTH = ("too_long", "shorter_than_tier", "duration_out_of_bounds")
_OF_CLASS = (*_COUNTED, "stopped", "class_not_open", "tier_class", "unknown_class", "impossible_profile")
_OF_PERSON = ("too_many_open", "too_many_gpus")
_OF_MONEY = ("budget_exceeded",)
OF_DEADLINE = ("deadline_passed", "deadline_unreachable")
_OF_TIER = (
    *_OF_LENGTH,
    *_OF_PERSON,
    *_OF_MONEY,
    "advance_window",
    "too_soon",
    "start_hours",
    "tier_class",
    "stopped",
)
_MINUTE = 60
_STEP = Policy(version=0).grid


def with_remedies(refusal: Refused, ask: AskDocument, tier: str, try_it: TryIt) -> Refused:
    """Returns the refusal with what would work: what its rule offers and what is near the request,
    as far as `try_it` (by tier and request) does not refuse it. Where no change of one thing is
    enough, several are tried together."""
    offered = [dict(each) for each in refusal.alternatives]
    found: list[Remedy] = []
    refused: list[tuple[Remedy, Refused]] = []
    groups = _fewer_of_groups(refusal, ask, tier, try_it) if ask.groups else ()
    for remedy in (*offered, *groups, *_near(refusal, ask, tier)):
        if len(found) == MOST_REMEDIES:
            break
        is_length = remedy.keys() == {"duration"}
        # Of several lengths the first is the longest.
        if remedy in found or (is_length and any(each.keys() == remedy.keys() for each in found)):
            continue
        again = _refused(remedy, ask, tier, try_it)
        if again is None:
            found.append(remedy)
        else:
            refused.append((remedy, again))
    found = found or list(_of_several(refused, ask, tier, try_it))
    return replace(refusal, alternatives=[_whole(each, ask) for each in found])


def _whole(remedy: Remedy, ask: AskDocument) -> Remedy:
    """The remedy with nothing where a start replaces an earliest start or a deadline, and with the length
    that keeps a named end."""
    length = request_of(remedy, ask).duration
    if remedy.get("starts") and length != ask.duration:
        remedy = {**remedy, "duration": length}
    replaced = {name: None for name in ("not_before", "deadline") if getattr(ask, name) is not None}
    return {**remedy, **replaced} if remedy.get("starts") else remedy


def _of_several(
    refused: Iterable[tuple[Remedy, Refused]], ask: AskDocument, tier: str, try_it: TryIt
) -> Iterator[Remedy]:
    """Yields the first change of two things that works, or else of more: fewer GPUs, for less time, at an
    earlier start. Where the plan refuses its end, the end that the plan offers is among them."""
    of_two: list[tuple[Remedy, Refused]] = []
    for first, again in refused:
        for second in _further(first, again, ask, tier):
            both = {**first, **second}
            last = _refused(both, ask, tier, try_it)
            if last is None:
                yield both
                return
            if last.code != again.code or last.code in OF_DEADLINE:
                of_two.append((both, last))
    tries = repeat(None, _MOST_OF_MORE)
    for both, last in of_two[:_MOST_OF_TWO]:
        found = _followed(both, last, ask, tier, try_it, tries)
        if found is not None:
            yield found
            return


def _followed(
    changed: Remedy, again: Refused, ask: AskDocument, tier: str, try_it: TryIt, tries: Iterator[None]
) -> Remedy | None:
    """The change with what each further refusal of it names, the nearest first; None if that leads to
    nothing within the tries that are left."""
    for each, _ in zip(_further(changed, again, ask, tier), tries, strict=False):
        every = {**changed, **each}
        last = _refused(every, ask, tier, try_it)
        if last is None:
            return every
        if last.code != again.code:
            found = _followed(every, last, ask, tier, try_it, tries)
            if found is not None:
                return found
    return None


def _further(changed: Remedy, again: Refused, ask: AskDocument, tier: str) -> Iterator[Remedy]:
    """Yields what is near a request that was changed and refused again. Of another tier nothing is."""
    if "tier" in changed:
        return
    near = (*map(dict, again.alternatives), *_near(again, request_of(changed, ask), tier))
    yield from (each for each in near if "tier" not in each)


def request_of(remedy: Mapping[str, Any], ask: AskDocument) -> AskDocument:
    """Returns the request with the fields of a remedy."""
    if "groups" in remedy:
        ask = _with_groups(remedy, ask)
    plain = ("count", "duration", "cores", "memory", "profile", "together", "required", "storage", "scratch")
    if remedy.get("starts"):
        ask = ask.starting(datetime.fromisoformat(remedy["starts"]).astimezone(UTC))
    changes = {name: remedy[name] for name in plain if name in remedy}
    if remedy.get("duration", ask.duration) != ask.duration:
        changes["ends_in"] = None
    if remedy.get("deadline"):
        changes["deadline"] = datetime.fromisoformat(remedy["deadline"]).astimezone(UTC)
    if "gpu_class" in remedy:
        changes["classes"] = (remedy["gpu_class"],)
    changes |= {name: tuple(remedy[name]) for name in ("pin", "zones", "not_zones") if name in remedy}
    return replace(ask, **changes)


def request_as(offered: Mapping[str, Any], ask: AskDocument) -> AskDocument:
    """Returns the request that is offered: with the fields of a remedy, or in the window of a plan."""
    return _in_window(offered, ask) if "ends" in offered else request_of(offered, ask)


def _in_window(window: Mapping[str, Any], ask: AskDocument) -> AskDocument:
    """The request in a window that a plan offers, with its class, shape and nodes."""
    starts = datetime.fromisoformat(window["starts"]).astimezone(UTC)
    other = ask.starting(starts)
    length = datetime.fromisoformat(window["ends"]) - datetime.fromisoformat(window["starts"])
    other = replace(other, duration=int(length.total_seconds()), ends_in=None)
    if window.get("groups"):
        # Each group keeps its place: a plan varies windows of mixed requests alone.
        return other
    given = ("count", "profile", "share", "together", "required")
    changes: dict[str, Any] = {name: window[name] for name in given if name in window}
    changes |= {name: tuple(window.get(name, ())) for name in ("pin", "zones", "not_zones")}
    changes |= {"storage": window.get("storage"), "scratch": window.get("scratch", 0)}
    return replace(other, classes=(window["gpu_class"],), **changes)


def _with_groups(remedy: Mapping[str, Any], ask: AskDocument) -> AskDocument:
    rows = [AskGroup(**each) for each in remedy["groups"]]
    if not rows:
        return ask.on(remedy["gpu_class"])
    first = {name: getattr(rows[0], name) for name in GROUP_FIELDS}
    return replace(ask, classes=(rows[0].gpu_class,), groups=tuple(rows[1:]), **first)


def _fewer_of_groups(refusal: Refused, ask: AskDocument, tier: str, try_it: TryIt) -> Iterator[Remedy]:
    """Yields a mixed request with fewer of each class whose limit refuses it, or without it."""
    for _ in ask.every_group:
        name = refusal.numbers.get("gpu_class")
        if name not in ask.all_classes or refusal.code not in (*_OF_CLASS, *_OF_QUOTA):
            return
        limit, asked = refusal.numbers.get("limit") or 0, refusal.numbers.get("asked") or 1
        count = ask.on(name).count * limit // asked
        rows = [
            asdict(each) | ({"count": count} if each.gpu_class == name else {}) for each in ask.every_group
        ]
        rows = [row for row in rows if row["count"]]
        if not rows:
            return
        remedy: Remedy = {"groups": rows}
        if len(rows) == 1:
            remedy = {**{key: rows[0][key] for key in ("gpu_class", "count")}, "groups": []}
        ask, again = request_of(remedy, ask), _refused(remedy, ask, tier, try_it)
        if again is None:
            yield remedy
            return
        refusal = again


def _refused(remedy: Remedy, ask: AskDocument, tier: str, try_it: TryIt) -> Refused | None:
    try:
        try_it(remedy.get("tier", tier), request_of(remedy, ask))
    except Refused as refusal:
        return refusal
    return None


def _near(refusal: Refused, ask: AskDocument, tier: str) -> Iterator[Remedy]:
    """Yields changes of one thing, the nearest first."""
    code, numbers = refusal.code, refusal.numbers
    if code not in _OF_PERSON and (not refusal.alternatives or code == "guarantee_only"):
        least = MIN_DURATION_SECONDS
        less = (*_cheaper(code, numbers, ask), *_smaller(code, numbers, ask))
        # Of a limit that is nearly used up, what is left can be too short to be a request.
        yield from (each for each in less if each.get("duration", least) >= least)
    if "latest" in numbers:
        yield {"starts": numbers["latest"]}
    if "earliest_end" in numbers and not refusal.alternatives:
        yield from _deadlines_of(ask, datetime.fromisoformat(numbers["earliest_end"]))
    if code in _OF_TIER or "lead_seconds" in numbers:
        for other in Tier.objects.exclude(slug=tier).order_by("-priority", "slug"):
            yield {"tier": other.slug, "name": other.name}
    if code in _OF_CLASS and not ask.groups:
        kind = GpuClass.Kind.HOST if ask.host else GpuClass.Kind.GPU
        others = GpuClass.objects.filter(kind=kind).exclude(slug__in=ask.classes)
        for name in others.values_list("slug", flat=True):
            yield {"gpu_class": name}


def _smaller(code: str, numbers: Mapping[str, Any], ask: AskDocument) -> Iterator[Remedy]:
    """Yields fewer GPUs or another length, by the limit that a refusal names."""
    limit, asked = numbers.get("limit"), numbers.get("asked")
    if not limit or not asked:
        return
    if "borrow_seconds" in numbers:
        yield {"duration": numbers["borrow_seconds"]}
    named = {"gpu_class": numbers["gpu_class"]} if "gpu_class" in numbers else {}
    fewer = {"count": ask.count * limit // asked, **named}
    if code in _OF_LENGTH:
        yield {"duration": limit}
    if code == "no_budget":
        # A request that is sent again without a start begins a little later.
        yield {"duration": (limit - _MINUTE) // _MINUTE * _MINUTE}
    if code == "gpu_hours":
        yield {"duration": ask.duration * limit // asked // _MINUTE * _MINUTE}
    if code in _FEWER and not ask.groups and fewer["count"]:
        yield fewer
    if code in _COUNTED and not fewer["count"] and not (ask.groups or ask.profile or ask.share):
        yield from _slices_within(ask, str(numbers.get("gpu_class", "")), limit)


def _slices_within(ask: AskDocument, gpu_class: str, limit: int) -> Iterator[Remedy]:
    """Yields one slice of the class for a limit below one whole GPU, the largest first."""
    placements = MigPlacement.objects.filter(model__gpu_class=gpu_class)
    one = replace(ask.on(gpu_class), count=1, required=False, together="any")
    units = {
        profile: ask_units(replace(one, profile=profile)).get(gpu_class, 0)
        for profile in placements.values_list("profile", flat=True).distinct()
    }
    for profile in sorted(units, key=lambda each: (-units[each], each)):
        if 0 < units[profile] <= limit:
            yield {
                "gpu_class": gpu_class,
                "count": 1,
                "profile": profile,
                **({"together": "any", "required": False} if ask.required else {}),
            }


def _cheaper(code: str, numbers: Mapping[str, Any], ask: AskDocument) -> Iterator[Remedy]:
    """Yields a shorter request, or fewer GPUs, by the money that is left."""
    left, needs = (Decimal(numbers.get(name, 0)) for name in ("left", "needs"))
    if code not in _OF_MONEY or not 0 < left < needs:
        return
    for share in shares_within(left, needs):
        yield {"duration": int(ask.duration * share) // _MINUTE * _MINUTE}
    count = int(ask.count * left / needs)
    if count and not ask.groups:
        yield {"count": count}


def shares_within(left: Decimal, needs: Decimal) -> Iterator[Decimal]:
    """Yields parts of a length to try, where it needs more money than is left, the longest first.

    A fee and peak hours cost the same in a shorter booking; and where the budget of one month is short
    of a longer window, the length has to become much shorter before that month has less of it.
    """
    if not 0 < left < needs:
        return
    part = left / needs
    yield from sorted({part, part * Decimal("0.9"), *(part**power for power in range(2, 7))}, reverse=True)


def _deadlines_of(ask: AskDocument, earliest_end: datetime) -> Iterator[Remedy]:
    """Yields a later deadline, and a shorter request that meets this one."""
    # Starts are planned on a grid, so the request may begin a step later than it could.
    late = earliest_end + timedelta(seconds=_STEP + _MINUTE)
    yield {"deadline": late.replace(second=0, microsecond=0).isoformat()}
    if ask.deadline is None:
        return
    left = ask.duration - int((earliest_end - ask.deadline).total_seconds()) - _STEP
    if left - _MINUTE >= MIN_DURATION_SECONDS:
        yield {"duration": (left - 1) // _MINUTE * _MINUTE}
