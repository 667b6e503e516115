"""Guarantees of organisations between dates: operators set and end them."""

from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from allocation.features.dated_guarantees.rows import (
    EndTerms,
    GuaranteeTerms,
    answered,
    dates_read,
    overlap_check,
    row_added,
    row_ended,
    same_row,
)
from allocation.models import Gpu
from allocation.words.refusals import refusal_text
from billing.rules import UNITS_PER_GPU
from tenants.access import Actor, PlatformActor
from tenants.lab_queries import guarantees_to_come, labs_led, labs_seen
from tenants.models import DatedGuarantee, GpuClass, Quota, Tenant
from tenants.platform.errors import Refused, invalid, missing
from tenants.platform.terms import term, terms
from tenants.services.input_values import gpus_text
from tenants.services.labs.room import Window, class_read, split_of_tenant
from tenants.services.limit_changes import Cut
from tenants.words import refusal_text as limit_text


@terms
class DatedGuaranteeTerms(GuaranteeTerms):
    """What an organisation is guaranteed between two instants, in place of its usual guarantee."""

    tenant: str = term("Organisation", says="Its slug.", max_length=40)


def guarantees_visible(actor: Actor) -> QuerySet[DatedGuarantee]:
    """Returns those of the organisation, of the person's projects, and of labs that they lead or whose
    projects they have; all for admins."""
    rows = DatedGuarantee.objects.filter(tenant_id=actor.tenant_id)
    if not actor.is_tenant_admin:
        mine = Q(project__in=actor.roles) | Q(project__lab__in=labs_led(actor)) | Q(lab__in=labs_seen(actor))
        rows = rows.filter(Q(project=None, lab=None) | mine)
    return _shown(rows)


def guarantees_of_site() -> QuerySet[DatedGuarantee]:
    """Returns those of all organisations, for operators, without those inside organisations."""
    return _shown(DatedGuarantee.objects.filter(project=None, lab=None))


def guarantee_set(
    *, actor: PlatformActor, terms: DatedGuaranteeTerms, now: datetime, cut: Cut | None = None
) -> DatedGuarantee:
    """Guarantees a tenant another number of GPUs between two instants. In `operator_tx`. `cut` says what
    happens to bookings above a lower one, and gets what is above it.

    The same terms again change nothing, so that a repetition is safe.

    Raises:
        Refused: `not_found`, `bad_dates`, `no_share`, `guarantee_overlaps`, `guarantees_promised`,
            `guarantees_above_site` or `too_many_guarantees`.
    """
    starts, ends = dates_read(terms, now)
    model = class_read(terms.gpu_class)
    with transaction.atomic():
        tenant = Tenant.objects.filter(slug=terms.tenant).first()
        if tenant is None:
            raise missing("tenant", "tenant")
        # Two operators who guarantee the same GPUs wait for each other.
        quota = _locked(model).get(tenant.id)
        if quota is None:
            why = refusal_text("dated_no_share", tenant=tenant.name, model=model.label)
            raise invalid("no_share", why, "gpu_class")
        known = _of_tenants(now).filter(tenant=tenant, gpu_class=model)
        row = same_row(known, terms.guaranteed_units, starts, ends)
        if row is not None:
            return row
        overlap_check(known, starts, ends)
        _check_promised(tenant, model, terms.guaranteed_units, (starts, ends), now)
        if terms.guaranteed_units > quota.guaranteed_units:
            _check_site(model, (starts, ends), (tenant.id, terms.guaranteed_units), now)
        row = DatedGuarantee(
            tenant=tenant,
            gpu_class=model,
            guaranteed_units=terms.guaranteed_units,
            starts=starts,
            ends=ends,
            created=now,
            created_by_id=actor.user_id,
        )
        row_added(row, quota, answered(cut, terms.bookings), now)
    return row


def guarantee_end(
    *,
    actor: PlatformActor,
    guarantee_id: UUID,
    now: datetime,
    terms: EndTerms | None = None,
    cut: Cut | None = None,
) -> DatedGuarantee:
    """Ends one now, or before it begins: the usual guarantee applies. In `operator_tx`. Idempotent. `cut`
    as in `guarantee_set`.

    Raises:
        Refused: `not_found`; `guarantees_above_site` where the usual guarantee is higher, or
            `guarantees_promised` where it is less than labs and projects are guaranteed meanwhile.
    """
    with transaction.atomic():
        rows = guarantees_of_site().select_for_update(of=("self",))
        row = rows.filter(id=guarantee_id).first()
        if row is None:
            raise missing("dated guarantee")
        if row.ended is not None or row.ends <= now:
            return row
        quota = _locked(row.gpu_class)[row.tenant_id]
        usual, rest = quota.guaranteed_units, (max(now, row.starts), row.ends)
        if usual > row.guaranteed_units:
            # Others may be guaranteed meanwhile what this tenant was not.
            _check_site(row.gpu_class, rest, (row.tenant_id, usual), now)
        else:
            _check_promised(row.tenant, row.gpu_class, usual, rest, now)
        row_ended(
            row, quota, actor.user_id, answered(cut, terms.bookings if terms is not None else None), now
        )
    return row


def site_units(model: GpuClass) -> int:
    """Returns the units of a class that the site has, also of nodes that are away, without rented ones."""
    return Gpu.objects.filter(gpu_class=model, node__pool="").count() * UNITS_PER_GPU


def _shown(rows: QuerySet[DatedGuarantee]) -> QuerySet[DatedGuarantee]:
    named = ("tenant", "lab", "project", "gpu_class", "created_by", "ended_by")
    return rows.select_related(*named).order_by("-starts", "-id")


def _of_tenants(now: datetime) -> QuerySet[DatedGuarantee]:
    return guarantees_to_come(now).filter(project=None, lab=None)


def _locked(model: GpuClass) -> dict[UUID, Quota]:
    """Locks the quotas of tenants on a class; returns them by tenant."""
    rows = Quota.objects.select_for_update().filter(project=None, gpu_class=model).order_by("id")
    return {row.tenant_id: row for row in rows}


def _check_promised(tenant: Tenant, model: GpuClass, wanted: int, window: Window, now: datetime) -> None:
    """Refuses less than what the tenant has promised to its labs and projects in a window."""
    promised = split_of_tenant(tenant.id, model, now).promised(now, window)
    if promised > wanted:
        why = limit_text(
            "guarantees_promised",
            tenant=tenant.name,
            promised=gpus_text(promised),
            model=model.label,
            guaranteed_units=gpus_text(wanted),
            missing_units=gpus_text(promised - wanted),
        )
        numbers = {"promised": promised, "wanted": wanted}
        raise Refused("guarantees_promised", why, "quota", param="guaranteed_units", numbers=numbers)


def _check_site(
    model: GpuClass, window: tuple[datetime, datetime], own: tuple[UUID, int], now: datetime
) -> None:
    """Refuses more, at some instant of the window, than the site has next to what all others are
    guaranteed then."""
    usual = {tenant: row.guaranteed_units for tenant, row in _locked(model).items()}
    (tenant, units), (starts, ends) = own, window
    dated = list(_of_tenants(now).filter(Q(starts__lt=ends, ends__gt=starts), gpu_class=model))
    dated = [row for row in dated if row.tenant_id != tenant]
    most = site_units(model)
    for instant in sorted({starts, *(row.starts for row in dated), *(row.ends for row in dated)}):
        if not starts <= instant < ends:
            continue
        then = usual | {r.tenant_id: r.guaranteed_units for r in dated if r.starts <= instant < r.ends}
        others = sum(then.values()) - then[tenant]
        if others + units > most:
            raise _above_site(model, most, others, units, instant)


def _above_site(model: GpuClass, most: int, others: int, units: int, instant: datetime) -> Refused:
    left = max(0, most - others)
    why = refusal_text(
        "guarantees_above_site",
        site=gpus_text(most),
        model=model.label,
        others=gpus_text(others),
        at=f"{instant:%Y-%m-%d %H:%M}",
        left=gpus_text(left),
    )
    numbers = {"site": most, "others": others, "wanted": units, "left": left}
    return Refused("guarantees_above_site", why, "quota", param="guaranteed_units", numbers=numbers)
