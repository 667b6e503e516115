"""Places on GPUs: no double booking, no illegal placement, no shares or host resources beyond what
is there.

Constraints are never deferrable: rows are written with ON CONFLICT DO NOTHING, which waits for a
concurrent row without a deadlock.
"""

from tenants.platform.wall import protect, system_table, tenant_key

LIVE = "state IN ('planned', 'starting', 'active', 'releasing')"

WALL = (
    protect("allocation_allocation", grants="SELECT, UPDATE (state)")
    + tenant_key("allocation_allocation", "project_id", "tenants_project")
    + tenant_key("allocation_allocation", "booking_id", "allocation_booking")
    + system_table("allocation_occupancy")
    + system_table("allocation_compactionorder")
)

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

SQL = WALL + PLACES + OCCUPANCY + SHARES + HOSTS
