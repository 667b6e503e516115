"""What others have and were promised, for quotes: by number, never by name."""

from django.db import migrations

LIVE = "state IN ('planned', 'starting', 'active', 'releasing')"
ME = "nullif(current_setting('portal.tenant', true), '')::uuid"

# A quote looks for its start as the cycle does, so it has to know what may be paused, and whose
# what is. Tenants and bookings are numbers in the order of their ids, which are random.
BESIDE = f"""
CREATE FUNCTION portal_beside(since timestamptz, until timestamptz)
RETURNS TABLE (tenant bigint, booking bigint, gpu_id uuid, profile text, start smallint,
               size smallint, share smallint, cores bigint, memory bigint,
               period_start timestamptz, period_end timestamptz, tier text, has_started boolean,
               ready_at timestamptz, saved_at timestamptz, pauses integer, is_pausing boolean,
               is_left boolean)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT (SELECT count(*) FROM tenants_tenant t WHERE t.id < a.tenant_id),
         dense_rank() OVER (ORDER BY a.booking_id),
         a.gpu_id, a.profile, a.start, a.size, a.share,
         coalesce((b.ask->>'cores')::bigint, 0), coalesce((b.ask->>'memory')::bigint, 0),
         lower(a.period), upper(a.period), b.tier_id, a.state <> 'planned',
         b.ready_at, b.saved_at, b.pause_count, b.state = 'pausing', a."left"
  FROM allocation_allocation a JOIN allocation_booking b ON b.id = a.booking_id
  WHERE a.{LIVE} AND a.period && tstzrange(since, until) AND a.tenant_id IS DISTINCT FROM {ME}
$$;
CREATE FUNCTION portal_waiting(since timestamptz, until timestamptz)
RETURNS TABLE (tenant bigint, booking bigint, tier text, gpu_class text, places jsonb,
               together text, is_required boolean, cores bigint, memory bigint,
               starts timestamptz, ends timestamptz)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT (SELECT count(*) FROM tenants_tenant t WHERE t.id < b.tenant_id),
         dense_rank() OVER (ORDER BY b.id), b.tier_id, b.planned_class, b.planned_places,
         b.ask->>'together', (b.ask->>'required')::boolean,
         coalesce((b.ask->>'cores')::bigint, 0), coalesce((b.ask->>'memory')::bigint, 0),
         b.planned_starts, b.planned_ends
  FROM allocation_booking b
  WHERE b.state IN ('queued', 'pausing', 'paused') AND jsonb_array_length(b.planned_places) > 0
    AND b.planned_starts < until AND b.planned_ends > since AND b.tenant_id IS DISTINCT FROM {ME}
$$;
CREATE FUNCTION portal_limits()
RETURNS TABLE (tenant bigint, gpu_class text, guaranteed bigint, borrow bigint, lend bigint,
               weight integer)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT (SELECT count(*) FROM tenants_tenant t WHERE t.id < q.tenant_id),
         q.gpu_class_id, q.guaranteed_units, q.borrow_limit_units, q.lend_limit_units, q.weight
  FROM tenants_quota q
  WHERE q.project_id IS NULL AND q.tenant_id IS DISTINCT FROM {ME}
$$;
REVOKE EXECUTE ON FUNCTION portal_beside(timestamptz, timestamptz),
  portal_waiting(timestamptz, timestamptz), portal_limits() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION portal_beside(timestamptz, timestamptz),
  portal_waiting(timestamptz, timestamptz), portal_limits()
  TO portal_web, portal_system, portal_ops;
"""


class Migration(migrations.Migration):
    dependencies = [("allocation", "0011_telemetry"), ("tenants", "0005_tier_pauses")]
    operations = [migrations.RunSQL(BESIDE)]
