"""No double booking, no illegal placement, no stray state: the database's own rules."""

from django.db import migrations

from allocation.rules.states import TRANSITIONS
from tenants.platform.wall import append_only, open_table, protect, system_table, tenant_key

LIVE = "state IN ('planned', 'starting', 'active', 'releasing')"

# Never deferrable: rows are written with ON CONFLICT DO NOTHING, which waits without deadlock.
BOOKING_RULES = f"""
ALTER TABLE allocation_allocation
  ADD CONSTRAINT allocation_no_double_booking
    EXCLUDE USING gist (slots WITH &&, period WITH &&) WHERE ({LIVE}),
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
ALTER TABLE allocation_occupancy
  ADD CONSTRAINT occupancy_once_on_hardware
    EXCLUDE USING gist (slots WITH &&) WHERE (closed IS NULL);
ALTER TABLE allocation_booking
  ADD CONSTRAINT booking_window CHECK (
    (starts IS NULL OR starts = not_before) AND (deadline IS NULL OR deadline > not_before));
"""

STATES = """
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

# Other tenants' time is published as anonymous blocks: busy, never who, why or how much.
BUSY = f"""
CREATE FUNCTION portal_busy(since timestamptz, until timestamptz)
RETURNS TABLE (gpu_id uuid, mode text, start smallint, size smallint,
               period_start timestamptz, period_end timestamptz, mine boolean)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT a.gpu_id, a.mode, a.start, a.size, lower(a.period), upper(a.period),
         a.tenant_id = nullif(current_setting('portal.tenant', true), '')::uuid
  FROM allocation_allocation a
  WHERE {LIVE} AND a.period && tstzrange(since, until)
$$;
CREATE FUNCTION portal_promised(since timestamptz, until timestamptz)
RETURNS TABLE (gpu_id uuid, mode text, start smallint, size smallint,
               period_start timestamptz, period_end timestamptz, mine boolean)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT p.gpu, CASE WHEN p.profile IS NULL THEN 'whole' ELSE 'sliced' END, p.start, p.size,
         b.planned_starts, b.planned_ends,
         b.tenant_id = nullif(current_setting('portal.tenant', true), '')::uuid
  FROM allocation_booking b,
       jsonb_to_recordset(b.planned_places) AS p(gpu uuid, profile text, start smallint, size smallint)
  WHERE b.state = 'queued' AND b.planned_starts < until AND b.planned_ends > since
$$;
REVOKE EXECUTE ON FUNCTION portal_busy(timestamptz, timestamptz),
  portal_promised(timestamptz, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION portal_busy(timestamptz, timestamptz),
  portal_promised(timestamptz, timestamptz) TO portal_web, portal_system, portal_ops;
"""

WALL = "\n".join(
    [
        open_table("allocation_rack"),
        open_table("allocation_node", "SELECT"),
        open_table("allocation_gpumodel"),
        open_table("allocation_migplacement"),
        open_table("allocation_gpu"),
        open_table("allocation_policyversion"),
        system_table("allocation_enrolmenttoken"),
        system_table("allocation_decision"),
        system_table("allocation_solverstate"),
        system_table("allocation_occupancy"),
        protect("allocation_gpusample", grants="SELECT"),
        protect("allocation_booking", grants="SELECT, INSERT, UPDATE"),
        protect("allocation_allocation", grants="SELECT, UPDATE (state)"),
        protect("allocation_bookingevent", grants="SELECT, INSERT"),
        tenant_key("allocation_booking", "project_id", "tenants_project"),
        tenant_key("allocation_allocation", "project_id", "tenants_project"),
        tenant_key("allocation_allocation", "booking_id", "allocation_booking"),
        tenant_key("allocation_bookingevent", "booking_id", "allocation_booking"),
        append_only("allocation_bookingevent"),
    ]
)


class Migration(migrations.Migration):
    dependencies = [
        ("allocation", "0001_initial"),
        ("tenants", "0002_wall"),
    ]
    operations = [
        migrations.RunSQL(BOOKING_RULES),
        migrations.RunSQL(STATES),
        migrations.RunSQL(BUSY),
        migrations.RunSQL(WALL),
    ]
