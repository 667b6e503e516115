"""Setting and ending guarantees between dates."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from allocation.models import Gpu
from allocation.words.refusals import refusal_text
from billing.rules import UNITS_PER_GPU
from tenants.access import Actor, PlatformActor
from tenants.audit import audit_record, platform_record
from tenants.lab_queries import guarantees_to_come
from tenants.models import DatedGuarantee, GpuClass, Quota, Tenant
from tenants.outbox import task_request
from tenants.platform.errors import Refused, invalid, missing
from tenants.platform.terms import term, terms
from tenants.services.input_values import gpus_text, units_read
from tenants.services.labs.room import class_read, room_of_tenant
from tenants.services.limit_changes import (
    Cut,
    CutAnswer,
    LimitChange,
    LimitOf,
    Most,
    limit_changed,
)
from tenants.words import refusal_text as limit_text

Answer = Literal["keep", "drain", "pause"]
CUT_HELP = (
    "What happens to bookings that are above it, if it is lower than before: `keep`, `drain` or `pause`. "
    "Without it they are borrowed."
)
STEP = timedelta(minutes=5)
"""Dates are multiples of it, as planned starts and ends are."""
LONGEST_AHEAD = timedelta(days=731)
MOST_TO_COME = 50
MOST_UNITS = 10**12


@terms
class DatedGuaranteeTerms:
    """What an organisation is guaranteed between two instants, in place of its usual guarantee."""

    tenant: str = term("Organisation", says="Its slug.", max_length=40)
    gpu_class: str = term("Class", max_length=40)
    guaranteed_units: int = term(
        "GPUs guaranteed",
        "In place of the usual number.",
        name="gpus",
        reads=units_read,
        says="In place of the usual number; one GPU is 56,000 units.",
        min_value=0,
        max_value=MOST_UNITS,
    )
    starts: datetime | None = term(
        "From (optional)", "Else from now on.", asks="moment", says="Null: now.", default=None
    )
    ends: datetime = term("Until", "Then the usual guarantee applies again.", asks="moment")
    bookings: Answer | None = term(says=CUT_HELP, default=None)


@terms
class EndTerms:
    """The end of a guarantee between dates."""

    bookings: Answer | None = term(says=CUT_HELP, default=None)


def guarantees_visible(actor: Actor) -> QuerySet[DatedGuarantee]:
    """Returns those of the organisation, for all of its people."""
    return _shown(DatedGuarantee.objects.filter(tenant_id=actor.tenant_id))


def guarantees_of_site() -> QuerySet[DatedGuarantee]:
    """Returns those of all organisations, for operators."""
    return _shown(DatedGuarantee.objects.all())


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
    starts, ends = _dates(terms, now)
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
        known = guarantees_to_come(now).filter(tenant=tenant, gpu_class=model)
        for row in known:
            if (row.guaranteed_units, row.ends) == (terms.guaranteed_units, ends) and row.starts == starts:
                return row
        _check_overlap(known, starts, ends)
        _check_promised(tenant, model, terms.guaranteed_units, now)
        usual = quota.guaranteed_units
        if terms.guaranteed_units > usual:
            _check_site(model, (starts, ends), (tenant.id, terms.guaranteed_units), now)
        row = DatedGuarantee.objects.create(
            tenant=tenant,
            gpu_class=model,
            guaranteed_units=terms.guaranteed_units,
            starts=starts,
            ends=ends,
            created=now,
            created_by_id=actor.user_id,
        )
        _record(row, "dated_guarantee.set", actor, now)
        _cut(row, quota, (usual, row.guaranteed_units), actor, _answered(cut, terms.bookings), now)
        task_request("allocation.cycle")
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
        Refused: `not_found`, or `guarantees_above_site` where the usual guarantee is higher.
    """
    with transaction.atomic():
        rows = DatedGuarantee.objects.select_for_update(of=("self",)).select_related("tenant", "gpu_class")
        row = rows.filter(id=guarantee_id).first()
        if row is None:
            raise missing("dated guarantee")
        if row.ended is not None or row.ends <= now:
            return row
        quota = _locked(row.gpu_class)[row.tenant_id]
        usual = quota.guaranteed_units
        if usual > row.guaranteed_units:
            # Others may be guaranteed meanwhile what this tenant was not.
            _check_site(row.gpu_class, (max(now, row.starts), row.ends), (row.tenant_id, usual), now)
        row.ended, row.ended_by_id = now, actor.user_id
        row.save(update_fields=["ended", "ended_by"])
        _record(row, "dated_guarantee.ended", actor, now)
        answered = _answered(cut, terms.bookings if terms is not None else None)
        _cut(row, quota, (row.guaranteed_units, usual), actor, answered, now)
        task_request("allocation.cycle")
    return row


def site_units(model: GpuClass) -> int:
    """Returns the units of a class that the site has, also of nodes that are away, without rented ones."""
    return Gpu.objects.filter(gpu_class=model, node__pool="").count() * UNITS_PER_GPU


def _shown(rows: QuerySet[DatedGuarantee]) -> QuerySet[DatedGuarantee]:
    return rows.select_related("tenant", "gpu_class", "created_by", "ended_by").order_by("-starts", "-id")


def _dates(terms: DatedGuaranteeTerms, now: datetime) -> tuple[datetime, datetime]:
    """Returns the two instants in UTC. Raises Refused: `bad_dates`."""
    starts, ends = terms.starts, terms.ends
    for name, each in (("starts", starts), ("ends", ends)):
        if each is not None and each.timestamp() % STEP.total_seconds():
            raise invalid("bad_dates", refusal_text("dated_step"), name)
    if ends <= now:
        raise invalid("bad_dates", refusal_text("dated_past"), "ends")
    if starts is not None and starts < now - STEP:
        raise invalid("bad_dates", refusal_text("dated_starts_past"), "starts")
    if starts is None:
        seconds = STEP.total_seconds()
        starts = now - timedelta(seconds=now.timestamp() % seconds)
    if ends <= starts:
        raise invalid("bad_dates", refusal_text("dated_backward"), "ends")
    if ends > now + LONGEST_AHEAD:
        raise invalid("bad_dates", refusal_text("dated_far", days=LONGEST_AHEAD.days), "ends")
    return starts.astimezone(UTC), ends.astimezone(UTC)


def _answered(cut: Cut | None, answer: str | None) -> Cut:
    """Returns the cut with the answer of a page, or that of the terms."""
    cut = cut if cut is not None else Cut()
    if cut.answer is None and answer is not None:
        cut.answer = CutAnswer(answer)
    return cut


def _cut(
    row: DatedGuarantee,
    quota: Quota,
    change: tuple[int, int],
    actor: PlatformActor,
    cut: Cut,
    now: datetime,
) -> None:
    """Lets what knows bookings act on the guarantee, and on the limit that moves with it."""
    before, after = change
    of = LimitOf(
        row.tenant_id,
        row.gpu_class_id,
        guarantee=True,
        source=row.id,
        since=max(row.starts, now),
        until=row.ends,
    )
    limit_changed(LimitChange(of, Most(before), Most(after), actor.user_id), cut, now)
    if quota.borrow_limit_units is not None:
        more = quota.borrow_limit_units
        limit = replace(of, guarantee=False)
        limit_changed(LimitChange(limit, Most(before + more), Most(after + more), actor.user_id), cut, now)


def _locked(model: GpuClass) -> dict[UUID, Quota]:
    """Locks the quotas of tenants on a class; returns them by tenant."""
    rows = Quota.objects.select_for_update().filter(project=None, gpu_class=model).order_by("id")
    return {row.tenant_id: row for row in rows}


def _check_overlap(known: QuerySet[DatedGuarantee], starts: datetime, ends: datetime) -> None:
    if known.count() >= MOST_TO_COME:
        raise invalid("too_many_guarantees", refusal_text("dated_many", most=MOST_TO_COME), "gpu_class")
    other = known.filter(starts__lt=ends, ends__gt=starts).first()
    if other is not None:
        why = refusal_text(
            "dated_overlaps",
            gpus=gpus_text(other.guaranteed_units),
            starts=f"{other.starts:%Y-%m-%d %H:%M}",
            ends=f"{other.ends:%Y-%m-%d %H:%M}",
        )
        raise invalid("guarantee_overlaps", why, "starts")


def _check_promised(tenant: Tenant, model: GpuClass, wanted: int, now: datetime) -> None:
    """Refuses less than what the tenant has promised to its labs and projects."""
    promised = room_of_tenant(tenant.id, model, now).others
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
    dated = list(guarantees_to_come(now).filter(Q(starts__lt=ends, ends__gt=starts), gpu_class=model))
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


def _record(row: DatedGuarantee, action: str, actor: PlatformActor, now: datetime) -> None:
    values: dict[str, Any] = {
        "tenant": row.tenant.slug,
        "gpu_class": row.gpu_class_id,
        "guaranteed_units": row.guaranteed_units,
        "starts": row.starts.isoformat(),
        "ends": row.ends.isoformat(),
    }
    target = ("dated_guarantee", row.id)
    is_set = action == "dated_guarantee.set"
    platform_record(
        actor.user_id,
        action,
        target,
        now,
        before=None if is_set else values,
        after=values if is_set else None,
    )
    audit_record(
        tenant_id=row.tenant_id, actor_id=actor.user_id, action=action, target=target, now=now, detail=values
    )
