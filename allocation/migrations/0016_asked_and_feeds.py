"""Quotes know what others have asked for and is not decided, and which of their windows may move;
both by number, never by name. And calendars that programs subscribe to."""

import uuid

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import Q

from tenants.platform.wall import protect, tenant_key

LIVE = "state IN ('planned', 'starting', 'active', 'releasing')"
ME = "nullif(current_setting('portal.tenant', true), '')::uuid"
COLUMNS = """tenant bigint, booking bigint, gpu_id uuid, profile text, start smallint,
               size smallint, share smallint, cores bigint, memory bigint,
               period_start timestamptz, period_end timestamptz, tier text, has_started boolean,
               ready_at timestamptz, saved_at timestamptz, pauses integer, is_pausing boolean,
               is_left boolean"""

# What is written and has not begun may lie elsewhere at its time: the same condition as in
# `services.snapshot`. An owner is a number too, so that no two people are put on one shared GPU.
BESIDE = f"""
DROP FUNCTION portal_beside(timestamptz, timestamptz);
CREATE FUNCTION portal_beside(since timestamptz, until timestamptz)
RETURNS TABLE ({COLUMNS}, owner bigint, may_move boolean, is_pinned boolean, together text,
               is_required boolean)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT (SELECT count(*) FROM tenants_tenant t WHERE t.id < a.tenant_id),
         dense_rank() OVER (ORDER BY a.booking_id),
         a.gpu_id, a.profile, a.start, a.size, a.share,
         coalesce((b.ask->>'cores')::bigint, 0), coalesce((b.ask->>'memory')::bigint, 0),
         lower(a.period), upper(a.period), b.tier_id, a.state <> 'planned',
         b.ready_at, b.saved_at, b.pause_count, b.state = 'pausing', a."left",
         dense_rank() OVER (ORDER BY b.owner_id),
         a.state = 'planned' AND b.state = 'scheduled' AND b.extension_until IS NULL,
         jsonb_array_length(coalesce(b.ask->'pin', '[]')) > 0,
         b.ask->>'together', (b.ask->>'required')::boolean AND (b.ask->>'count')::integer > 1
  FROM allocation_allocation a JOIN allocation_booking b ON b.id = a.booking_id
  WHERE a.{LIVE} AND lower(a.period) < until AND a.tenant_id IS DISTINCT FROM {ME}
    -- What should be out and is not is still there.
    AND (upper(a.period) > since OR a.state <> 'planned')
$$;
DROP FUNCTION portal_waiting(timestamptz, timestamptz);
CREATE FUNCTION portal_waiting(since timestamptz, until timestamptz)
RETURNS TABLE (tenant bigint, booking bigint, tier text, gpu_class text, places jsonb,
               together text, is_required boolean, cores bigint, memory bigint,
               starts timestamptz, ends timestamptz, pin jsonb)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT (SELECT count(*) FROM tenants_tenant t WHERE t.id < b.tenant_id),
         dense_rank() OVER (ORDER BY b.id), b.tier_id, b.planned_class, b.planned_places,
         b.ask->>'together', (b.ask->>'required')::boolean,
         coalesce((b.ask->>'cores')::bigint, 0), coalesce((b.ask->>'memory')::bigint, 0),
         b.planned_starts, b.planned_ends, coalesce(b.ask->'pin', '[]')
  FROM allocation_booking b
  WHERE b.state IN ('queued', 'pausing', 'paused') AND jsonb_array_length(b.planned_places) > 0
    AND b.planned_starts < until AND b.planned_ends > since AND b.tenant_id IS DISTINCT FROM {ME}
$$;
CREATE FUNCTION portal_asked()
RETURNS TABLE (tenant bigint, booking bigint, tier text, ask jsonb, lengths jsonb,
               duration integer, starts timestamptz, not_before timestamptz, deadline timestamptz,
               submitted timestamptz, owner bigint, series bigint)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT (SELECT count(*) FROM tenants_tenant t WHERE t.id < b.tenant_id),
         dense_rank() OVER (ORDER BY b.id), b.tier_id, b.ask, b.lengths,
         b.duration_seconds, b.starts, b.not_before, b.deadline, b.submitted,
         dense_rank() OVER (ORDER BY b.owner_id),
         CASE WHEN b.state = 'requested' AND b.starts IS NOT NULL AND NOT s.is_partial
              THEN dense_rank() OVER (ORDER BY b.series_id) END
  FROM allocation_booking b LEFT JOIN allocation_series s ON s.id = b.series_id
  WHERE b.state IN ('requested', 'queued') AND jsonb_array_length(b.planned_places) = 0
    -- What has run and is to begin again has a rest that only its own tenant can tell.
    AND b.ready_at IS NULL AND b.hardware_lost_at IS NULL AND b.replaced + b.used_seconds = 0
    AND b.tenant_id IS DISTINCT FROM {ME}
$$;
REVOKE EXECUTE ON FUNCTION portal_beside(timestamptz, timestamptz),
  portal_waiting(timestamptz, timestamptz), portal_asked() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION portal_beside(timestamptz, timestamptz),
  portal_waiting(timestamptz, timestamptz), portal_asked()
  TO portal_web, portal_system, portal_ops;
"""


# Who has the address says no tenant: like a token for programs, it is found by its hash.
FEEDS = "\n".join(
    [
        protect("allocation_calendarfeed", grants="SELECT, INSERT, UPDATE (revoked)"),
        tenant_key("allocation_calendarfeed", "project_id", "tenants_project"),
        """
CREATE FUNCTION portal_feed(wanted bytea)
RETURNS TABLE (owner_id bigint, tenant_slug text, project_id uuid, gpu_class text)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT f.owner_id, t.slug, f.project_id, f.gpu_class_id
  FROM allocation_calendarfeed f JOIN tenants_tenant t ON t.id = f.tenant_id
  WHERE f.digest = wanted AND f.revoked IS NULL
$$;
REVOKE EXECUTE ON FUNCTION portal_feed(bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION portal_feed(bytea) TO portal_web, portal_system, portal_ops;
""",
    ]
)


class Migration(migrations.Migration):
    dependencies = [
        ("allocation", "0015_life"),
        ("tenants", "0006_mail"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]
    operations = [
        migrations.RunSQL(BESIDE),
        migrations.CreateModel(
            name="CalendarFeed",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("digest", models.BinaryField(max_length=32, unique=True)),
                ("created", models.DateTimeField()),
                ("revoked", models.DateTimeField(blank=True, null=True)),
                (
                    "gpu_class",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        to="tenants.gpuclass",
                    ),
                ),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        null=True,
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
                "ordering": ["created", "id"],
                "constraints": [
                    models.CheckConstraint(
                        condition=Q(project=None) | Q(gpu_class=None), name="feed_of_one_thing"
                    )
                ],
            },
        ),
        migrations.RunSQL(FEEDS),
    ]
