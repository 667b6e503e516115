"""Of other tenants the web learns what is taken and until when, and nothing else; what chances and
ranges are counted from is a tenant's own."""

from importlib import import_module

from django.db import migrations

LIVE = "state IN ('planned', 'starting', 'active', 'releasing')"
ME = "nullif(current_setting('portal.tenant', true), '')::uuid"

# Places alone: no row tells whose it is, which rows are one booking, in which tier it is or how
# long it has run. What should be out and is not is still there.
OCCUPIED = f"""
DROP FUNCTION portal_beside(timestamptz, timestamptz);
DROP FUNCTION portal_waiting(timestamptz, timestamptz);
DROP FUNCTION portal_asked();
DROP FUNCTION portal_limits();
DROP FUNCTION portal_claims(timestamptz, timestamptz);
CREATE FUNCTION portal_occupied(since timestamptz, until timestamptz)
RETURNS TABLE (gpu_id uuid, sliced boolean, start smallint, size smallint, share smallint,
               cores bigint, memory bigint, period_start timestamptz, period_end timestamptz)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT a.gpu_id, a.profile IS NOT NULL, a.start, a.size, a.share,
         coalesce((b.ask->>'cores')::bigint, 0), coalesce((b.ask->>'memory')::bigint, 0),
         lower(a.period), upper(a.period)
  FROM allocation_allocation a JOIN allocation_booking b ON b.id = a.booking_id
  WHERE a.{LIVE} AND lower(a.period) < until AND a.tenant_id IS DISTINCT FROM {ME}
    AND (upper(a.period) > since OR a.state <> 'planned')
  UNION ALL
  SELECT p.gpu, p.profile IS NOT NULL, p.start, p.size, p.share,
         coalesce((b.ask->>'cores')::bigint, 0), coalesce((b.ask->>'memory')::bigint, 0),
         b.planned_starts, b.planned_ends
  FROM allocation_booking b, jsonb_to_recordset(b.planned_places)
       AS p(gpu uuid, profile text, start smallint, size smallint, share smallint)
  WHERE b.state IN ('queued', 'pausing', 'paused') AND b.planned_starts < until
    AND b.planned_ends > since AND b.tenant_id IS DISTINCT FROM {ME}
  ORDER BY 1, 8, 9, 3, 4, 5, 6, 7
$$;
REVOKE EXECUTE ON FUNCTION portal_occupied(timestamptz, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION portal_occupied(timestamptz, timestamptz)
  TO portal_web, portal_system, portal_ops;
"""

# As before, of the tenant that asks: how others fare is no business of its quotes. They run with
# the caller's rights, so the wall says the same.
OWN = (
    import_module("allocation.migrations.0010_series")
    .OUTCOMES.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
    .replace(" SECURITY DEFINER", "")
    .replace("WHERE b.ready_at IS NOT NULL", f"WHERE b.tenant_id = {ME} AND b.ready_at IS NOT NULL")
    .replace("WHERE b.tier_id = in_tier", f"WHERE b.tenant_id = {ME} AND b.tier_id = in_tier")
)


class Migration(migrations.Migration):
    dependencies = [("allocation", "0018_enrolment_door")]
    operations = [migrations.RunSQL(OCCUPIED), migrations.RunSQL(OWN)]
