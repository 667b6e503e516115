"""Readings of a metric of each run, of which a plateau is shown."""

import django.contrib.postgres.fields
from django.db import migrations, models
from django.db.models import F, Q


_COLUMNS = "metric, better, metric_values, metric_steps, metric_stride, metric_count"
_RIGHTS = f"GRANT UPDATE ({_COLUMNS}) ON allocation_progress TO portal_web, portal_system;"


class Migration(migrations.Migration):
    dependencies = [("allocation", "0006_use_days")]

    operations = [
        migrations.AddField(
            "progress",
            "metric",
            models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="The metric whose readings are kept; empty: none.",
                max_length=40,
            ),
        ),
        migrations.AddField(
            "progress",
            "better",
            models.CharField(
                choices=[("lower", "lower"), ("higher", "higher")],
                db_default="lower",
                default="lower",
                max_length=6,
            ),
        ),
        migrations.AddField(
            "progress",
            "metric_values",
            django.contrib.postgres.fields.ArrayField(
                base_field=models.FloatField(),
                blank=True,
                help_text="Means of `metric_stride` readings each; null: none.",
                null=True,
                size=None,
            ),
        ),
        migrations.AddField(
            "progress",
            "metric_steps",
            django.contrib.postgres.fields.ArrayField(
                base_field=models.FloatField(),
                blank=True,
                help_text="Where each mean begins.",
                null=True,
                size=None,
            ),
        ),
        migrations.AddField(
            "progress", "metric_stride", models.PositiveIntegerField(db_default=1, default=1)
        ),
        migrations.AddField(
            "progress",
            "metric_count",
            models.PositiveIntegerField(
                db_default=0,
                default=0,
                help_text="Readings of the last mean, which may have fewer.",
            ),
        ),
        migrations.AddConstraint(
            "progress",
            models.CheckConstraint(
                condition=Q(metric_values=None, metric_steps=None, metric_count=0)
                | Q(
                    metric_values__len__lte=64,
                    metric_steps__len=F("metric_values__len"),
                    metric_count__lte=F("metric_stride"),
                ),
                name="progress_metric_is_bounded",
            ),
        ),
        migrations.AddConstraint(
            "progress",
            models.CheckConstraint(
                condition=Q(better__in=["lower", "higher"]), name="progress_metric_direction"
            ),
        ),
        migrations.RunSQL(_RIGHTS, migrations.RunSQL.noop),
    ]
