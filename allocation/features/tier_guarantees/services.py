"""Setting how much of a guarantee counts for some tiers only."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from allocation.words.refusals import refusal_text
from tenants.access import Actor, PlatformActor, require_tenant_admin
from tenants.audit import audit_record, platform_record
from tenants.models import GpuClass, Tenant, Tier, TierGuarantee
from tenants.outbox import task_request
from tenants.platform.errors import Refused, invalid, missing
from tenants.platform.terms import term, terms
from tenants.services.input_values import gpus_text, units_read
from tenants.services.labs.room import class_read, tenant_quota_locked

MOST_UNITS = 10**12


@terms
class TierGuaranteeTerms:
    """How much of the guarantee of a class counts for some tiers only."""

    gpu_class: str = term("Class", max_length=40)
    units: int = term(
        "GPUs for these tiers",
        "Part of the guaranteed GPUs. 0: every tier uses all of them.",
        name="gpus",
        reads=units_read,
        says="Of the guarantee; one GPU is 56,000 units. 0: all tiers use all of it.",
        min_value=0,
        max_value=MOST_UNITS,
    )
    tiers: Sequence[str] = term(
        "Tiers", "Only their bookings use these GPUs of the guarantee.", says="Slugs of tiers.", default=()
    )


@terms
class OrganisationTierGuaranteeTerms(TierGuaranteeTerms):
    """The same for an organisation."""

    tenant: str = term("Organisation", says="Its slug.", max_length=40)


def tier_guarantees_visible(actor: Actor) -> QuerySet[TierGuarantee]:
    """Returns those of the organisation, for all of its people."""
    return _shown(TierGuarantee.objects.filter(tenant_id=actor.tenant_id))


def tier_guarantees_of_site() -> QuerySet[TierGuarantee]:
    """Returns those of all organisations, for operators."""
    return _shown(TierGuarantee.objects.all())


def tier_guarantee_set(*, actor: Actor, terms: TierGuaranteeTerms, now: datetime) -> TierGuarantee:
    """Sets it for the actor's organisation. A repetition changes nothing.

    What of other tiers was inside the guarantee is borrowed from then on.

    Raises:
        Refused: `not_allowed`, `not_found`, `no_tiers`, `tier_uses_no_guarantee` or `part_above_guarantee`.
    """
    require_tenant_admin(actor)
    with transaction.atomic():
        return _set(Tenant.objects.get(id=actor.tenant_id), terms, actor.user_id, now)[0]


def organisation_tier_guarantee_set(
    *, actor: PlatformActor, terms: OrganisationTierGuaranteeTerms, now: datetime
) -> TierGuarantee:
    """The same for any organisation. In `operator_tx`."""
    with transaction.atomic():
        tenant = Tenant.objects.filter(slug=terms.tenant).first()
        if tenant is None:
            raise missing("tenant", "tenant")
        row, before = _set(tenant, terms, actor.user_id, now)
        after = _said(row)
        if before != after:
            named = {"tenant": tenant.slug, "gpu_class": row.gpu_class_id}
            target = ("tier_guarantee", row.id)
            was = named | (before or {"units": 0, "tiers": []})
            platform_record(actor.user_id, "tier_guarantee.set", target, now, before=was, after=named | after)
    return row


def _set(
    tenant: Tenant, terms: TierGuaranteeTerms, user_id: int, now: datetime
) -> tuple[TierGuarantee, dict[str, object] | None]:
    """Returns the row, without units if there is none any more, and what was before."""
    model = class_read(terms.gpu_class)
    tiers = _tiers_read(terms)
    _check_guarantee(tenant, model, terms.units)
    rows = TierGuarantee.objects.select_for_update(of=("self",)).select_related("tenant", "gpu_class")
    row = rows.filter(tenant=tenant, gpu_class=model).first()
    before = None if row is None else _said(row)
    if row is None:
        row = TierGuarantee(tenant=tenant, gpu_class=model, units=0, tiers=[])
    if _said(row) == {"units": terms.units, "tiers": tiers}:
        return row, before
    row.units, row.tiers, row.changed, row.changed_by_id = terms.units, tiers, now, user_id
    if terms.units:
        row.save()
    elif before is not None:
        TierGuarantee.objects.filter(id=row.id).delete()
    _record(row, tenant.id, user_id, before, now)
    task_request("allocation.cycle")
    return row, before


def _tiers_read(terms: TierGuaranteeTerms) -> list[str]:
    if not terms.units:
        return []
    if not terms.tiers:
        raise invalid("no_tiers", refusal_text("tier_part_no_tiers"), "tiers")
    known = {row.slug: row for row in Tier.objects.filter(slug__in=terms.tiers)}
    for slug in terms.tiers:
        if slug not in known:
            raise missing("tier", "tiers")
        if not known[slug].counts_against_guarantee:
            why = refusal_text("tier_uses_no_guarantee", tier=known[slug].name)
            raise invalid("tier_uses_no_guarantee", why, "tiers")
    return sorted(known)


def _check_guarantee(tenant: Tenant, model: GpuClass, units: int) -> None:
    quota = tenant_quota_locked(tenant.id, model)
    most = quota.guaranteed_units if quota else 0
    if units > most:
        why = refusal_text(
            "part_above_guarantee", tenant=tenant.name, guaranteed=gpus_text(most), model=model.label
        )
        numbers = {"guaranteed": most, "wanted": units}
        raise Refused("part_above_guarantee", why, "quota", param="units", numbers=numbers)


def _said(row: TierGuarantee) -> dict[str, object]:
    return {"units": row.units, "tiers": row.tiers}


def _record(
    row: TierGuarantee, tenant_id: UUID, user_id: int, before: dict[str, object] | None, now: datetime
) -> None:
    detail = {"gpu_class": row.gpu_class_id, "before": before, "after": _said(row)}
    target = ("tier_guarantee", row.id)
    audit_record(
        tenant_id=tenant_id,
        actor_id=user_id,
        action="tier_guarantee.set",
        target=target,
        now=now,
        detail=detail,
    )


def _shown(rows: QuerySet[TierGuarantee]) -> QuerySet[TierGuarantee]:
    named = ("tenant", "gpu_class", "changed_by")
    return rows.select_related(*named).order_by("tenant__name", "gpu_class__order", "id")
