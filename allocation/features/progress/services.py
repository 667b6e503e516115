"""Keeping what programs report about their runs."""

from datetime import datetime
from typing import Literal

from django.db import transaction

from allocation.access import access_booking, may_change
from allocation.features.progress.costs import unit_cost_store
from allocation.features.progress.models import Progress
from allocation.features.progress.plateau import Better, Series, metric_by_default
from allocation.features.progress.rules import Pace, is_name, is_number_of_steps, metrics_fault
from allocation.models import Allocation, Booking
from allocation.rules.states import State
from allocation.words.refusals import refusal_text
from billing.rules import units_text
from tenants.access import Actor
from tenants.platform.errors import Refused, denied, invalid
from tenants.platform.terms import term, terms

_PACE = ("at", "step", "anchor_at", "anchor_step", "mark_at", "mark_step")
_METRIC = ("metric", "better", "metric_values", "metric_steps", "metric_stride", "metric_count")


@terms
class ProgressTerms:
    """What a program says of its run: `{"step": 1200, "of": 10000, "metrics": {"loss": 0.31}}`."""

    step: float = term(says="Steps that are done; never fewer than before, except after a pause.")
    of: float | None = term(says="Steps in all. Null: the same as before.", default=None)
    unit: str | None = term(
        says="What a step is, such as `epoch`. Null: the same as before, at first `step`.",
        max_length=24,
        default=None,
    )
    metrics: dict[str, float] | None = term(
        says="Up to 16 numbers by name. Null: the same as before.", default=None
    )
    watch: str | None = term(
        says="The metric of which a plateau is shown. Null: the same as before, at first `loss`, or the first"
        " by name that ends so.",
        max_length=40,
        default=None,
    )
    better: Literal["lower", "higher"] | None = term(
        says="Which values of `watch` are better. Null: lower of a name that ends in `loss`; of others it has"
        " to be said.",
        default=None,
    )


@terms
class MetricTerms:
    """The metric of which a plateau is shown."""

    watch: str = term("Metric", "Of those that the program reports.", max_length=40)
    better: Literal["lower", "higher"] = term("Better values")


def progress_set(*, actor: Actor, reference: str, terms: ProgressTerms, now: datetime) -> Progress:
    """Keeps a report of the booking's owner. Its time is the time at which it arrives.

    Raises:
        Refused: `not_found`, `not_allowed`, `progress_not_running`, `progress_number`,
            `progress_backwards`, `progress_metrics` or `progress_watch`.
    """
    booking = access_booking(actor, reference)
    if booking.owner_id != actor.user_id:
        raise denied(refusal_text("progress_owner"))
    return report_keep(booking, terms, now)


def report_keep(booking: Booking, terms: ProgressTerms, now: datetime) -> Progress:
    """Keeps a report of a program of the booking.

    Raises:
        Refused: `progress_not_running`, `progress_number`, `progress_backwards`, `progress_metrics` or
            `progress_watch`.
    """
    ready = booking.ready_at
    if ready is None or booking.state not in (State.ACTIVE, State.PAUSING):
        raise Refused("progress_not_running", refusal_text("progress_not_running", label=booking.label))
    _check(terms)
    with transaction.atomic():
        # Two first reports at once: the later one waits here for the row of the other.
        Progress.objects.bulk_create([_first(booking, terms, max(now, ready))], ignore_conflicts=True)
        row = Progress.objects.select_for_update().get(booking=booking)
        _follow(row, terms, now, ready)
        row.save(update_fields=[*_PACE, "of", "unit", "metrics", "driver", *_METRIC])
        if booking.campaign_id is not None:
            unit_cost_store(booking.campaign_id, now)
    return row


def _check(terms: ProgressTerms) -> None:
    for name, value in (("step", terms.step), ("of", terms.of)):
        if value is not None and not is_number_of_steps(value):
            raise invalid("progress_number", refusal_text("progress_number"), name)
    fault = metrics_fault(terms.metrics or {})
    if fault:
        raise invalid("progress_metrics", refusal_text("progress_metrics", name=fault), "metrics")
    if terms.watch is not None and not is_name(terms.watch):
        raise invalid("progress_watch", refusal_text("progress_watch_name"), "watch")
    if terms.watch is None and terms.better is not None:
        raise invalid("progress_watch", refusal_text("progress_watch_none"), "watch")
    if terms.watch is not None and terms.better is None and not metric_by_default([terms.watch]):
        raise invalid("progress_watch", refusal_text("progress_better", name=terms.watch), "better")


def _first(booking: Booking, terms: ProgressTerms, now: datetime) -> Progress:
    pace = Pace.begun(now, terms.step)
    return Progress(
        booking=booking,
        tenant_id=booking.tenant_id,
        of=None,
        unit=terms.unit or "step",
        metrics={},
        driver=_driver(booking),
        **{name: getattr(pace, name) for name in _PACE},
    )


def _driver(booking: Booking) -> str:
    """The driver versions of the nodes on which it runs, such as `570.86.15`."""
    rows = Allocation.objects.filter(booking=booking, state=Allocation.State.ACTIVE)
    found = set(rows.exclude(gpu__node__driver="").values_list("gpu__node__driver", flat=True))
    return ", ".join(sorted(found))[:80]


def _units(step: float, unit: str) -> str:
    """`1,112 steps`, `0.5 epochs`."""
    return units_text(int(step), unit) if step == int(step) else f"{step:,} {unit}{'s' * (unit[-1] != 's')}"


def _follow(row: Progress, terms: ProgressTerms, now: datetime, ready: datetime) -> None:
    """Puts a report into the row. Of a run that was paused the rate is measured anew."""
    pace = Pace(**{name: getattr(row, name) for name in _PACE})
    now = max(now, ready)
    if row.at < ready:
        # It continues from a checkpoint, which may be an earlier step, perhaps on another node.
        row.driver = _driver(row.booking)
        row.series = row.series.until(terms.step)
        pace = Pace.begun(now, terms.step)
    elif terms.step < row.step or now < row.at:
        sentence = refusal_text("progress_backwards", done=_units(row.step, row.unit))
        raise invalid("progress_backwards", sentence, "step")
    else:
        pace = pace.moved(now, terms.step)
    of = row.of if terms.of is None else terms.of
    if of is not None and of < max(terms.step, 1e-9):
        raise invalid("progress_number", refusal_text("progress_of"), "of")
    for name in _PACE:
        setattr(row, name, getattr(pace, name))
    row.of, row.unit = of, terms.unit or row.unit
    _watch(row, terms)
    row.metrics = row.metrics if terms.metrics is None else terms.metrics


def _watch(row: Progress, terms: ProgressTerms) -> None:
    """Keeps the reading of the metric that is watched. A value that stays the same is no new reading: reports
    repeat what was measured last."""
    metrics = terms.metrics or {}
    if terms.watch is not None:
        _choose(row, terms.watch, Better(terms.better or Better.LOWER))
    elif not row.metric:
        row.metric = metric_by_default(metrics)
    value = metrics.get(row.metric)
    if value is not None and (not row.metric_count or value != row.metrics.get(row.metric)):
        row.series = row.series.with_reading(terms.step, value)


def _choose(row: Progress, metric: str, better: Better) -> None:
    """Another metric begins without readings."""
    if row.metric != metric:
        row.metric, row.series = metric, Series()
    row.better = better


def metric_watch(*, actor: Actor, reference: str, terms: MetricTerms, now: datetime) -> Progress:
    """Chooses the metric of a booking of which a plateau is shown, for its owner or a lead.

    Raises:
        Refused: `not_found`, `not_allowed` or `progress_watch`.
    """
    booking = access_booking(actor, reference)
    if not may_change(actor, booking):
        raise denied(refusal_text("progress_owner"))
    with transaction.atomic():
        row = Progress.objects.select_for_update().filter(booking=booking).first()
        if row is None or terms.watch not in row.metrics:
            raise invalid("progress_watch", refusal_text("progress_watch_unknown"), "watch")
        _choose(row, terms.watch, Better(terms.better))
        row.save(update_fields=_METRIC)
    return row
