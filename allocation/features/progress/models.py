"""The table of the last report of each booking."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import PROTECT, F, Q

from allocation.features.progress.plateau import MOST_POINTS, Better, Series
from allocation.features.progress.rules import Pace
from allocation.models import Booking
from tenants.models import Tenant


class Progress(models.Model):
    """What the program of a booking has reported last, and two earlier points for its rate.

    Reports are never trusted for money or for a decision about others.
    """

    booking = models.OneToOneField(
        Booking, PROTECT, primary_key=True, db_constraint=False, related_name="progress"
    )
    tenant = models.ForeignKey(Tenant, PROTECT)
    step = models.FloatField(help_text="Steps that are done.")
    of = models.FloatField(null=True, blank=True, help_text="Steps in all; null: not said.")
    unit = models.CharField(max_length=24)
    metrics = models.JSONField(help_text="Numbers by name, such as a loss.")
    at = models.DateTimeField()
    anchor_at = models.DateTimeField(help_text="From here on the rate is measured.")
    anchor_step = models.FloatField()
    mark_at = models.DateTimeField(help_text="The next anchor.")
    mark_step = models.FloatField()
    driver = models.CharField(
        max_length=80,
        blank=True,
        default="",
        db_default="",
        help_text="Driver versions of its nodes when its rate began to be measured; empty: not known.",
    )

    metric = models.CharField(
        max_length=40,
        blank=True,
        default="",
        db_default="",
        help_text="The metric whose readings are kept; empty: none.",
    )
    better = models.CharField(
        max_length=6, choices=[(each, each) for each in Better], default=Better.LOWER, db_default=Better.LOWER
    )
    metric_values = ArrayField(
        models.FloatField(),
        null=True,
        blank=True,
        help_text="Means of `metric_stride` readings each; null: none.",
    )
    metric_steps = ArrayField(models.FloatField(), null=True, blank=True, help_text="Where each mean begins.")
    metric_stride = models.PositiveIntegerField(default=1, db_default=1)
    metric_count = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Readings of the last mean, which may have fewer."
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "booking"], name="progress_in_tenant"),
            models.CheckConstraint(condition=Q(step__gte=0, step__lte=1e15), name="progress_is_a_number"),
            models.CheckConstraint(
                condition=Q(of=None) | Q(of__gt=0, of__gte=F("step"), of__lte=1e15), name="progress_of_all"
            ),
            models.CheckConstraint(
                condition=Q(anchor_at__lte=F("mark_at"), mark_at__lte=F("at")), name="progress_in_order"
            ),
            models.CheckConstraint(
                condition=Q(metric_values=None, metric_steps=None, metric_count=0)
                | Q(
                    metric_values__len__lte=MOST_POINTS,
                    metric_steps__len=F("metric_values__len"),
                    metric_count__lte=F("metric_stride"),
                ),
                name="progress_metric_is_bounded",
            ),
            models.CheckConstraint(condition=Q(better__in=[*Better]), name="progress_metric_direction"),
        ]

    @property
    def pace(self) -> Pace:
        """The last report, and the points from which its rate is measured."""
        return Pace(self.at, self.step, self.anchor_at, self.anchor_step, self.mark_at, self.mark_step)

    @property
    def series(self) -> Series:
        """The readings of the metric that is watched."""
        return Series(
            tuple(self.metric_values or ()),
            tuple(self.metric_steps or ()),
            self.metric_stride,
            self.metric_count,
        )

    @series.setter
    def series(self, found: Series) -> None:
        self.metric_values = [*found.values] or None
        self.metric_steps = [*found.steps] or None
        self.metric_stride, self.metric_count = found.stride, found.count
