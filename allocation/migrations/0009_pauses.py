"""Pauses: who was told what, when the place was empty, and what it cost; a receipt for each."""

import uuid
from importlib import import_module

import django.db.models.deletion
from django.db import migrations, models

from tenants.platform.wall import protect, system_table, tenant_key

# The owner says "saved", asks for more time and ends it; all else of a receipt is the system's.
WALL = "\n".join(
    [
        system_table("allocation_pausecause"),
        protect(
            "allocation_pause",
            grants="SELECT, UPDATE (acknowledged_at, more_asked_at, ended_at)",
        ),
        tenant_key("allocation_pause", "booking_id", "allocation_booking"),
    ]
)

GUARDS = """
ALTER TABLE allocation_pause ADD CONSTRAINT pause_grace_kept
  CHECK (deadline >= noticed_at + grace_seconds * interval '1 second');
CREATE FUNCTION allocation_check_pause() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF (OLD.resumed_at IS NOT NULL OR OLD.ended_at IS NOT NULL)
     AND (NEW.resumed_at, NEW.ended_at) IS DISTINCT FROM (OLD.resumed_at, OLD.ended_at) THEN
    RAISE EXCEPTION 'a pause is resolved once'
      USING ERRCODE = '23514', CONSTRAINT = 'pause_resolved_once';
  END IF;
  IF NEW.deadline < OLD.deadline THEN
    RAISE EXCEPTION 'a deadline never moves to an earlier time'
      USING ERRCODE = '23514', CONSTRAINT = 'pause_grace_kept';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_pause BEFORE UPDATE ON allocation_pause
  FOR EACH ROW EXECUTE FUNCTION allocation_check_pause();
"""

# What pausing and paused bookings are promised is as much taken as what waiting ones are.
TAKEN = import_module("allocation.migrations.0007_shares").TAKEN
PROMISED = TAKEN.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION").replace(
    "b.state = 'queued'", "b.state IN ('queued', 'pausing', 'paused')"
)


class Migration(migrations.Migration):
    dependencies = [
        ("allocation", "0008_maintenance"),
        ("tenants", "0005_tier_pauses"),
    ]

    operations = [
        migrations.CreateModel(
            name="Pause",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("number", models.PositiveSmallIntegerField()),
                ("beneficiary_label", models.CharField(blank=True, max_length=24)),
                ("may_wait", models.BooleanField()),
                ("policy_version", models.PositiveIntegerField()),
                ("rule", models.CharField(max_length=8)),
                ("sentence", models.CharField(max_length=300)),
                (
                    "method",
                    models.CharField(
                        choices=[
                            ("stop", "Ended by the node"),
                            ("signal", "Ends itself, killed at the deadline"),
                            ("suspend", "Frozen on its node"),
                        ],
                        max_length=8,
                    ),
                ),
                ("ready_at", models.DateTimeField()),
                ("noticed_at", models.DateTimeField()),
                ("deadline", models.DateTimeField()),
                ("grace_seconds", models.PositiveIntegerField()),
                ("ends_before", models.DateTimeField()),
                ("more_asked_at", models.DateTimeField(blank=True, null=True)),
                ("more_times_used", models.PositiveSmallIntegerField(default=0)),
                ("acknowledged_at", models.DateTimeField(blank=True, null=True)),
                ("emptied_at", models.DateTimeField(blank=True, null=True)),
                ("resumed_at", models.DateTimeField(blank=True, null=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("lost_seconds", models.PositiveIntegerField(default=0)),
                ("credit_seconds", models.PositiveIntegerField(default=0)),
                ("credit", models.DecimalField(decimal_places=6, default=0, max_digits=20)),
                ("charged", models.DecimalField(decimal_places=6, default=0, max_digits=20)),
                ("remaining_seconds", models.PositiveIntegerField(blank=True, null=True)),
            ],
            options={
                "ordering": ["booking", "number"],
            },
        ),
        migrations.CreateModel(
            name="PauseCause",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("handed_over_at", models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.AddField(
            model_name="allocation",
            name="saved_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="allocation",
            name="suspended",
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name="booking",
            name="noticed_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="booking",
            name="pause_count",
            field=models.PositiveSmallIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="booking",
            name="saved_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="booking",
            name="settled",
            field=models.DecimalField(db_default=0, decimal_places=6, default=0, max_digits=20),
        ),
        migrations.AddConstraint(
            model_name="booking",
            constraint=models.CheckConstraint(
                condition=models.Q(("settled__gte", 0), ("settled__lte", models.F("held"))),
                name="booking_settled_sane",
            ),
        ),
        migrations.AddField(
            model_name="pause",
            name="booking",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="pauses",
                to="allocation.booking",
            ),
        ),
        migrations.AddField(
            model_name="pause",
            name="decision",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="allocation.decision",
            ),
        ),
        migrations.AddField(
            model_name="pause",
            name="tenant",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant"
            ),
        ),
        migrations.AddField(
            model_name="pausecause",
            name="beneficiary",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="allocation.booking",
            ),
        ),
        migrations.AddField(
            model_name="pause",
            name="cause",
            field=models.OneToOneField(
                on_delete=django.db.models.deletion.PROTECT, to="allocation.pausecause"
            ),
        ),
        migrations.AddConstraint(
            model_name="pause",
            constraint=models.UniqueConstraint(fields=("booking", "number"), name="pause_number"),
        ),
        migrations.AddConstraint(
            model_name="pause",
            constraint=models.UniqueConstraint(
                condition=models.Q(("ended_at", None), ("resumed_at", None)),
                fields=("booking",),
                name="pause_one_open",
            ),
        ),
        migrations.AddConstraint(
            model_name="pause",
            constraint=models.CheckConstraint(
                condition=models.Q(("resumed_at", None), ("ended_at", None), _connector="OR"),
                name="pause_resolved_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="pause",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("resumed_at", None), ("emptied_at__isnull", False), _connector="OR"
                ),
                name="pause_resumed_after_it_was_empty",
            ),
        ),
        migrations.AddConstraint(
            model_name="pause",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("emptied_at", None),
                    ("acknowledged_at__isnull", False),
                    ("emptied_at__gte", models.F("deadline")),
                    _connector="OR",
                ),
                name="pause_never_before_its_deadline",
            ),
        ),
        migrations.AddConstraint(
            model_name="pause",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("ends_before__gte", models.F("deadline")),
                ),
                name="pause_in_order",
            ),
        ),
        migrations.AddConstraint(
            model_name="pause",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("charged__gte", 0),
                    ("credit__gte", 0),
                    ("credit_seconds__lte", models.F("lost_seconds")),
                ),
                name="pause_credit_sane",
            ),
        ),
        migrations.RunSQL(GUARDS),
        migrations.RunSQL(WALL),
        migrations.RunSQL(PROMISED),
    ]
