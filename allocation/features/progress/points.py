"""What progress adds to the core: a field of bookings, a card on their page, and sentences."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from rest_framework import serializers

from allocation.features.progress.lines import lines_keep
from allocation.features.progress.models import Progress
from allocation.features.progress.plateau import Better, verdict_of
from allocation.models import Booking
from allocation.points import BOOKING_PARTS, PROGRAM_LINES, BookingPart
from allocation.words.refusals import sentences_add
from tenants.platform.rest.body import Shape
from tenants.platform.rest.fields import Money


class MetricOut(Shape):
    """The metric of a run that is watched, and whether it has stopped getting better. It decides nothing."""

    name = serializers.CharField()
    better = serializers.ChoiceField([*Better], help_text="Which values are better.")
    readings = serializers.IntegerField()
    plateau = serializers.BooleanField(
        allow_null=True,
        help_text="The last third of the readings is not better than those before, and an improvement would"
        " be seen. Null: fewer than 30 readings, nothing gained before, or too noisy to tell.",
    )
    since = serializers.FloatField(allow_null=True, help_text="The step where the last third begins.")
    best = serializers.FloatField(
        allow_null=True,
        help_text="The best mean of `best_of` readings in a row. Single readings can be better: the best of"
        " many is an accident of noise. Null as `plateau`.",
    )
    best_of = serializers.IntegerField(
        help_text="Readings in each mean: one up to 64 readings, and more in a longer run."
    )


class ProgressOut(Shape):
    """How far a run is, as its program has said."""

    step = serializers.FloatField()
    of = serializers.FloatField(allow_null=True)
    unit = serializers.CharField()
    metrics = serializers.DictField(child=serializers.FloatField())
    metric = MetricOut(allow_null=True, help_text="Null: none is watched.")
    at = serializers.DateTimeField(help_text="When it was said last.")
    per_hour = serializers.FloatField(
        allow_null=True, help_text="Steps in an hour, of the last 15 to 30 minutes. Null: not known yet."
    )
    expected_end = serializers.DateTimeField(
        allow_null=True, help_text="At this rate. Null without `of` or a rate."
    )
    cost_per_step = Money(
        allow_null=True, max_digits=20, decimal_places=9, help_text="At this rate, outside peak hours."
    )


def cost_per_step(booking: Booking, row: Progress) -> Decimal | None:
    """What a step costs at the last rate and the booking's price outside peak hours."""
    rate = row.pace.per_second
    return None if rate is None else round(booking.price_per_hour / Decimal(rate * 3_600), 9)


def metric_shown(row: Progress) -> dict[str, Any] | None:
    """The metric that is watched, as `MetricOut` takes it."""
    if not row.metric:
        return None
    found = verdict_of(row.series, Better(row.better))
    return {
        "name": row.metric,
        "better": row.better,
        "readings": row.series.readings,
        "plateau": found and found.is_plateau,
        "since": found and found.since,
        "best": found and found.best,
        "best_of": row.series.stride,
    }


def progress_shown(booking: Booking, row: Progress) -> dict[str, Any]:
    """The progress as `ProgressOut` takes it."""
    pace = row.pace
    rate = pace.per_second
    ends: datetime | None = pace.ends(row.of)
    return {
        "step": row.step,
        "of": row.of,
        "unit": row.unit,
        "metrics": row.metrics,
        "metric": metric_shown(row),
        "at": row.at,
        "per_hour": None if rate is None else rate * 3_600,
        "expected_end": None if ends is None else ends.replace(microsecond=0),
        "cost_per_step": cost_per_step(booking, row),
    }


PROGRAM_LINES.append(lines_keep)
BOOKING_PARTS.append(BookingPart("progress", Progress, ProgressOut, progress_shown))
sentences_add(
    {
        "no_campaign_budget": "%(name)s has no budget for today. Set one first; its ladder has the limit.",
        "progress_owner": "Only the account that owns the booking says how far its run is.",
        "progress_not_running": "%(label)s is not running now.",
        "progress_number": "Send a number from 0 to 1,000,000,000,000,000.",
        "progress_of": "There are fewer steps in all than steps that are done.",
        "progress_backwards": "The run has reached %(done)s already, so this changes nothing.",
        "progress_watch_name": "A metric has up to 40 letters, digits and _ . / @ -.",
        "progress_watch_none": "Name the metric of which these values are better.",
        "progress_watch_unknown": "The program reports no metric with this name.",
        "progress_better": "Say whether higher or lower values of %(name)s are better.",
        (
            "progress_metrics"
        ): "%(name)s is one of more than 16 metrics, has a name that can't be kept, or is not a number.",
    }
)
