"""Admission: the rules that refuse a request at once, whatever the calendar looks like."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db.models import Q

from allocation.models import Booking, Gpu, Override
from allocation.points.people import IntendedUse, demand_unmet
from allocation.queries.fleet.catalogue import ask_catalogue, ask_units, class_labels
from allocation.queries.fleet.stops import stop_sentence, stops_covering, stops_of
from allocation.rules.ask import MAX_COUNT, MAX_DURATION_SECONDS, AskDocument
from allocation.rules.ask.line.text import pin_words
from allocation.services.bookings.checks.hosts import host_check, host_settle, where_check
from allocation.services.bookings.checks.quota import QuotaRequest, quota_check, tiers_read
from allocation.services.bookings.checks.tiers import (
    TierUse,
    audience_check,
    classes_within,
    shortest_check,
    start_check,
    zone_of_reader,
)
from allocation.services.overrides.use import Need, override_for
from allocation.services.record.refusals import refusal
from allocation.services.record.workloads import Durations, durations_of
from allocation.services.snapshot.hardware import gpus_read, models_read
from allocation.words.refusals import coded_text, refusal_text
from solver.fleet.pool import pools_of
from tenants.models import GpuClass, Project, Tier
from tenants.platform.coded import coded
from tenants.platform.errors import Refused
from tenants.platform.nouns import about_cores
from tenants.platform.text import whole_number
from tenants.services.input_values import seconds_words

# A window may begin this much in the past: people type, and networks take time.
START_TOLERANCE = timedelta(seconds=1)
# An offered start that is near is not over yet when it is asked for.
_SOON = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Admission:
    """A request that passed: tier, ask, earliest start, and quota units by class.

    `lengths`: how long a workload takes on these classes and on others that it could be offered.
    `overrides` are the exceptions for one booking that it needs, and then uses up.
    """

    tier: Tier
    ask: AskDocument
    not_before: datetime
    units: Mapping[str, int]
    lengths: Durations
    use: TierUse
    overrides: tuple[Override, ...] = ()

    def seconds_on(self, gpu_class: str) -> int:
        """Returns how long it takes on a class."""
        return self.lengths.get(gpu_class, self.ask.duration)


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks, and for which booking: whose exceptions count.

    Many bookings at once (`is_many`) use no exception that is for one booking. A refusal says its times
    in `zone`, or without one in that of the person.
    """

    person_id: int | None = None
    booking: Booking | None = None
    is_many: bool = False
    zone: str = ""


def admitted(project: Project, tier_slug: str, ask: AskDocument, now: datetime, asker: Asker) -> Admission:
    """Checks the same rules. A refusal has only what its own rule offers, not tried by the others."""
    tiers = tiers_read()
    tier = _tier_of(tiers, tier_slug)
    use = TierUse.of(project, tier, asker.person_id, asker.booking, now, asker.zone)
    audience_check(use)
    ask = host_settle(ask)
    with about_cores(are_cores=ask.host):
        return _settled(use, tiers, ask, now, asker)


def _settled(use: TierUse, tiers: Sequence[Tier], ask: AskDocument, now: datetime, asker: Asker) -> Admission:
    """Checks a request of which it is known whether it is for cores."""
    project, tier = use.project, use.tier
    units = _units_of(ask)
    ask = pin_resolve(ask)
    _stop_check(use, ask.all_classes)
    asked = {name: units[name] for name in ask.all_classes if name in units}
    units = classes_within(use, asked, every=bool(ask.groups))
    wanted = IntendedUse(project.tenant_id, asker.person_id, tier.slug, project.slug, tuple(units))
    if (unmet := demand_unmet(wanted, now)) is not None:
        raise unmet
    lengths = durations_of(ask, project.id)
    seconds = {name: lengths.get(name, 0) if lengths else ask.duration for name in units}
    shortest = min(filter(None, seconds.values()), default=ask.duration)
    shortest_check(use, shortest)
    longer = _longer(use, shortest, is_many=asker.is_many)
    longest = (use.limits.longest.value or 0) + (int(longer.amount) if longer else 0)
    not_before = _window_check(replace(ask, duration=shortest), use, longest)
    short = {name: needed for name, needed in units.items() if 0 < seconds[name] <= longest}
    request = QuotaRequest(
        project, tier, short, seconds, person_id=asker.person_id, is_mixed=bool(ask.groups)
    )
    fits = quota_check(request, tiers, asker.booking, now)
    where_check(ask)
    host_check(ask)
    _bounds_check(ask)
    used = (longer,) if longer is not None and longer.is_once else ()
    return Admission(tier, ask, not_before, fits, lengths, use, used)


def _bounds_check(ask: AskDocument) -> None:
    """Refuses more than any request may have. It is the last rule, because those of a tier and of quotas
    say how much less would work."""
    if ask.count > MAX_COUNT:
        sentence, numbers = coded_text(coded("ask_count", max_count=MAX_COUNT)), (MAX_COUNT, ask.count)
        code = "count_out_of_bounds"
    elif ask.duration > MAX_DURATION_SECONDS:
        sentence, numbers = coded_text(coded("ask_duration_bounds")), (MAX_DURATION_SECONDS, ask.duration)
        code = "duration_out_of_bounds"
    else:
        return
    limit, asked = numbers
    raise Refused(code, sentence, "invalid", "request", numbers={"limit": limit, "asked": asked})


def _tier_of(tiers: Sequence[Tier], slug: str) -> Tier:
    tier = next((each for each in tiers if each.slug == slug), None)
    if tier is None:
        sentence = refusal_text("unknown_tier", tiers=", ".join(each.slug for each in tiers))
        raise Refused("unknown_tier", sentence, "invalid", "tier")
    return tier


def _units_of(ask: AskDocument) -> dict[str, int]:
    """Returns the units by class; of several groups each has to be possible."""
    units = ask_units(ask)
    is_short = bool(ask.groups) and len(units) < len(ask.all_classes)
    if not units or is_short:
        raise _impossible(ask)
    return units


def _longer(use: TierUse, seconds: int, *, is_many: bool) -> Override | None:
    """Returns the exception by which a booking may last so long; None if it needs none."""
    limits = use.limits
    over = seconds - (limits.longest.value or 0)
    if over <= 0:
        return None
    person_id = None if is_many else use.person_id
    is_beyond = seconds > (limits.bounds.longest or 0)
    need = Need(use.project, use.tier, person_id, use.booking, over, is_beyond)
    return override_for(Override.Kind.LENGTH, need, use.now)


def _stop_check(use: TierUse, classes: Sequence[str]) -> None:
    """Refuses what operators have stopped. A booking may change under a stop that covers it
    already."""
    booking, now = use.booking, use.now
    stops = stops_covering(use.project.tenant_id, use.tier.slug, classes, now)
    known = stops_of(booking, now) if stops and booking is not None else []
    new = [stop for stop in stops if stop not in known]
    if new:
        stop = new[0]
        raise refusal(
            "stopped",
            f"{stop_sentence(stop, now)} {refusal_text(f'stopped_{stop.scope}')}",
            "conflict",
            "request",
            numbers={"scope": stop.scope, "name": stop.name},
            frees_at=stop.until,
        )


def admission_at(
    admission: Admission, starts: datetime, now: datetime, seconds: int | None = None
) -> Admission:
    """Returns the admission for another start of the same request, and for another length.

    Raises:
        Refused: `window_past`, `advance_window`, `start_hours`, `too_soon`, `too_long` or
            `shorter_than_tier`.
    """
    ask, use = replace(admission.ask, starts=starts), replace(admission.use, now=now)
    most = min(map(admission.seconds_on, admission.units))
    longest = max(most, use.limits.longest.value or 0)
    if seconds is not None and seconds != ask.duration:
        ask = replace(ask, duration=seconds)
        admission = replace(admission, lengths=durations_of(ask, use.project.id))
    dated = replace(admission, ask=ask)
    shortest = min(map(dated.seconds_on, dated.units))
    shortest_check(use, shortest)
    not_before = _window_check(replace(ask, duration=shortest), use, longest)
    return replace(dated, not_before=not_before)


def _impossible(ask: AskDocument) -> Refused:
    known = set(GpuClass.objects.values_list("slug", flat=True))
    unknown = [name for name in ask.all_classes if name not in known]
    if unknown:
        facts = {"gpu_class": unknown[0], "known": ", ".join(sorted(known))}
        return _invalid("unknown_class", **facts)
    whole = ask
    if ask.groups:
        ask = next(part for part in ask.parts if not ask_units(part))
    labels = class_labels()
    facts = {"classes": " or ".join(labels[each] for each in ask.classes), "profile": ask.profile or ""}
    entries = (entry for entry in ask_catalogue().classes if entry.slug in ask.classes)
    profiles = dict.fromkeys(name for entry in entries for name in entry.profiles)
    remedies: list[dict[str, object]] = [{"profile": name} for name in (*profiles, None)]
    if whole.groups:
        rows = [asdict(each) for each in whole.every_group]
        mine = (ask.classes[0], ask.profile)
        remedies = [
            {"groups": [row | (each if (row["gpu_class"], row["profile"]) == mine else {}) for row in rows]}
            for each in remedies
        ]
    return replace(_invalid("impossible_profile", **facts), alternatives=remedies)


def _invalid(code: str, **facts: str) -> Refused:
    return refusal(code, refusal_text(code, **facts), "invalid", "request")


def _window_check(ask: AskDocument, use: TierUse, most: int) -> datetime:
    """Returns the earliest start. `most`: seconds that the booking may last."""
    now = use.now
    if ask.starts is not None and ask.starts < now - START_TOLERANCE:
        coming = [{"starts": each.isoformat()} for each in _starts_to_come(ask.starts, use)]
        raise replace(_invalid("window_past"), alternatives=coming)
    not_before = (ask.starts or max(ask.not_before or now, now)).replace(microsecond=0)
    length = timedelta(seconds=ask.duration)
    longest = timedelta(seconds=most)
    if length > longest:
        raise _too_long(ask, use, longest)
    not_before = start_check(use, ask, not_before)
    if ask.deadline is not None:
        _deadline_check(ask.deadline, not_before + length, use)
    return not_before


def _starts_to_come(starts: datetime, use: TierUse) -> Iterator[datetime]:
    """Yields a start that is near, and the next one at the same time of the person's day, for a start
    that is over."""
    now = use.now
    yield now.replace(second=0, microsecond=0) + _SOON
    zone = zone_of_reader(use)
    local = starts.astimezone(zone)
    days = (now.astimezone(zone).date() - local.date()).days
    later = (local + timedelta(days=each) for each in (days, days + 1))
    yield next(each for each in later if each > now).astimezone(UTC)


def _too_long(ask: AskDocument, use: TierUse, longest: timedelta) -> Refused:
    tier, most = use.tier, int(longest.total_seconds())
    where = {"tier": tier.slug, "project": use.project.slug}
    return refusal(
        "too_long",
        refusal_text("too_long", tier=tier.name, longest=length_text(longest)),
        "invalid",
        "request",
        owner=use.limits.longest.owner,
        numbers={"asked": ask.duration, "limit": most},
        more={"kind": "length", "amount": str(ask.duration - most), **where},
    )


def _deadline_check(deadline: datetime, earliest_end: datetime, use: TierUse) -> None:
    now = use.now
    code = "deadline_passed" if deadline <= now else "deadline_unreachable"
    if deadline <= now or deadline < earliest_end:
        numbers: dict[str, object] = {"earliest_end": earliest_end.isoformat()}
        if use.limits.least_lead.value:
            # Another tier may start earlier.
            numbers["lead_seconds"] = use.limits.least_lead.value
        raise refusal(code, refusal_text(code), "invalid", "request", numbers=numbers)


def length_text(length: timedelta) -> str:
    """Returns a length as `36 h` or `3 days`, or exactly, as `2 d 2 h 20 min`."""
    return seconds_words(int(length.total_seconds()))


def pin_resolve(ask: AskDocument) -> AskDocument:
    """Returns the ask with nodes by name and GPUs as `node/index`, on the classes that they have.

    A GPU may also be named by its portal id or its UUID.

    Raises:
        Refused: `pin_elsewhere` or `pin_too_small`.
    """
    if not ask.pin:
        return ask
    names = tuple(sorted({_resolved(name) for name in ask.pin}))
    there = Q()
    for name in names:
        there |= _where(name)
    pools = pools_of(gpus_read(there), models_read())
    able = tuple(name for name in ask.classes if name in pools)
    if not able:
        labels = class_labels()
        raise refusal(
            "pin_elsewhere",
            refusal_text(
                "pin_elsewhere",
                classes=" or ".join(labels.get(name, name) for name in ask.classes),
                pins=pin_words(names),
                there=" and ".join(labels.get(name, name) for name in pools),
            ),
            "invalid",
            "request",
            alternatives=[{"pin": []}, *({"gpu_class": name} for name in pools)],
        )
    level = ask.together if ask.required and ask.count > 1 else "any"
    most = {name: pools[name].most(ask.shape, level) for name in able}
    fitting = tuple(name for name in able if most[name] >= ask.count)
    if not fitting:
        numbers = {"asked": ask.count, "most": max(most.values())}
        raise refusal(
            "pin_too_small",
            refusal_text("pin_too_small", pins=pin_words(names), **numbers),
            "invalid",
            "request",
            numbers=numbers,
            alternatives=[{"pin": []}, *({"count": most} for most in {*most.values()} - {0})],
        )
    return replace(ask, pin=names, classes=fitting)


def _resolved(name: str) -> str:
    """Returns the portal's name of a node or GPU. Raises Refused: `pin_elsewhere`."""
    found = Gpu.objects.filter(_where(name)).select_related("node").order_by("index").first()
    if found is None:
        raise refusal(
            "pin_elsewhere",
            refusal_text("pin_unknown", name=name),
            "invalid",
            "request",
            alternatives=[{"pin": []}],
        )
    if found.node.name.lower() == name.lower():
        return found.node.name
    return f"{found.node.name}/{found.index}"


def _where(name: str) -> Q:
    node, _, index = name.rpartition("/")
    if node:
        return Q(node__name__iexact=node, index=-1 if (number := whole_number(index)) is None else number)
    found = Q(node__name__iexact=name) | Q(uuid__iexact=name)
    try:
        return found | Q(id=UUID(name))
    except ValueError:
        return found
