"""What broken runs count for stands on their places; a pause that nobody needs is taken back; and
operators have running work moved together, and maintenance repeat."""

import uuid

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import system_table

# What was kept of broken runs so far was laid to the end of the last of them; it stays there.
KEPT = """
UPDATE allocation_allocation a SET counted_seconds = b.used_seconds
FROM allocation_booking b
WHERE b.id = a.booking_id AND b.used_seconds > 0 AND a."left"
  AND lower(a.period) = (SELECT max(lower(l.period)) FROM allocation_allocation l
                         WHERE l.booking_id = a.booking_id AND l."left");
"""
# A notice that is withdrawn.
STEPS = """
INSERT INTO allocation_transition VALUES ('pausing', 'active') ON CONFLICT DO NOTHING;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("allocation", "0014_node_answers"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            "allocation",
            "counted_seconds",
            models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.RunSQL(KEPT, migrations.RunSQL.noop),
        migrations.AddField(
            "pause", "withdrawn", models.BooleanField(db_default=False, default=False)
        ),
        migrations.AddConstraint(
            "pause",
            models.CheckConstraint(
                condition=models.Q(withdrawn=False)
                | models.Q(ended_at__isnull=False, ended_at__lt=models.F("deadline"))
                & models.Q(acknowledged_at=None, emptied_at=None),
                name="pause_withdrawn_in_time",
            ),
        ),
        migrations.RunSQL(STEPS, migrations.RunSQL.noop),
        migrations.CreateModel(
            name="CompactionOrder",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("document", models.JSONField()),
                ("created", models.DateTimeField()),
                ("decided_at", models.DateTimeField(blank=True, null=True)),
                ("declined", models.CharField(blank=True, max_length=300)),
                (
                    "beneficiary",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="allocation.booking",
                    ),
                ),
                (
                    "created_by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "decision",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="allocation.decision",
                    ),
                ),
            ],
            options={
                "ordering": ["-created", "id"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(decided_at=None),
                        fields=("beneficiary",),
                        name="compaction_one_open",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(decided_at=None, decision=None, declined="")
                        | models.Q(decided_at__isnull=False, decision__isnull=False),
                        name="compaction_answered_once",
                    ),
                ],
            },
        ),
        migrations.RunSQL(system_table("allocation_compactionorder"), migrations.RunSQL.noop),
        migrations.AddField("maintenance", "series", models.UUIDField(blank=True, null=True)),
        migrations.AddField(
            "maintenance",
            "rule",
            models.CharField(blank=True, db_default="", default="", max_length=120),
        ),
        migrations.AddField(
            "maintenance",
            "zone",
            models.CharField(blank=True, db_default="", default="", max_length=64),
        ),
        migrations.AddConstraint(
            "maintenance",
            models.CheckConstraint(
                condition=models.Q(series=None, rule="", zone="")
                | models.Q(
                    models.Q(series__isnull=False), ~models.Q(rule=""), ~models.Q(zone="")
                ),
                name="maintenance_repeats_by_a_rule",
            ),
        ),
        migrations.AddConstraint(
            "maintenance",
            models.UniqueConstraint(fields=("series", "starts"), name="maintenance_once_a_date"),
        ),
    ]
