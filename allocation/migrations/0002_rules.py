"""Booking rules in the database: no double booking, no illegal placement, no unknown transition,
no pause without its grace period; then row security, grants, and what a tenant may know of others.

Constraints are never deferrable: rows are written with ON CONFLICT DO NOTHING, which waits for a
concurrent row without a deadlock.
"""

from django.db import migrations

from allocation.rules.states import TRANSITIONS
from tenants.platform.wall import append_only, open_table, protect, system_table, tenant_key

LIVE = "state IN ('planned', 'starting', 'active', 'releasing')"
ME = "nullif(current_setting('portal.tenant', true), '')::uuid"

# A shared row covers all slots of its GPU, so the exclusion constraint can't separate shares:
# triggers sum them up.
PLACES = f"""
ALTER TABLE allocation_allocation
  ADD CONSTRAINT allocation_no_double_booking
    EXCLUDE USING gist (slots WITH &&, period WITH &&) WHERE ({LIVE} AND mode <> 'shared'),
  ADD CONSTRAINT allocation_one_mode
    EXCLUDE USING gist (gpu_number WITH =, mode WITH <>, period WITH &&) WHERE ({LIVE}),
  ADD CONSTRAINT allocation_period_sane CHECK (
    NOT isempty(period) AND lower_inc(period) AND NOT upper_inc(period)
    AND NOT lower_inf(period) AND NOT upper_inf(period)),
  ADD CONSTRAINT allocation_gpu_is_what_it_says
    FOREIGN KEY (gpu_id, gpu_number, model_id) REFERENCES allocation_gpu (id, number, model_id),
  ADD CONSTRAINT allocation_legal_placement
    FOREIGN KEY (model_id, profile, start, size)
    REFERENCES allocation_migplacement (model_id, profile, start, size);
CREATE INDEX allocation_by_period ON allocation_allocation USING gist (period) WHERE ({LIVE});
CREATE INDEX allocation_shares ON allocation_allocation USING gist (gpu_number, period)
  WHERE ({LIVE} AND mode = 'shared');
"""

# An open occupancy has no end, so it also excludes whatever would begin later.
OCCUPANCY = """
ALTER TABLE allocation_occupancy
  ADD CONSTRAINT occupancy_once_on_hardware
    EXCLUDE USING gist (slots WITH &&, tstzrange(opened, closed) WITH &&) WHERE (share IS NULL),
  ADD CONSTRAINT occupancy_one_mode
    EXCLUDE USING gist (slots WITH &&, ((share IS NULL)::int) WITH <>,
                        tstzrange(opened, closed) WITH &&);
-- The caller's clock can be slightly older than the time at which the hardware became free: the
-- occupancy then begins when the one before it was closed.
CREATE FUNCTION occupancy_in_turn() RETURNS trigger
SECURITY DEFINER LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    NEW.opened := greatest(NEW.opened, (
      SELECT max(closed) FROM allocation_occupancy before
      WHERE before.slots && NEW.slots
        AND before.opened <= NEW.opened
        AND tstzrange(before.opened, before.closed) @> NEW.opened
        AND (before.share IS NULL OR NEW.share IS NULL)));
  END IF;
  NEW.closed := greatest(NEW.closed, CASE WHEN NEW.closed IS NOT NULL THEN NEW.opened END);
  RETURN NEW;
END $$;
CREATE TRIGGER in_turn BEFORE INSERT OR UPDATE OF opened, closed ON allocation_occupancy
  FOR EACH ROW EXECUTE FUNCTION occupancy_in_turn();
"""

# The GPU's row is the lock. An inserted row that does not fit is skipped, as ON CONFLICT DO NOTHING
# skips a row that an exclusion constraint forbids, and callers count rows. An update that does not
# fit is an error. The owner of the functions sees all tenants' rows.
SHARES = f"""
CREATE FUNCTION allocation_shares_fit() RETURNS trigger
SECURITY DEFINER LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE most bigint;
BEGIN
  PERFORM FROM allocation_gpu WHERE id = NEW.gpu_id FOR NO KEY UPDATE;
  -- The highest sum is reached at the start of a row.
  SELECT max(taken) INTO most FROM (
    SELECT sum(b.share) AS taken
    FROM (SELECT lower(NEW.period) AS at UNION
          SELECT lower(period) FROM allocation_allocation
          WHERE gpu_number = NEW.gpu_number AND mode = 'shared' AND {LIVE}
            AND period && NEW.period AND lower(period) > lower(NEW.period)) starts
    JOIN allocation_allocation b
      ON b.gpu_number = NEW.gpu_number AND b.mode = 'shared' AND b.{LIVE}
         AND b.period @> starts.at AND b.id <> NEW.id
    GROUP BY starts.at) instants;
  IF coalesce(most, 0) + NEW.share <= 1000 THEN
    RETURN NEW;
  ELSIF TG_OP = 'INSERT' THEN
    RETURN NULL;
  END IF;
  RAISE EXCEPTION 'shares of GPU % exceed the whole', NEW.gpu_number
    USING ERRCODE = '23P01', CONSTRAINT = 'allocation_shares_fit';
END $$;
CREATE TRIGGER shares_fit BEFORE INSERT OR UPDATE OF state, period, share, mode, gpu_number, gpu_id
  ON allocation_allocation FOR EACH ROW
  WHEN (NEW.mode = 'shared' AND NEW.{LIVE}) EXECUTE FUNCTION allocation_shares_fit();
CREATE FUNCTION occupancy_shares_fit() RETURNS trigger
SECURITY DEFINER LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE taken bigint;
BEGIN
  PERFORM FROM allocation_gpu WHERE id = NEW.gpu_id FOR NO KEY UPDATE;
  SELECT sum(share) INTO taken FROM allocation_occupancy
    WHERE gpu_id = NEW.gpu_id AND closed IS NULL AND id <> NEW.id;
  IF coalesce(taken, 0) + NEW.share <= 1000 THEN
    RETURN NEW;
  ELSIF TG_OP = 'INSERT' THEN
    RETURN NULL;
  END IF;
  RAISE EXCEPTION 'more than a whole GPU is in use in shares'
    USING ERRCODE = '23P01', CONSTRAINT = 'occupancy_shares_fit';
END $$;
CREATE TRIGGER shares_fit BEFORE INSERT OR UPDATE OF closed, share, gpu_id
  ON allocation_occupancy FOR EACH ROW
  WHEN (NEW.share IS NOT NULL AND NEW.closed IS NULL) EXECUTE FUNCTION occupancy_shares_fit();
"""

# Host cores and memory are sums over time, as shares are. The lock is an advisory one per node, so
# that heartbeats and desired documents don't wait for it. Rows that fitted stay when a node
# later reports less.
HOSTS = f"""
CREATE FUNCTION allocation_host_fits() RETURNS trigger
SECURITY DEFINER LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  demand record;
  host record;
  taken record;
BEGIN
  SELECT coalesce((ask->>'cores')::bigint, 0) AS cores,
         coalesce((ask->>'memory')::bigint, 0) * 1024 AS memory
    INTO demand FROM allocation_booking WHERE id = NEW.booking_id;
  IF demand.cores = 0 AND demand.memory = 0 THEN
    RETURN NEW;
  END IF;
  SELECT n.id, n.name, n.cores, n.memory_mb AS memory INTO host
    FROM allocation_gpu g JOIN allocation_node n ON n.id = g.node_id WHERE g.id = NEW.gpu_id;
  PERFORM pg_advisory_xact_lock(hashtextextended('allocation_host ' || host.id, 0));
  -- The highest sum is reached at the start of a row.
  WITH others AS MATERIALIZED (
    SELECT b.period, coalesce((k.ask->>'cores')::bigint, 0) AS cores,
           coalesce((k.ask->>'memory')::bigint, 0) * 1024 AS memory
    FROM allocation_allocation b JOIN allocation_booking k ON k.id = b.booking_id
    WHERE b.gpu_id IN (SELECT id FROM allocation_gpu WHERE node_id = host.id)
      AND b.{LIVE} AND b.period && NEW.period AND b.id <> NEW.id
  ), starts AS (
    SELECT lower(NEW.period) AS at UNION
    SELECT lower(period) FROM others WHERE lower(period) > lower(NEW.period)
  )
  SELECT max(cores) AS cores, max(memory) AS memory INTO taken FROM (
    SELECT sum(cores) AS cores, sum(memory) AS memory
    FROM starts JOIN others ON others.period @> starts.at GROUP BY starts.at) instants;
  IF coalesce(taken.cores, 0) + demand.cores <= host.cores
     AND coalesce(taken.memory, 0) + demand.memory <= host.memory THEN
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

STATES = """
ALTER TABLE allocation_booking ADD CONSTRAINT booking_window CHECK (
  (starts IS NULL OR starts = not_before) AND (deadline IS NULL OR deadline > not_before));
CREATE TABLE allocation_transition (
  old text NOT NULL, new text NOT NULL, PRIMARY KEY (old, new));
INSERT INTO allocation_transition VALUES {rows};
CREATE FUNCTION allocation_check_state() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    IF NEW.state <> 'requested' AND current_user = 'portal_web' THEN
      RAISE EXCEPTION 'a booking begins as requested' USING ERRCODE = '23514';
    END IF;
  ELSIF NEW.state <> OLD.state AND NOT EXISTS (
      SELECT 1 FROM allocation_transition t WHERE t.old = OLD.state AND t.new = NEW.state) THEN
    RAISE EXCEPTION 'a booking can not go from % to %', OLD.state, NEW.state
      USING ERRCODE = '23514', CONSTRAINT = 'booking_transition';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_state BEFORE INSERT OR UPDATE OF state ON allocation_booking
  FOR EACH ROW EXECUTE FUNCTION allocation_check_state();
GRANT SELECT ON allocation_transition TO portal_web, portal_system, portal_ops;
""".format(rows=", ".join(f"('{old}', '{new}')" for old, new in sorted(TRANSITIONS)))

PAUSES = """
ALTER TABLE allocation_pause ADD CONSTRAINT pause_grace_kept
  CHECK (deadline >= notified_at + grace_seconds * interval '1 second');
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

# A policy holds whole numbers above zero. For these keys zero means never, or nothing.
ZERO_ALLOWED = "'{no_show_after,no_show_share,mode_changes,mode_patience}'::text[]"
POLICY = f"""
ALTER TABLE allocation_policyversion ADD CONSTRAINT policy_of_whole_numbers CHECK (
  jsonb_typeof(document) = 'object'
  AND NOT jsonb_path_exists(document, '$.* ? (@.type() != "number" || @ < 0 || @ != @.floor())')
  AND NOT jsonb_path_exists(document - {ZERO_ALLOWED}, '$.* ? (@ < 1)')
);
-- A version is retired once, and otherwise never changes.
CREATE FUNCTION portal_policy_kept() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
BEGIN
  IF TG_OP = 'UPDATE' AND OLD.state = 'live' AND NEW.state = 'retired'
    AND (NEW.number, NEW.document, NEW.created, NEW.created_by_id)
      IS NOT DISTINCT FROM (OLD.number, OLD.document, OLD.created, OLD.created_by_id)
  THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'a version of the policy is kept as it is' USING ERRCODE = '42501';
END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON allocation_policyversion
  FOR EACH ROW EXECUTE FUNCTION portal_policy_kept();
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON allocation_policyversion
  FOR EACH STATEMENT EXECUTE FUNCTION portal_append_only();
-- The solver needs a live policy and its fence.
INSERT INTO allocation_policyversion (number, document, state, created)
  VALUES (1, '{{}}', 'live', '2026-11-01T00:00:00Z');
INSERT INTO allocation_solverstate (id, leader_term, epoch) VALUES (1, 0, 1);
"""

# The program that archives moves the bytes of old decisions into a file; all else stays.
DECISIONS = """
CREATE FUNCTION allocation_decision_kept() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, public AS $$
DECLARE moved text[] := '{snapshot,plan,archived_in,snapshot_archived,plan_archived}';
BEGIN
  IF TG_OP = 'UPDATE' AND current_user = 'portal_owner'
    AND current_setting('portal.archiving', true) = 'on'
    AND OLD.archived_in = '' AND NEW.archived_in <> '' AND NEW.snapshot = '' AND NEW.plan = ''
    AND NEW.snapshot_archived = encode(sha256(OLD.snapshot), 'hex')
    AND NEW.plan_archived = encode(sha256(OLD.plan), 'hex')
    AND to_jsonb(NEW) - moved = to_jsonb(OLD) - moved
  THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = '42501';
END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON allocation_decision
  FOR EACH ROW EXECUTE FUNCTION allocation_decision_kept();
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON allocation_decision
  FOR EACH STATEMENT EXECUTE FUNCTION portal_append_only();
CREATE INDEX decision_to_archive ON allocation_decision (id) WHERE archived_in = '';
"""

# A node writes this document, so its size is bounded here, too.
EXAMINATIONS = """
ALTER TABLE allocation_nodeexamination ADD CONSTRAINT examination_is_bounded CHECK (
  jsonb_typeof(checks) = 'array' AND jsonb_array_length(checks) <= 64
  AND octet_length(checks::text) <= 262144
);
"""

WALL = "\n".join(
    [
        open_table("allocation_rack"),
        open_table("allocation_node"),
        open_table("allocation_gpumodel"),
        open_table("allocation_migplacement"),
        open_table("allocation_gpu"),
        open_table("allocation_policyversion"),
        open_table("allocation_maintenance"),
        open_table("allocation_portalmode"),
        open_table("allocation_backup"),
        open_table("allocation_workspeed"),
        open_table("allocation_eventcounter"),
        system_table("allocation_enrolmenttoken"),
        system_table("allocation_nodeinventory"),
        system_table("allocation_nodeexamination"),
        system_table("allocation_gpuevent"),
        system_table("allocation_decision"),
        system_table("allocation_solverstate"),
        system_table("allocation_machineclock"),
        system_table("allocation_occupancy"),
        system_table("allocation_pausecause"),
        system_table("allocation_compactionorder"),
        protect("allocation_booking", grants="SELECT, INSERT, UPDATE"),
        protect("allocation_allocation", grants="SELECT, UPDATE (state)"),
        protect("allocation_bookingevent", grants="SELECT, INSERT"),
        protect("allocation_series", grants="SELECT, INSERT, UPDATE (failed)"),
        # A member confirms the save, asks for more time or ends the pause.
        protect(
            "allocation_pause", grants="SELECT, UPDATE (acknowledged_at, more_asked_at, ended_at)"
        ),
        protect("allocation_calendarfeed", grants="SELECT, INSERT, UPDATE (revoked)"),
        protect("allocation_gpusample", grants="SELECT"),
        protect("allocation_gpuuse", grants="SELECT"),
        tenant_key("allocation_booking", "project_id", "tenants_project"),
        tenant_key("allocation_booking", "series_id", "allocation_series"),
        tenant_key("allocation_allocation", "project_id", "tenants_project"),
        tenant_key("allocation_allocation", "booking_id", "allocation_booking"),
        tenant_key("allocation_bookingevent", "booking_id", "allocation_booking"),
        tenant_key("allocation_series", "project_id", "tenants_project"),
        tenant_key("allocation_pause", "booking_id", "allocation_booking"),
        tenant_key("allocation_calendarfeed", "project_id", "tenants_project"),
        append_only("allocation_bookingevent"),
        "REVOKE UPDATE, DELETE ON allocation_decision, allocation_policyversion"
        " FROM portal_system, portal_ops;",
        "GRANT UPDATE (state) ON allocation_policyversion TO portal_system, portal_ops;",
    ]
)

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

# Tokens and feed addresses are found by their hash, before a tenant is known.
BY_HASH = """
CREATE FUNCTION portal_enrolment_open(wanted bytea, at timestamptz) RETURNS boolean
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT EXISTS (
    SELECT FROM allocation_enrolmenttoken
    WHERE digest = wanted AND used_at IS NULL AND expires > at)
$$;
CREATE FUNCTION portal_feed(wanted bytea)
RETURNS TABLE (owner_id bigint, tenant_slug text, feed_project_id uuid, gpu_class text,
               tenant_id uuid, project_id uuid, role text, person text, time_zone text)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT f.owner_id, t.slug, f.project_id, f.gpu_class_id,
         m.tenant_id, m.project_id, m.role, m.person, m.time_zone
  FROM allocation_calendarfeed f
  JOIN tenants_tenant t ON t.id = f.tenant_id
  JOIN LATERAL portal_memberships(f.owner_id) m ON m.tenant_id = f.tenant_id
  WHERE f.digest = wanted AND f.revoked IS NULL
$$;
"""

FUNCTIONS = ", ".join(
    [
        "portal_busy(timestamptz, timestamptz)",
        "portal_planned(timestamptz, timestamptz)",
        "portal_taken(timestamptz, timestamptz)",
        "portal_occupied(timestamptz, timestamptz)",
        "portal_oldest_undecided()",
        "portal_pause_outcomes(integer)",
        "portal_start_delays(text, integer)",
        "portal_enrolment_open(bytea, timestamptz)",
        "portal_feed(bytea)",
    ]
)
EXECUTE = f"""
REVOKE EXECUTE ON FUNCTION {FUNCTIONS} FROM PUBLIC;
GRANT EXECUTE ON FUNCTION {FUNCTIONS} TO portal_web, portal_system, portal_ops;
"""


class Migration(migrations.Migration):
    dependencies = [("allocation", "0001_initial"), ("tenants", "0002_wall")]
    operations = [
        migrations.RunSQL(PLACES + OCCUPANCY + SHARES + HOSTS),
        migrations.RunSQL(STATES + PAUSES + POLICY + DECISIONS + EXAMINATIONS),
        migrations.RunSQL(WALL),
        migrations.RunSQL(OTHERS + OUTCOMES + BY_HASH + EXECUTE),
    ]
