"""What others have and were promised, for quotes: by number, never by name. And host cores and
memory, which are given once."""

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
  WHERE a.{LIVE} AND lower(a.period) < until AND a.tenant_id IS DISTINCT FROM {ME}
    -- What should be out and is not is still there.
    AND (upper(a.period) > since OR a.state <> 'planned')
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

# A node's cores and memory are a sum over time, as shares are. The lock is the node's own and
# nobody else's: heartbeats and documents of the node do not wait for it. As with shares a row that
# does not fit is left out when it is inserted, and an error when it is prolonged; what a node has
# less of than it had stays as it is.
HOSTS = f"""
CREATE FUNCTION allocation_host_fits() RETURNS trigger
SECURITY DEFINER LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  wants record;
  host record;
  taken record;
BEGIN
  SELECT coalesce((ask->>'cores')::bigint, 0) AS cores,
         coalesce((ask->>'memory')::bigint, 0) * 1024 AS memory
    INTO wants FROM allocation_booking WHERE id = NEW.booking_id;
  IF wants.cores = 0 AND wants.memory = 0 THEN
    RETURN NEW;
  END IF;
  SELECT n.id, n.name, n.cores, n.memory_mb AS memory INTO host
    FROM allocation_gpu g JOIN allocation_node n ON n.id = g.node_id WHERE g.id = NEW.gpu_id;
  PERFORM pg_advisory_xact_lock(hashtextextended('allocation_host ' || host.id, 0));
  -- The most at any instant is the most at one of the begins.
  WITH beside AS MATERIALIZED (
    SELECT b.period, coalesce((k.ask->>'cores')::bigint, 0) AS cores,
           coalesce((k.ask->>'memory')::bigint, 0) * 1024 AS memory
    FROM allocation_allocation b JOIN allocation_booking k ON k.id = b.booking_id
    WHERE b.gpu_id IN (SELECT id FROM allocation_gpu WHERE node_id = host.id)
      AND b.{LIVE} AND b.period && NEW.period AND b.id <> NEW.id
  ), begins AS (
    SELECT lower(NEW.period) AS at UNION
    SELECT lower(period) FROM beside WHERE lower(period) > lower(NEW.period)
  )
  SELECT max(cores) AS cores, max(memory) AS memory INTO taken FROM (
    SELECT sum(cores) AS cores, sum(memory) AS memory
    FROM begins JOIN beside ON beside.period @> begins.at GROUP BY begins.at) instants;
  IF coalesce(taken.cores, 0) + wants.cores <= host.cores
     AND coalesce(taken.memory, 0) + wants.memory <= host.memory THEN
    RETURN NEW;
  ELSIF TG_OP = 'INSERT' THEN
    RETURN NULL;
  END IF;
  RAISE EXCEPTION 'node % has no more cores or memory', host.name
    USING ERRCODE = '23P01', CONSTRAINT = 'allocation_host_fits';
END $$;
CREATE TRIGGER host_fits BEFORE INSERT ON allocation_allocation FOR EACH ROW
  WHEN (NEW.{LIVE}) EXECUTE FUNCTION allocation_host_fits();
CREATE TRIGGER host_fits_longer BEFORE UPDATE OF period, gpu_id ON allocation_allocation
  FOR EACH ROW
  WHEN (NEW.{LIVE} AND (NEW.gpu_id <> OLD.gpu_id OR NOT NEW.period <@ OLD.period))
  EXECUTE FUNCTION allocation_host_fits();
"""


class Migration(migrations.Migration):
    dependencies = [("allocation", "0012_policy_guard"), ("tenants", "0005_tier_pauses")]
    operations = [migrations.RunSQL(BESIDE), migrations.RunSQL(HOSTS)]
