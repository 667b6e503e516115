"""Admission: the rules that refuse a request at once, whatever the calendar looks like."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext as _

from allocation.models import Booking, Override
from allocation.queries.fleet.catalogue import ask_units
from allocation.queries.fleet.stops import stop_sentence, stops_covering, stops_of
from allocation.rules.ask import AskDocument
from allocation.services.bookings.checks.pins import pin_resolve
from allocation.services.bookings.checks.tiers import (
    TierUse,
    audience_check,
    classes_within,
    shortest_check,
    start_check,
)
from allocation.services.overrides.use import Need, override_for
from allocation.services.record.refusals import refusal
from allocation.services.record.workloads import Durations, durations_of
from allocation.services.requirements.checks import requirements_check
from allocation.services.snapshot.inner_limit_rows import (
    InnerLimits,
    inner_limits_read,
    window_steps_of,
)
from allocation.services.snapshot.override_rows import overrides_read
from allocation.services.snapshot.quota_rows import (
    GPU_HOUR,
    limits_of,
    quotas_read,
    rolling_caps_of,
    tiers_of,
)
from allocation.solver import MIXED, Block, Quota, Snapshot, Use
from allocation.solver import Override as QuotaOverride
from allocation.words.refusals import refusal_text
from tenants.models import GpuClass, Lab, Project, Tier
from tenants.models import Quota as QuotaRow
from tenants.platform.errors import Refused
from tenants.platform.reference import by_version
from tenants.services.input_values import gpus_text

# A window may begin this much in the past: people type, and networks take time.
START_TOLERANCE = timedelta(seconds=1)


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
class _QuotaRequest:
    """What a request needs of quota: units and seconds by class, of all classes if it is mixed.
    `override`: as of a booking. `person_id`: whose limits count; None without a person."""

    project: Project
    tier: Tier
    units: Mapping[str, int]
    seconds: Mapping[str, int]
    override: str = ""
    person_id: int | None = None
    is_mixed: bool = False


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks, and for which booking: whose exceptions count.

    Many bookings at once (`is_many`) use no exception that is for one booking.
    """

    person_id: int | None = None
    booking: Booking | None = None
    is_many: bool = False


_NOBODY = Asker()


def admission_check(
    *,
    project: Project,
    tier_slug: str,
    ask: AskDocument,
    now: datetime,
    asker: Asker = _NOBODY,
) -> Admission:
    """Checks every rule that needs no calendar.

    Raises:
        Refused: `unknown_tier`, `unknown_class`, `impossible_profile`, `window_past`,
            `deadline_passed`, `tier_audience`, `tier_class`, `shorter_than_tier`, `too_soon`,
            `start_hours`, `too_long`, `advance_window`, `class_not_open`, `tenant_quota`,
            `project_quota`, `lab_quota`, `person_quota`, `guarantee_only`, `gpu_hours`, `no_speed`,
            `pin_elsewhere`, `pin_too_small`, `stopped`, `terms_missing`, `training_missing`.
    """
    tiers = _tiers_read()
    tier = _tier_of(tiers, tier_slug)
    use = TierUse.of(project, tier, asker.person_id, asker.booking, now)
    audience_check(use)
    units = _units_of(ask)
    ask = pin_resolve(ask)
    _stop_check(use, ask.all_classes)
    asked = {name: units[name] for name in ask.all_classes if name in units}
    units = classes_within(use, asked, every=bool(ask.groups))
    requirements_check(
        tenant_id=project.tenant_id,
        person_id=asker.person_id,
        tier=tier_slug,
        project=project.slug,
        classes=tuple(units),
        now=now,
    )
    lengths = durations_of(ask)
    seconds = {name: lengths.get(name, 0) if lengths else ask.duration for name in units}
    shortest = min(filter(None, seconds.values()), default=ask.duration)
    shortest_check(use, shortest)
    longer = _longer(use, shortest, is_many=asker.is_many)
    longest = (use.limits.longest.value or 0) + (int(longer.amount) if longer else 0)
    not_before = _window_check(replace(ask, duration=shortest), use, longest)
    short = {name: needed for name, needed in units.items() if 0 < seconds[name] <= longest}
    request = _QuotaRequest(
        project, tier, short, seconds, person_id=asker.person_id, is_mixed=bool(ask.groups)
    )
    fits = _quota_check(request, tiers, asker.booking, now)
    used = (longer,) if longer is not None and longer.is_once else ()
    return Admission(tier, ask, not_before, fits, lengths, use, used)


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
            f"{stop_sentence(stop)} {refusal_text(f'stopped_{stop.scope}')}",
            "conflict",
            "request",
            numbers={"scope": stop.scope, "name": stop.name},
            frees_at=stop.until,
        )


def _quota_check(
    request: _QuotaRequest, tiers: Sequence[Tier], booking: Booking | None, now: datetime
) -> dict[str, int]:
    """Returns the classes within quota.

    Exceptions are read only where the limits alone refuse the request.
    """
    quotas, inner = _quotas_read(), _inner_limits_read()
    guaranteed = {
        row.gpu_class_id: row.guaranteed_units for row in quotas if row.project_id is None
    }

    def fits(name: str, overrides: Sequence[QuotaOverride]) -> dict[str, int]:
        quota = _quota_read()
        if overrides:
            quota = Quota(_own_quota(tiers, quotas, inner, overrides), {})
        return _within_quota(replace(request, override=name), quota, guaranteed)

    try:
        return fits("", ())
    except Refused:
        steps = window_steps_of(inner, quotas, now)
        overrides = (*overrides_read(now), *steps)
        if not overrides:
            raise
    name = str(booking.id) if booking is not None and booking.has_override else ""
    return fits(name, overrides)


def admission_at(admission: Admission, starts: datetime, now: datetime) -> Admission:
    """Returns the admission for another start of the same request.

    Raises:
        Refused: `window_past` or `advance_window`.
    """
    ask = replace(admission.ask, starts=starts)
    shortest = min(map(admission.seconds_on, admission.units))
    longest = max(shortest, admission.use.limits.longest.value or 0)
    not_before = _window_check(
        replace(ask, duration=shortest), replace(admission.use, now=now), longest
    )
    return replace(admission, ask=ask, not_before=not_before)


def _impossible(ask: AskDocument) -> Refused:
    known = set(GpuClass.objects.values_list("slug", flat=True))
    unknown = [name for name in ask.all_classes if name not in known]
    if unknown:
        facts = {"gpu_class": unknown[0], "known": ", ".join(sorted(known))}
        return _invalid("unknown_class", **facts)
    if ask.groups:
        ask = next(part for part in ask.parts if not ask_units(part))
    facts = {"classes": " or ".join(ask.classes), "profile": ask.profile or ""}
    return _invalid("impossible_profile", **facts)


def _invalid(code: str, **facts: str) -> Refused:
    return refusal(code, refusal_text(code, **facts), "invalid", "request")


def _window_check(ask: AskDocument, use: TierUse, most: int) -> datetime:
    """Returns the earliest start. `most`: seconds that the booking may last."""
    now = use.now
    if ask.starts is not None and ask.starts < now - START_TOLERANCE:
        raise _invalid("window_past")
    not_before = (ask.starts or max(ask.not_before or now, now)).replace(microsecond=0)
    length = timedelta(seconds=ask.duration)
    longest = timedelta(seconds=most)
    if length > longest:
        raise _too_long(ask, use, longest)
    not_before = start_check(use, ask, not_before)
    if ask.deadline is not None:
        _deadline_check(ask.deadline, not_before + length, now)
    return not_before


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
        alternatives=_longer_tiers(timedelta(seconds=ask.duration)),
        more={"kind": "length", "amount": str(ask.duration - most), **where},
    )


def _deadline_check(deadline: datetime, earliest_end: datetime, now: datetime) -> None:
    if deadline <= now:
        raise _invalid("deadline_passed")
    if deadline < earliest_end:
        raise _invalid("deadline_unreachable")


def _within_quota(
    asked: _QuotaRequest, quota: Quota, guaranteed: Mapping[str, int]
) -> dict[str, int]:
    """Returns the classes on which the request alone stays within quota."""
    project, tier = asked.project, asked.tier
    owners: tuple[str, ...] = (str(project.tenant_id), str(project.id))
    if asked.override:
        owners = (*owners, asked.override)
    owners = quota.owners(owners, str(asked.person_id or ""))
    fits: dict[str, int] = {}
    refused: Refused | None = None
    for gpu_class, needed in asked.units.items():
        use = Use(owners, tier.slug + (MIXED if asked.is_mixed else ""), gpu_class, needed)
        problem = _closed(gpu_class) if gpu_class not in guaranteed else None
        block = quota.never(use, asked.seconds[gpu_class])
        if problem is None and block is not None:
            problem = _quota_refusal(asked, use, block, guaranteed.get(gpu_class, 0))
        if problem is None:
            fits[gpu_class] = needed
        refused = refused or problem
    if refused is not None and (asked.is_mixed or not fits):
        raise refused
    return fits


@by_version
def _tiers_read() -> tuple[Tier, ...]:
    return tuple(Tier.objects.all())


@by_version
def _quotas_read() -> tuple[QuotaRow, ...]:
    return tuple(quotas_read())


@by_version
def _inner_limits_read() -> InnerLimits:
    return inner_limits_read()


@by_version
def _quota_read() -> Quota:
    """The tenant's own quota without exceptions. What it finds about owners it keeps for the next
    request; nothing is added to it or taken from it."""
    return Quota(_own_quota(_tiers_read(), _quotas_read(), _inner_limits_read(), ()), {})


def _own_quota(
    tiers: Iterable[Tier],
    quotas: Sequence[QuotaRow],
    inner: InnerLimits,
    overrides: Sequence[QuotaOverride],
) -> Snapshot:
    """Returns a snapshot of the tenant's own quota. The calendar decides what others lend."""
    by_slug = sorted(tiers, key=lambda each: each.slug)
    limits, caps = limits_of(quotas), rolling_caps_of((*quotas, *inner.lab_caps))
    return Snapshot(
        0, (), (), (), (), (), limits, tiers_of(by_slug), caps, overrides=tuple(overrides),
        labs=inner.labs, persons=inner.persons,
    )  # fmt: skip


def _closed(gpu_class: str) -> Refused:
    return refusal(
        "class_not_open",
        refusal_text("class_not_open", gpu_class=gpu_class),
        "quota",
        "request",
        numbers={"gpu_class": gpu_class},
    )


def _quota_refusal(needs: _QuotaRequest, use: Use, block: Block, guaranteed: int) -> Refused | None:
    """Returns the refusal of what can never be; None if only the lending of others decides."""
    project, tier = needs.project, needs.tier
    if block.kind == "limit" and block.owner not in (str(project.tenant_id), str(project.id)):
        return _inner_refusal(project, use, block)
    is_tenant = block.owner == str(project.tenant_id)
    if block.kind == "limit" and use.units <= guaranteed:
        # The organisation has as much: what other projects keep for themselves forbids it.
        is_tenant = False
    name = _("Your organisation") if is_tenant else project.name
    is_lab = block.owner not in (str(project.tenant_id), str(project.id))
    if block.kind == "hours" and is_lab:
        name = _("The lab %(lab)s") % {"lab": Lab.objects.get(id=block.owner)}
    owner = "operator" if is_tenant else "tenant_admin"
    numbers = {"asked": use.units, "limit": block.most, "gpu_class": use.gpu_class}
    if block.kind == "limit":
        code = "tenant_quota" if is_tenant else "project_quota"
        sentence = refusal_text("quota_limit", name=name, **numbers)
    elif block.kind == "guarantee":
        code = "guarantee_only"
        # Its admins can't give more than the organisation is guaranteed.
        owner = "tenant_admin" if use.units <= guaranteed else "operator"
        sentence = refusal_text(code, name=project.name, tier=tier.name, **numbers)
    elif block.kind == "hours":
        code = "gpu_hours"
        numbers |= {
            "asked": -(-use.units * needs.seconds[use.gpu_class] // GPU_HOUR),
            "limit": block.most // GPU_HOUR,
        }
        days = block.cap.rolling_days if block.cap else None
        sentence = refusal_text(code, name=name, days=days, **numbers)
    else:
        return None
    return refusal(
        code,
        sentence,
        "quota",
        "request",
        owner=owner,
        numbers=numbers,
        alternatives=_tiers_that_borrow(tier) if block.kind == "guarantee" else [],
        # There are no exceptions from the caps of labs.
        more={}
        if block.kind == "hours" and is_lab
        else _more_of(needs, use, block, is_operators=owner == "operator"),
    )


def _inner_refusal(project: Project, use: Use, block: Block) -> Refused:
    """Returns the refusal by the limit of a person, whose name has a space, or of the lab."""
    scope, is_person, _account = block.owner.partition(" ")
    numbers = {"asked": use.units, "limit": block.most, "gpu_class": use.gpu_class}
    more = {"gpu_class": use.gpu_class, "amount": gpus_text(use.units - block.most)}
    owner = "tenant_admin"
    if is_person:
        is_project = scope == str(project.id)
        where = project.name if is_project else _("your organisation")
        code = "person_quota"
        sentence = refusal_text(code, where=where, **numbers)
        if is_project:
            owner, more["project"] = "lead", project.slug
    else:
        more["project"] = project.slug
        lab = Lab.objects.get(id=block.owner)
        code = "lab_quota"
        sentence = refusal_text("quota_limit", name=_("The lab %(lab)s") % {"lab": lab}, **numbers)
    more["kind"] = code
    return refusal(code, sentence, "quota", "request", owner=owner, numbers=numbers, more=more)


def _more_of(needs: _QuotaRequest, use: Use, block: Block, *, is_operators: bool) -> dict[str, str]:
    """What to ask the limit's owner for; nothing where only a higher guarantee would help."""
    if block.kind == "guarantee" and is_operators:
        return {}
    where = {"gpu_class": use.gpu_class} | ({} if is_operators else {"project": needs.project.slug})
    if block.kind == "hours":
        wanted = use.units * needs.seconds[use.gpu_class]
        hours = -(-(wanted - block.most) // GPU_HOUR)
        return {"kind": "gpu_hours", "amount": str(hours), **where}
    return {"kind": "quota", "amount": gpus_text(use.units - block.most), **where}


def _tiers_that_borrow(tier: Tier) -> list[dict[str, Any]]:
    tiers = Tier.objects.filter(pausable=True).exclude(slug=tier.slug)
    return [{"tier": each.slug, "name": each.name} for each in tiers]


def _longer_tiers(length: timedelta) -> list[dict[str, Any]]:
    seconds = int(length.total_seconds())
    tiers = Tier.objects.filter(max_duration_seconds__gte=seconds)
    return [{"tier": tier.slug, "name": tier.name} for tier in tiers]


def length_text(length: timedelta) -> str:
    """Returns a length as `36 h` or `3 days`."""
    hours = length.total_seconds() / 3600
    return f"{hours / 24:g} days" if hours >= 48 else f"{hours:g} h"
