"""What a tenant may know of others, and the past of its own bookings as numbers."""

from allocation.migrations.rules.places import LIVE
from tenants.platform.wall import callable_by, system_table

ME = "nullif(current_setting('portal.tenant', true), '')::uuid"

# Other tenants' time is anonymous: busy GPUs and host resources, never whose they are or why. A row
# that should be out and is not still occupies its place.
OTHERS = f"""
CREATE FUNCTION portal_busy(since timestamptz, until timestamptz)
RETURNS TABLE (gpu_id uuid, mode text, start smallint, size smallint,
               period_start timestamptz, period_end timestamptz, mine boolean)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT a.gpu_id, a.mode, a.start, a.size, lower(a.period), upper(a.period),
         a.tenant_id = nullif(current_setting('portal.tenant', true), '')::uuid
  FROM allocation_allocation a
  WHERE {LIVE} AND a.period && tstzrange(since, until)
$$;
CREATE FUNCTION portal_planned(since timestamptz, until timestamptz)
RETURNS TABLE (gpu_id uuid, mode text, start smallint, size smallint,
               period_start timestamptz, period_end timestamptz, mine boolean)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT p.gpu,
         CASE WHEN p.share IS NOT NULL THEN 'shared'
              WHEN p.profile IS NULL THEN 'whole' ELSE 'sliced' END, p.start, p.size,
         b.planned_starts, b.planned_ends,
         b.tenant_id = nullif(current_setting('portal.tenant', true), '')::uuid
  FROM allocation_booking b, jsonb_to_recordset(b.planned_places)
       AS p(gpu uuid, profile text, start smallint, size smallint, share smallint)
  WHERE b.state IN ('queued', 'pausing', 'paused') AND b.planned_starts < until AND b.planned_ends > since
$$;
CREATE FUNCTION portal_taken(since timestamptz, until timestamptz)
RETURNS TABLE (gpu_id uuid, profile text, start smallint, size smallint, share smallint,
               cores bigint, memory bigint, period_start timestamptz, period_end timestamptz,
               mine boolean, planned boolean)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT a.gpu_id, CASE WHEN a.profile IS NULL THEN NULL ELSE 'busy' END, a.start, a.size, a.share,
         coalesce((b.ask->>'cores')::bigint, 0), coalesce((b.ask->>'memory')::bigint, 0),
         lower(a.period), upper(a.period),
         a.tenant_id IS NOT DISTINCT FROM nullif(current_setting('portal.tenant', true), '')::uuid,
         false
  FROM allocation_allocation a JOIN allocation_booking b ON b.id = a.booking_id
  WHERE a.{LIVE} AND a.period && tstzrange(since, until)
  UNION ALL
  SELECT p.gpu, CASE WHEN p.profile IS NULL THEN NULL ELSE 'busy' END, p.start, p.size, p.share,
         coalesce((b.ask->>'cores')::bigint, 0), coalesce((b.ask->>'memory')::bigint, 0),
         b.planned_starts, b.planned_ends,
         b.tenant_id IS NOT DISTINCT FROM nullif(current_setting('portal.tenant', true), '')::uuid,
         true
  FROM allocation_booking b, jsonb_to_recordset(b.planned_places)
       AS p(gpu uuid, profile text, start smallint, size smallint, share smallint)
  WHERE b.state IN ('queued', 'pausing', 'paused') AND b.planned_starts < until AND b.planned_ends > since
$$;
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
-- One instant for all tenants: not who waits, nor for what.
CREATE FUNCTION portal_oldest_undecided() RETURNS timestamptz
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT min(submitted) FROM allocation_booking WHERE state = 'requested'
$$;
"""

# The keys of other tenants' bookings stay inside the database: the function counts them.
QUEUE = (
    system_table("allocation_queueplace")
    + """
CREATE FUNCTION portal_queue_ahead(mine uuid, keys text[])
RETURNS TABLE (own boolean, number bigint, differs_at integer, band bigint, strength text,
               fixed boolean, bookings bigint)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  WITH me AS (
    SELECT b.id, b.tenant_id, b.project_id, b.owner_id, b.planned_ends, b.ask, p.key
    FROM allocation_booking b JOIN allocation_queueplace p ON p.booking_id = b.id
    WHERE b.id = mine AND b.tenant_id = nullif(current_setting('portal.tenant', true), '')::uuid
  ), ahead AS (
    SELECT b.tenant_id = me.tenant_id AS own, b.number, b.planned_strength,
           b.starts IS NOT NULL AS fixed, p.key,
           (SELECT min(i) FROM generate_subscripts(p.key, 1) i
            WHERE p.key[i] <> me.key[i] AND CASE keys[i - 1]
              WHEN 'tenant' THEN b.tenant_id <> me.tenant_id
              WHEN 'person' THEN (b.tenant_id, b.owner_id) <> (me.tenant_id, me.owner_id)
              WHEN 'project' THEN b.project_id <> me.project_id
              WHEN 'part' THEN b.project_id <> me.project_id
              ELSE true END)::integer AS differs_at
    FROM me JOIN allocation_queueplace p ON (p.key, p.booking_id) < (me.key, me.id)
    JOIN allocation_booking b ON b.id = p.booking_id
    WHERE b.state IN ('queued', 'pausing', 'paused') AND me.ask->'classes' ? b.planned_class
      AND b.planned_starts < me.planned_ends
  )
  SELECT own, CASE WHEN own THEN number END, differs_at, key[1], planned_strength, fixed, count(*)
  FROM ahead GROUP BY 1, 2, 3, 4, 5, 6
$$;
"""
)

# Chances and delays of a tenant's own bookings, with the caller's rights.
OUTCOMES = f"""
CREATE FUNCTION portal_pause_outcomes(most integer)
RETURNS TABLE (tier text, gpu_class text, borrowed boolean, quarter integer,
               ended bigint, paused bigint)
STABLE LANGUAGE sql SET search_path = pg_catalog, public, pg_temp AS $$
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
    WHERE b.tenant_id = {ME} AND b.ready_at IS NOT NULL AND b.ended_at IS NOT NULL
    ORDER BY b.ended_at DESC LIMIT most) latest
  GROUP BY 1, 2, 3, 4
$$;
CREATE FUNCTION portal_start_delays(in_tier text, most integer)
RETURNS TABLE (lead bigint, late bigint)
STABLE LANGUAGE sql SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT extract(epoch FROM p.first_planned_start - p.first_planned_at)::bigint,
         extract(epoch FROM p.started - p.first_planned_start)::bigint
  FROM (
    SELECT b.first_planned_start, b.first_planned_at,
           (SELECT min(e.at) FROM allocation_bookingevent e
            WHERE e.tenant_id = b.tenant_id AND e.booking_id = b.id
              AND e.kind = 'started') AS started
    FROM allocation_booking b
    WHERE b.tenant_id = {ME} AND b.tier_id = in_tier AND b.first_planned_start IS NOT NULL AND b.ready_at IS NOT NULL
      AND b.first_planned_start - b.first_planned_at >= interval '5 minutes'
    ORDER BY b.first_planned_start DESC LIMIT most) p
  WHERE p.started IS NOT NULL
$$;
"""

RIGHTS = callable_by(
    "portal_busy(timestamptz, timestamptz)",
    "portal_planned(timestamptz, timestamptz)",
    "portal_taken(timestamptz, timestamptz)",
    "portal_occupied(timestamptz, timestamptz)",
    "portal_oldest_undecided()",
    "portal_queue_ahead(uuid, text[])",
    "portal_pause_outcomes(integer)",
    "portal_start_delays(text, integer)",
)

SQL = OTHERS + QUEUE + OUTCOMES + RIGHTS
