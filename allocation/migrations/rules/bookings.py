"""Bookings: their states, labels, series, arrays, changes and calendar feeds."""

from allocation.rules.states import TRANSITIONS
from tenants.platform.wall import append_only, callable_by, protect, tenant_key


def campaign_key(table: str) -> str:
    """SQL for a foreign key of `table` to a campaign of the same project."""
    return f"""
ALTER TABLE {table} ADD CONSTRAINT {table}_campaign_id_in_project
  FOREIGN KEY (tenant_id, project_id, campaign_id)
  REFERENCES billing_campaign (tenant_id, project_id, id);
"""


BOOKINGS = (
    protect("allocation_booking", grants="SELECT, INSERT, UPDATE")
    + tenant_key("allocation_booking", "project_id", "tenants_project")
    + tenant_key("allocation_booking", "series_id", "allocation_series")
    + tenant_key("allocation_booking", "array_id", "allocation_bookingarray")
    + campaign_key("allocation_booking")
    + """
ALTER TABLE allocation_booking ADD CONSTRAINT booking_window CHECK (
  (starts IS NULL OR starts = not_before) AND (deadline IS NULL OR deadline > not_before));
"""
    + protect("allocation_bookingevent", grants="SELECT, INSERT")
    + tenant_key("allocation_bookingevent", "booking_id", "allocation_booking")
    + append_only("allocation_bookingevent")
)

# A database that exists gets a new step by a migration of its own.
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

# The operators of jsonb are not leakproof, so an index of the column can't be used behind row-level
# security. Triggers keep a table of all labels of bookings, which an index of plain text finds.
LABELS = """
ALTER TABLE allocation_booking ADD CONSTRAINT booking_labels_sane
  CHECK (labels = '{}' OR portal_labels_sane(labels));
ALTER TABLE allocation_series ADD CONSTRAINT series_labels_sane
  CHECK (labels = '{}' OR portal_labels_sane(labels));
ALTER TABLE allocation_bookinglabel ADD CONSTRAINT bookinglabel_of_booking_in_tenant
  FOREIGN KEY (tenant_id, booking_id) REFERENCES allocation_booking (tenant_id, id)
  ON DELETE CASCADE;
CREATE FUNCTION allocation_labels_index() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF TG_OP = 'UPDATE' THEN
    DELETE FROM allocation_bookinglabel WHERE tenant_id = NEW.tenant_id AND booking_id = NEW.id;
  END IF;
  INSERT INTO allocation_bookinglabel (tenant_id, booking_id, key, value)
    SELECT NEW.tenant_id, NEW.id, key, value FROM jsonb_each_text(NEW.labels);
  RETURN NULL;
END $$;
CREATE TRIGGER labels_of_new AFTER INSERT ON allocation_booking
  FOR EACH ROW WHEN (NEW.labels <> '{}') EXECUTE FUNCTION allocation_labels_index();
CREATE TRIGGER labels_of_changed AFTER UPDATE ON allocation_booking
  FOR EACH ROW WHEN (OLD.labels IS DISTINCT FROM NEW.labels)
  EXECUTE FUNCTION allocation_labels_index();
""" + protect("allocation_bookinglabel", grants="SELECT, INSERT, DELETE")

GROUPS = (
    protect("allocation_series", grants="SELECT, INSERT, UPDATE (failed, rule, first, keeps_end, skipped)")
    + tenant_key("allocation_series", "project_id", "tenants_project")
    + protect("allocation_bookingarray", grants="SELECT, INSERT, UPDATE")
    + tenant_key("allocation_bookingarray", "project_id", "tenants_project")
    + campaign_key("allocation_bookingarray")
    + protect("allocation_dependency", grants="SELECT, INSERT")
    + tenant_key("allocation_dependency", "booking_id", "allocation_booking")
    + tenant_key("allocation_dependency", "parent_id", "allocation_booking")
)

# A receipt of a moved start is never changed, and names no booking of another tenant.
CHANGES = (
    protect("allocation_bookingchange", grants="SELECT, INSERT, UPDATE")
    + tenant_key("allocation_bookingchange", "booking_id", "allocation_booking")
    + tenant_key("allocation_bookingchange", "undoes_id", "allocation_bookingchange")
    + protect("allocation_movedstart", grants="SELECT")
    + tenant_key("allocation_movedstart", "booking_id", "allocation_booking")
    + tenant_key("allocation_movedstart", "claimant_id", "allocation_booking")
    + append_only("allocation_movedstart")
)

# A feed is found by the hash of its address, before a tenant is known.
FEEDS = (
    protect("allocation_calendarfeed", grants="SELECT, INSERT, UPDATE (revoked)")
    + tenant_key("allocation_calendarfeed", "project_id", "tenants_project")
    + tenant_key("allocation_calendarfeed", "made_with_id", "tenants_apitoken")
    + """
CREATE FUNCTION portal_feed(wanted bytea, at timestamptz)
RETURNS TABLE (owner_id bigint, tenant_slug text, feed_project_id uuid, gpu_class text,
               tenant_id uuid, project_id uuid, role text, person text, time_zone text)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT f.owner_id, t.slug, f.project_id, f.gpu_class_id,
         m.tenant_id, m.project_id, m.role, m.person, m.time_zone
  FROM allocation_calendarfeed f
  JOIN tenants_tenant t ON t.id = f.tenant_id
  JOIN LATERAL portal_memberships(f.owner_id) m ON m.tenant_id = f.tenant_id
  WHERE f.digest = wanted AND f.revoked IS NULL
    AND (f.made_with_id IS NULL OR portal_token_lives(f.made_with_id, at))
$$;
CREATE FUNCTION portal_feed(wanted bytea)
RETURNS TABLE (owner_id bigint, tenant_slug text, feed_project_id uuid, gpu_class text,
               tenant_id uuid, project_id uuid, role text, person text, time_zone text)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT * FROM portal_feed(wanted, statement_timestamp())
$$;
"""
    + callable_by("portal_feed(bytea)", "portal_feed(bytea, timestamptz)")
)

# Processes read the clock at different times before they write. A booking's rows are written one
# after the other, as their writers hold its lock.
IN_ORDER = """
CREATE FUNCTION allocation_event_in_order() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  NEW.at := greatest(NEW.at, (
    SELECT max(e.at) FROM allocation_bookingevent e
    WHERE e.tenant_id = NEW.tenant_id AND e.booking_id = NEW.booking_id));
  RETURN NEW;
END $$;
CREATE TRIGGER event_in_order BEFORE INSERT ON allocation_bookingevent
  FOR EACH ROW EXECUTE FUNCTION allocation_event_in_order();
"""

SQL = BOOKINGS + STATES + LABELS + GROUPS + CHANGES + FEEDS + IN_ORDER
