"""The quota of a request: what limits, guarantees and caps of GPU-hours refuse whatever happens."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from allocation.models import Booking
from allocation.queries.fleet.loans import borrow_windows_read, longest_loan
from allocation.services.record.refusals import refusal
from allocation.services.snapshot.cap_rows import rolling_caps_of
from allocation.services.snapshot.inner_limit_rows import (
    InnerLimits,
    guarantees_read,
    inner_limits_read,
    window_steps_of,
)
from allocation.services.snapshot.limits_in_time import GPU_HOUR
from allocation.services.snapshot.override_rows import kept_read, overrides_read
from allocation.services.snapshot.quota_rows import (
    limits_of,
    quotas_read,
    tiers_of,
)
from allocation.words.refusals import refusal_text
from solver import MIXED, Block, DatedGuarantee, Policy, Quota, Snapshot, TierPart, Use
from solver import Override as QuotaOverride
from solver import Tier as SolverTier
from tenants.models import Lab, Project, Tier
from tenants.models import Quota as QuotaRow
from tenants.platform.errors import Refused
from tenants.platform.reference import by_version
from tenants.services.input_values import gpus_enough


@dataclass(frozen=True, slots=True)
class QuotaRequest:
    """What a request needs of quota: units and seconds by class, of all classes if it is mixed.
    `override`: as of a booking. `person_id`: whose limits count; None without a person."""

    project: Project
    tier: Tier
    units: Mapping[str, int]
    seconds: Mapping[str, int]
    override: str = ""
    person_id: int | None = None
    is_mixed: bool = False


def quota_check(
    request: QuotaRequest, tiers: Sequence[Tier], booking: Booking | None, now: datetime
) -> dict[str, int]:
    """Returns the classes within quota.

    Exceptions are read only where the limits alone refuse the request.
    """
    quotas, inner = _quotas_read(), _inner_limits_read()
    guaranteed = {row.gpu_class_id: row.guaranteed_units for row in quotas if row.project_id is None}
    dated: tuple[DatedGuarantee, ...] = ()

    def fits(name: str, overrides: Sequence[QuotaOverride]) -> dict[str, int]:
        quota = _quota_read()
        if overrides or dated:
            quota = Quota(replace(_own_quota(tiers, quotas, inner, overrides), guarantees=dated), {})
        return _within_quota(replace(request, override=name), quota, guaranteed)

    try:
        return fits("", ())
    except Refused:
        dated = guarantees_read(now)
        steps = window_steps_of(inner, quotas, now, guarantees=dated)
        kept = kept_read() if booking is not None and booking.has_override else ()
        overrides = (*overrides_read(now), *kept, *steps)
        if not overrides and not dated:
            raise
    name = str(booking.id) if booking is not None and booking.has_override else ""
    return fits(name, overrides)


def _within_quota(asked: QuotaRequest, quota: Quota, guaranteed: Mapping[str, int]) -> dict[str, int]:
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
            part = quota.parts.kept_from(use) if quota.parts is not None else None
            problem = _quota_refusal(asked, use, block, (guaranteed.get(gpu_class, 0), part))
        if problem is None:
            fits[gpu_class] = needed
        refused = refused or problem
    if refused is not None and (asked.is_mixed or not fits):
        raise refused
    return fits


@by_version
def tiers_read() -> tuple[Tier, ...]:
    """All tiers of the tenant."""
    return tuple(Tier.objects.all())


@by_version
def _quotas_read() -> tuple[QuotaRow, ...]:
    return tuple(quotas_read())


@by_version
def _inner_limits_read() -> InnerLimits:
    return inner_limits_read(_quotas_read())


@by_version
def _quota_read() -> Quota:
    """The tenant's own quota without exceptions. What it finds about owners it keeps for the next
    request; nothing is added to it or taken from it."""
    return Quota(_own_quota(tiers_read(), _quotas_read(), _inner_limits_read(), ()), {})


def _own_quota(
    tiers: Iterable[Tier],
    quotas: Sequence[QuotaRow],
    inner: InnerLimits,
    overrides: Sequence[QuotaOverride],
) -> Snapshot:
    """Returns a snapshot of the tenant's own quota. The calendar decides what others lend."""
    by_slug = sorted(tiers, key=lambda each: each.slug)
    limits = (*limits_of(quotas), *inner.projects)
    caps = rolling_caps_of((*quotas, *inner.lab_caps))
    return Snapshot(
        0,
        (),
        (),
        (),
        (),
        (),
        limits,
        _lending(tiers_of(by_slug)),
        caps,
        overrides=tuple(overrides),
        labs=inner.labs,
        persons=inner.persons,
        tier_parts=inner.tier_parts,
    )


def _lending(tiers: tuple[SolverTier, ...]) -> tuple[SolverTier, ...]:
    """Returns the tiers with the windows for which they may borrow."""
    return Policy(0, borrow_windows=borrow_windows_read()).with_borrow_windows(tiers)


def _closed(gpu_class: str) -> Refused:
    return refusal(
        "class_not_open",
        refusal_text("class_not_open", gpu_class=gpu_class),
        "quota",
        "request",
        numbers={"gpu_class": gpu_class},
    )


def _quota_refusal(
    needs: QuotaRequest, use: Use, block: Block, sure: tuple[int, TierPart | None]
) -> Refused | None:
    """Returns the refusal of what can never be; None if only the lending of others decides. `sure`: what the
    organisation is guaranteed, and the part of it for other tiers."""
    project, tier, (guaranteed, part) = needs.project, needs.tier, sure
    if block.kind == "limit" and block.owner not in (str(project.tenant_id), str(project.id)):
        return _inner_refusal(project, use, block)
    is_tenant = block.owner == str(project.tenant_id)
    if block.kind == "limit" and use.units <= guaranteed:
        # The organisation has as much: what other projects keep for themselves forbids it.
        is_tenant = False
    name = "Your organisation" if is_tenant else project.name
    is_lab = block.owner not in (str(project.tenant_id), str(project.id))
    if block.kind == "hours" and is_lab:
        name = f"The lab {Lab.objects.get(id=block.owner)}"
    owner = "operator" if is_tenant else "tenant_admin"
    numbers = {"asked": use.units, "limit": block.most, "gpu_class": use.gpu_class}
    if block.kind == "limit":
        code = "tenant_quota" if is_tenant else "project_quota"
        sentence = refusal_text("quota_limit", name=name, **numbers)
    elif block.kind == "guarantee":
        code = "guarantee_only"
        if seconds := longest_loan(tier.slug):
            numbers |= {"borrow_seconds": seconds}
        # Its admins can't give more than the organisation is guaranteed.
        owner = "tenant_admin" if use.units <= guaranteed else "operator"
        # A project may have all of it that other projects don't keep for themselves.
        name = "Your organisation" if block.most + _units(part) >= guaranteed else project.name
        sentence = refusal_text(code, name=name, tier=tier.name, **numbers, **_facts_of(part))
        numbers |= {"part": _units(part)} if part else {}
    elif block.kind == "hours":
        code = "gpu_hours"
        numbers |= _hours_of(needs, use, block)
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


def _hours_of(needs: QuotaRequest, use: Use, block: Block) -> dict[str, int]:
    """The GPU-hours that are asked for, rounded up, and those of the cap."""
    asked = -(-use.units * needs.seconds[use.gpu_class] // GPU_HOUR)
    return {"asked": asked, "limit": block.most // GPU_HOUR}


def _units(part: TierPart | None) -> int:
    return part.units if part else 0


def _facts_of(part: TierPart | None) -> dict[str, Any]:
    """Returns what a refusal says of the part of a guarantee that other tiers have."""
    return {"part": part.units, "tiers": ", ".join(part.tiers)} if part else {}


def _inner_refusal(project: Project, use: Use, block: Block) -> Refused:
    """Returns the refusal by the limit of a person, whose name has a space, or of the lab."""
    scope, is_person, _account = block.owner.partition(" ")
    numbers = {"asked": use.units, "limit": block.most, "gpu_class": use.gpu_class}
    more = {"gpu_class": use.gpu_class, "amount": gpus_enough(use.units - block.most)}
    owner = "tenant_admin"
    if is_person:
        is_project = scope == str(project.id)
        where = project.name if is_project else "your organisation"
        code = "person_quota"
        sentence = refusal_text(code, where=where, **numbers)
        if is_project:
            owner, more["project"] = "lead", project.slug
    else:
        more["project"] = project.slug
        lab = Lab.objects.get(id=block.owner)
        code = "lab_quota"
        sentence = refusal_text("quota_limit", name=f"The lab {lab}", **numbers)
    more["kind"] = code
    return refusal(code, sentence, "quota", "request", owner=owner, numbers=numbers, more=more)


def _more_of(needs: QuotaRequest, use: Use, block: Block, *, is_operators: bool) -> dict[str, str]:
    """What to ask the limit's owner for; nothing where only a higher guarantee would help."""
    if block.kind == "guarantee" and is_operators:
        return {}
    where = {"gpu_class": use.gpu_class} | ({} if is_operators else {"project": needs.project.slug})
    if block.kind == "hours":
        wanted = use.units * needs.seconds[use.gpu_class]
        hours = -(-(wanted - block.most) // GPU_HOUR)
        return {"kind": "gpu_hours", "amount": str(hours), **where}
    return {"kind": "quota", "amount": gpus_enough(use.units - block.most), **where}


def _tiers_that_borrow(tier: Tier) -> list[dict[str, Any]]:
    tiers = Tier.objects.filter(pausable=True).exclude(slug=tier.slug)
    return [{"tier": each.slug, "name": each.name} for each in tiers]
