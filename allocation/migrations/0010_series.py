"""Series of bookings, the speed of work by class, and what has become of promises and of pauses."""

import uuid

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import Q

from tenants.platform.wall import open_table, protect, tenant_key

WALL = "\n".join(
    [
        protect("allocation_series", grants="SELECT, INSERT, UPDATE (failed)"),
        tenant_key("allocation_series", "project_id", "tenants_project"),
        tenant_key("allocation_booking", "series_id", "allocation_series"),
        open_table("allocation_workspeed"),
    ]
)

# Counts and delays without a name: nobody is told whose bookings they come from.
OUTCOMES = """
CREATE FUNCTION portal_pause_outcomes(most integer)
RETURNS TABLE (tier text, gpu_class text, borrowed boolean, quarter integer,
               ended bigint, paused bigint)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT latest.tier_id, latest.planned_class, latest.borrowed, latest.quarter,
         count(*), count(*) FILTER (WHERE latest.was_paused)
  FROM (
    SELECT b.tier_id, b.planned_class, b.borrowed_units > 0 AS borrowed,
           floor(extract(hour FROM coalesce(b.first_planned_start, b.planned_starts)
                              AT TIME ZONE 'UTC') / 6)::integer AS quarter,
           EXISTS (SELECT FROM allocation_bookingevent e
                   WHERE e.tenant_id = b.tenant_id AND e.booking_id = b.id
                     AND e.kind = 'paused') AS was_paused
    FROM allocation_booking b
    WHERE b.ready_at IS NOT NULL AND b.ended_at IS NOT NULL
    ORDER BY b.ended_at DESC LIMIT most) latest
  GROUP BY 1, 2, 3, 4
$$;
CREATE FUNCTION portal_starts_kept(in_tier text, most integer)
RETURNS TABLE (lead bigint, late bigint)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT extract(epoch FROM p.first_planned_start - p.first_planned_at)::bigint,
         extract(epoch FROM p.started - p.first_planned_start)::bigint
  FROM (
    SELECT b.first_planned_start, b.first_planned_at,
           (SELECT min(e.at) FROM allocation_bookingevent e
            WHERE e.tenant_id = b.tenant_id AND e.booking_id = b.id
              AND e.kind = 'started') AS started
    FROM allocation_booking b
    WHERE b.tier_id = in_tier AND b.first_planned_start IS NOT NULL AND b.ready_at IS NOT NULL
      AND b.first_planned_start - b.first_planned_at >= interval '5 minutes'
    ORDER BY b.first_planned_start DESC LIMIT most) p
  WHERE p.started IS NOT NULL
$$;
REVOKE EXECUTE ON FUNCTION portal_pause_outcomes(integer), portal_starts_kept(text, integer)
  FROM PUBLIC;
GRANT EXECUTE ON FUNCTION portal_pause_outcomes(integer), portal_starts_kept(text, integer)
  TO portal_web, portal_system, portal_ops;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("allocation", "0009_pauses"),
        ("tenants", "0003_quota_algebra"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]
    operations = [
        migrations.CreateModel(
            name="Series",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("name", models.CharField(blank=True, max_length=80)),
                ("rule", models.CharField(max_length=120)),
                ("zone", models.CharField(max_length=64)),
                ("first", models.DateTimeField()),
                ("is_partial", models.BooleanField(default=False)),
                ("skipped", models.JSONField(default=list)),
                ("failed", models.JSONField(default=list)),
                ("created", models.DateTimeField()),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        to="tenants.project",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant"
                    ),
                ),
            ],
            options={
                "ordering": ["-created", "id"],
                "constraints": [
                    models.UniqueConstraint(fields=("tenant", "id"), name="series_id_in_tenant"),
                    models.CheckConstraint(
                        condition=Q(is_partial=True) | Q(failed=[]),
                        name="series_whole_has_no_failed",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="WorkSpeed",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("workload", models.SlugField(max_length=40)),
                (
                    "gpu_class",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, to="tenants.gpuclass"
                    ),
                ),
                ("thousandths", models.PositiveIntegerField()),
            ],
            options={
                "ordering": ["workload", "gpu_class"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("workload", "gpu_class"), name="work_speed_once"
                    ),
                    models.CheckConstraint(
                        condition=Q(thousandths__gte=1, thousandths__lte=1_000_000),
                        name="work_speed_sane",
                    ),
                ],
            },
        ),
        migrations.AddField("booking", "lengths", models.JSONField(default=list)),
        migrations.AddField(
            "booking", "first_planned_start", models.DateTimeField(blank=True, null=True)
        ),
        migrations.AddField(
            "booking", "first_planned_at", models.DateTimeField(blank=True, null=True)
        ),
        migrations.AddField(
            "booking",
            "series",
            models.ForeignKey(
                blank=True,
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="bookings",
                to="allocation.series",
            ),
        ),
        migrations.AddIndex(
            "booking",
            models.Index(
                fields=["tier", "-first_planned_start"],
                name="booking_promised",
                condition=Q(first_planned_start__isnull=False),
            ),
        ),
        migrations.AddIndex(
            "booking",
            models.Index(
                fields=["-ended_at"], name="booking_ran", condition=Q(ready_at__isnull=False)
            ),
        ),
        migrations.RunSQL(WALL),
        migrations.RunSQL(OUTCOMES),
    ]
