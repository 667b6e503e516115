"""What the portal refuses at once: what could never fit, whatever the calendar looks like."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from allocation.queries.fleet.catalogue import ask_units
from allocation.rules.ask import AskDocument
from allocation.services.bookings.pins import pin_resolve
from allocation.services.record.refusals import refusal
from allocation.services.record.workloads import Durations, durations_of
from allocation.services.snapshot.quota_rows import (
    GPU_HOUR,
    limits_of,
    quotas_read,
    rolling_caps_of,
    tiers_of,
)
from allocation.solver import Block, Quota, Snapshot, Use
from billing.rules import UNITS_PER_GPU
from tenants.models import GpuClass, Project, Tier
from tenants.models import Quota as QuotaRow
from tenants.platform.errors import Refused

# A window that begins within this much of now is meant to begin now: people type, networks carry.
START_TOLERANCE = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Admission:
    """A wish that passed: its tier, its ask, its first second, and its units by class.

    Work has `lengths`, on these classes and on others that it could be offered.
    """

    tier: Tier
    ask: AskDocument
    not_before: datetime
    units: Mapping[str, int]
    lengths: Durations

    def seconds_on(self, gpu_class: str) -> int:
        """How long it takes on a class."""
        return self.lengths.get(gpu_class, self.ask.duration)


@dataclass(frozen=True, slots=True)
class _QuotaRequest:
    """What is asked of quota: units by class, each for so many seconds."""

    project: Project
    tier: Tier
    units: Mapping[str, int]
    seconds: Mapping[str, int]


def admission_check(
    *, project: Project, tier_slug: str, ask: AskDocument, now: datetime
) -> Admission:
    """Asks every rule that needs no calendar.

    Raises:
        Refused: `unknown_tier`, `unknown_class`, `impossible_profile`, `window_past`,
            `deadline_passed`, `too_long`, `advance_window`, `class_not_open`, `tenant_quota`,
            `project_quota`, `guarantee_only`, `gpu_hours`, `no_speed`, `pin_elsewhere`,
            `pin_too_small`.
    """
    tiers = list(Tier.objects.all())
    tier = next((each for each in tiers if each.slug == tier_slug), None)
    if tier is None:
        open_tiers = ", ".join(each.slug for each in tiers)
        raise Refused(
            "unknown_tier",
            f"There is no such tier. Choose one of: {open_tiers}.",
            "invalid",
            "tier",
        )
    units = ask_units(ask)
    if not units:
        raise _impossible(ask)
    ask = pin_resolve(ask)
    units = {name: units[name] for name in ask.classes if name in units}
    lengths = durations_of(ask)
    seconds = {name: lengths.get(name, 0) if lengths else ask.duration for name in units}
    shortest = min(filter(None, seconds.values()), default=ask.duration)
    not_before = _window_check(replace(ask, duration=shortest), tier, now)
    short = {
        name: needed
        for name, needed in units.items()
        if 0 < seconds[name] <= tier.max_duration_seconds
    }
    quotas = quotas_read()
    guaranteed = {
        row.gpu_class_id: row.guaranteed_units for row in quotas if row.project_id is None
    }
    quota = Quota(_own_quota(tiers, quotas), {})
    fits = _within_quota(_QuotaRequest(project, tier, short, seconds), quota, guaranteed)
    return Admission(tier, ask, not_before, fits, lengths)


def admission_at(admission: Admission, starts: datetime, now: datetime) -> Admission:
    """The same terms for another start of the same ask.

    Raises:
        Refused: `window_past` or `advance_window`.
    """
    ask = replace(admission.ask, starts=starts)
    shortest = min(map(admission.seconds_on, admission.units))
    not_before = _window_check(replace(ask, duration=shortest), admission.tier, now)
    return replace(admission, ask=ask, not_before=not_before)


def _impossible(ask: AskDocument) -> Refused:
    known = set(GpuClass.objects.values_list("slug", flat=True))
    unknown = [name for name in ask.classes if name not in known]
    if unknown:
        return refusal(
            "unknown_class",
            f"The fleet has no GPU class {unknown[0]}. It has: {', '.join(sorted(known))}.",
            "invalid",
            "request",
        )
    return refusal(
        "impossible_profile",
        f"GPUs of class {' or '.join(ask.classes)} can't make a {ask.profile} slice.",
        "invalid",
        "request",
    )


def _window_check(ask: AskDocument, tier: Tier, now: datetime) -> datetime:
    if ask.starts is not None and ask.starts < now - START_TOLERANCE:
        raise refusal(
            "window_past",
            "The window has begun already. Leave the start out to begin as soon as possible.",
            "invalid",
            "request",
        )
    not_before = (ask.starts or max(ask.not_before or now, now)).replace(microsecond=0)
    length = timedelta(seconds=ask.duration)
    longest = timedelta(seconds=tier.max_duration_seconds)
    if length > longest:
        raise refusal(
            "too_long",
            f"A booking in the tier {tier.name} may last {_hours(longest)} at most.",
            "invalid",
            "request",
            numbers={"asked": ask.duration, "limit": tier.max_duration_seconds},
            alternatives=_longer_tiers(length),
        )
    if not_before - now > timedelta(seconds=tier.advance_seconds):
        raise refusal(
            "advance_window",
            f"The tier {tier.name} is planned {tier.advance_seconds // 86_400} days ahead at most.",
            "invalid",
            "request",
            numbers={"horizon_seconds": tier.advance_seconds},
        )
    if ask.deadline is not None:
        _deadline_check(ask.deadline, not_before + length, now)
    return not_before


def _deadline_check(deadline: datetime, earliest_end: datetime, now: datetime) -> None:
    if deadline <= now:
        raise refusal("deadline_passed", "The deadline has passed already.", "invalid", "request")
    if deadline < earliest_end:
        raise refusal(
            "deadline_unreachable",
            "It would end after its deadline even if it began at once. "
            "Ask for less time, or a later deadline.",
            "invalid",
            "request",
        )


def _within_quota(
    asked: _QuotaRequest, quota: Quota, guaranteed: Mapping[str, int]
) -> dict[str, int]:
    """The classes on which the ask alone stays within what quota could ever give."""
    project, tier = asked.project, asked.tier
    owners = (str(project.tenant_id), str(project.id))
    fits: dict[str, int] = {}
    refused: Refused | None = None
    for gpu_class, needed in asked.units.items():
        use = Use(owners, tier.slug, gpu_class, needed)
        problem = _closed(gpu_class) if gpu_class not in guaranteed else None
        block = quota.never(use, asked.seconds[gpu_class])
        if problem is None and block is not None:
            problem = _quota_refusal(asked, use, block, guaranteed.get(gpu_class, 0))
        if problem is None:
            fits[gpu_class] = needed
        refused = refused or problem
    if not fits and refused is not None:
        raise refused
    return fits


def _own_quota(tiers: Iterable[Tier], quotas: Sequence[QuotaRow]) -> Snapshot:
    """The tenant's own quota and nothing else; what others lend is the calendar's business."""
    by_slug = sorted(tiers, key=lambda each: each.slug)
    limits, caps = limits_of(quotas), rolling_caps_of(quotas)
    return Snapshot(0, (), (), (), (), (), limits, tiers_of(by_slug), caps)


def _closed(gpu_class: str) -> Refused:
    return refusal(
        "class_not_open",
        f"Your organisation has no quota for {gpu_class}. The operator can give it one.",
        "quota",
        "request",
        numbers={"gpu_class": gpu_class},
    )


def _quota_refusal(whole: _QuotaRequest, use: Use, block: Block, guaranteed: int) -> Refused | None:
    """The refusal for what could never be; None for what only others' lending decides."""
    project, tier = whole.project, whole.tier
    is_tenant = block.owner == str(project.tenant_id)
    name = "Your organisation" if is_tenant else project.name
    owner = "operator" if is_tenant else "tenant_admin"
    asked, most = _gpus(use.units), _gpus(block.most)
    numbers: dict[str, Any] = {
        "asked": use.units,
        "limit": block.most,
        "gpu_class": use.gpu_class,
    }
    if block.kind == "limit":
        code = "tenant_quota" if is_tenant else "project_quota"
        sentence = f"{name} may use {most} {use.gpu_class} at once, and this asks for {asked}."
    elif block.kind == "guarantee":
        code = "guarantee_only"
        # More than the organisation is guaranteed is not for its admins to give.
        owner = "tenant_admin" if use.units <= guaranteed else "operator"
        sentence = (
            f"The tier {tier.name} is never paused, so it can't borrow: {project.name} is sure of "
            f"{most} {use.gpu_class}, and this asks for {asked}."
        )
    elif block.kind == "hours":
        code = "gpu_hours"
        numbers |= {
            "asked": -(-use.units * whole.seconds[use.gpu_class] // GPU_HOUR),
            "limit": block.most // GPU_HOUR,
        }
        sentence = (
            f"{name} may have {numbers['limit']:,} GPU-hours of {use.gpu_class}"
            f"{_in_days(block)}, and this asks for {numbers['asked']:,}."
        )
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
    )


def _in_days(block: Block) -> str:
    days = block.cap.rolling_days if block.cap else None
    return f" in any {days} days" if days else ""


def _tiers_that_borrow(tier: Tier) -> list[dict[str, Any]]:
    tiers = Tier.objects.filter(pausable=True).exclude(slug=tier.slug)
    return [{"tier": each.slug, "name": each.name} for each in tiers]


def _longer_tiers(length: timedelta) -> list[dict[str, Any]]:
    seconds = int(length.total_seconds())
    tiers = Tier.objects.filter(max_duration_seconds__gte=seconds)
    return [{"tier": tier.slug, "name": tier.name} for tier in tiers]


def _hours(length: timedelta) -> str:
    hours = length.total_seconds() / 3600
    return f"{hours / 24:g} days" if hours >= 48 else f"{hours:g} h"


def _gpus(units: int) -> str:
    return f"{units / UNITS_PER_GPU:.3g}"
