"""Modes of GPUs: how long a change takes, what was told, and what operators pin."""

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("allocation", "0019_occupied")]

    operations = [
        migrations.AddField(
            "gpumodel",
            "switch_seconds",
            models.PositiveSmallIntegerField(db_default=0, default=0),
        ),
        migrations.RunSQL(
            "UPDATE allocation_gpumodel SET switch_seconds = 30 WHERE mode_switch = 'reset'",
            migrations.RunSQL.noop,
        ),
        migrations.AddConstraint(
            "gpumodel",
            models.CheckConstraint(
                condition=Q(mode_switch="online", switch_seconds=0)
                | Q(mode_switch="reset", switch_seconds__gte=1, switch_seconds__lte=600),
                name="model_reset_takes_time",
            ),
        ),
        migrations.AddField(
            "gpu",
            "mode_pinned",
            models.CharField(
                blank=True,
                choices=[("whole", "Whole"), ("sliced", "Sliced")],
                db_default="",
                default="",
                max_length=8,
            ),
        ),
        migrations.AddField(
            "gpu",
            "mode_wanted",
            models.CharField(
                blank=True,
                choices=[("whole", "Whole"), ("sliced", "Sliced")],
                db_default="",
                default="",
                max_length=8,
            ),
        ),
        migrations.AddField("gpu", "mode_wanted_at", models.DateTimeField(blank=True, null=True)),
        migrations.AddConstraint(
            "gpu",
            models.CheckConstraint(
                condition=Q(mode_pinned__in=["", "whole", "sliced"]), name="gpu_mode_pinned_is_one"
            ),
        ),
        migrations.AddConstraint(
            "gpu",
            models.CheckConstraint(
                condition=Q(mode_wanted="", mode_wanted_at=None)
                | Q(mode_wanted__in=["whole", "sliced"], mode_wanted_at__isnull=False),
                name="gpu_mode_wanted_since",
            ),
        ),
        migrations.AlterField(
            "gpuevent",
            "kind",
            models.CharField(
                choices=[
                    ("xid", "Error"),
                    ("ecc", "Memory error"),
                    ("lost", "Not found"),
                    ("drift", "Made by hand"),
                    ("foreign", "Unbooked use"),
                    ("intruder", "Use by others"),
                    ("hang", "Driver hangs"),
                    ("silent", "Not heard"),
                    ("slow", "Slow start"),
                    ("mode", "Mode change"),
                    ("warned", "Users warned"),
                    ("asked", "Asked to end"),
                    ("killed", "Ended"),
                    ("operator", "Operator"),
                ],
                max_length=10,
            ),
        ),
        migrations.AddConstraint(
            "gpuevent",
            models.UniqueConstraint(
                condition=Q(kind="mode", until=None), fields=["gpu"], name="gpu_mode_change_once"
            ),
        ),
    ]
