"""A row of a guarantee between dates: its dates, what it cuts, and its entry in the log."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from django.db.models import QuerySet

from allocation.words.refusals import refusal_text
from tenants.audit import audit_record, platform_record
from tenants.models import DatedGuarantee, LabQuota, Quota
from tenants.outbox import task_request
from tenants.platform.errors import invalid
from tenants.platform.terms import term, terms
from tenants.services.input_values import gpus_text, units_read
from tenants.services.limit_changes import Cut, CutAnswer, LimitChange, LimitOf, Most, limit_changed

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
class GuaranteeTerms:
    """What is guaranteed of a class between two instants, in place of the usual guarantee."""

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
    starts: datetime | None = term("Starts (empty: now)", asks="moment", says="Null: now.", default=None)
    ends: datetime = term("Ends", "Then the usual guarantee applies again.", asks="moment")
    bookings: Answer | None = term(says=CUT_HELP, default=None)


@terms
class EndTerms:
    """The end of a guarantee between dates."""

    bookings: Answer | None = term(says=CUT_HELP, default=None)


def dates_read(terms: GuaranteeTerms, now: datetime) -> tuple[datetime, datetime]:
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


def answered(cut: Cut | None, answer: str | None) -> Cut:
    """Returns the cut with the answer of a page, or that of the terms."""
    cut = cut if cut is not None else Cut()
    if cut.answer is None and answer is not None:
        cut.answer = CutAnswer(answer)
    return cut


def overlap_check(known: QuerySet[DatedGuarantee], starts: datetime, ends: datetime) -> None:
    """Raises Refused: `too_many_guarantees` or `guarantee_overlaps`."""
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


def same_row(
    known: QuerySet[DatedGuarantee], units: int, starts: datetime, ends: datetime
) -> DatedGuarantee | None:
    """The row that says the same already, so that a repetition is safe."""
    return known.filter(guaranteed_units=units, starts=starts, ends=ends).first()


def row_added(row: DatedGuarantee, quota: Quota | LabQuota, cut: Cut, now: datetime) -> None:
    """Stores a new row, records it, and acts on what is above it. By who created it."""
    row.save(force_insert=True)
    _record(row, "dated_guarantee.set", row.created_by_id, now)
    _cut(row, quota, (quota.guaranteed_units, row.guaranteed_units), row.created_by_id, cut, now)
    task_request("allocation.cycle")


def row_ended(row: DatedGuarantee, quota: Quota | LabQuota, user_id: int, cut: Cut, now: datetime) -> None:
    """Ends a locked row early, records it, and acts on what is above the usual guarantee."""
    row.ended, row.ended_by_id = now, user_id
    row.save(update_fields=["ended", "ended_by"])
    _record(row, "dated_guarantee.ended", user_id, now)
    _cut(row, quota, (row.guaranteed_units, quota.guaranteed_units), user_id, cut, now)
    task_request("allocation.cycle")


def _cut(
    row: DatedGuarantee,
    quota: Quota | LabQuota,
    change: tuple[int, int],
    user_id: int,
    cut: Cut,
    now: datetime,
) -> None:
    """Lets what knows bookings act on the guarantee, and on the limit that moves with it."""
    before, after = change
    of = LimitOf(
        row.tenant_id,
        row.gpu_class_id,
        project_id=row.project_id,
        lab_id=row.lab_id,
        guarantee=True,
        source=row.id,
        since=max(row.starts, now),
        until=row.ends,
    )
    limit_changed(LimitChange(of, Most(before), Most(after), user_id), cut, now)
    if quota.borrow_limit_units is not None:
        more = quota.borrow_limit_units
        limit = replace(of, guarantee=False)
        limit_changed(LimitChange(limit, Most(before + more), Most(after + more), user_id), cut, now)


def _record(row: DatedGuarantee, action: str, user_id: int, now: datetime) -> None:
    """Writes the organisation's log, and that of operators for a guarantee that they set."""
    owner = row.project or row.lab or row.tenant
    values: dict[str, Any] = {
        "tenant": row.tenant.slug,
        "of": owner.slug,
        "gpu_class": row.gpu_class_id,
        "guaranteed_units": row.guaranteed_units,
        "starts": row.starts.isoformat(),
        "ends": row.ends.isoformat(),
    }
    target, is_set = ("dated_guarantee", row.id), action == "dated_guarantee.set"
    if row.is_of_tenant:
        before, after = (None, values) if is_set else (values, None)
        platform_record(user_id, action, target, now, before=before, after=after)
    audit_record(
        tenant_id=row.tenant_id, actor_id=user_id, action=action, target=target, now=now, detail=values
    )
