"""Hand-overs of bookings, without which a booking keeps its owner."""

from tenants.platform.wall import no_right, protect, tenant_key, updates_only

_TABLE = "allocation_handover"
# People offer and answer; workers let offers expire.
RIGHTS = (
    protect(_TABLE, grants="SELECT, INSERT, UPDATE (state, answered, answered_by_id)")
    + tenant_key(_TABLE, "booking_id", "allocation_booking")
    + tenant_key(_TABLE, "made_with_id", "tenants_apitoken")
    + no_right("DELETE", _TABLE)
    + updates_only({_TABLE: "state, answered, answered_by_id"}, roles="portal_system")
    + no_right("INSERT, UPDATE", _TABLE, roles="portal_ops")
    + no_right("INSERT", _TABLE, roles="portal_system")
)

# An offer is of the owner, is answered once, and remembers the transaction of its acceptance.
OFFERS = """
CREATE FUNCTION allocation_check_hand_over() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    IF NEW.state <> 'open' THEN
      RAISE EXCEPTION 'a hand-over begins as open'
        USING ERRCODE = '23514', CONSTRAINT = 'hand_over_begins_open';
    END IF;
    IF NOT EXISTS (SELECT FROM allocation_booking b WHERE b.tenant_id = NEW.tenant_id
        AND b.id = NEW.booking_id AND b.owner_id = NEW.giver_id) THEN
      RAISE EXCEPTION 'a booking is handed over by its owner'
        USING ERRCODE = '23514', CONSTRAINT = 'hand_over_by_owner';
    END IF;
  ELSIF OLD.state <> 'open' THEN
    RAISE EXCEPTION 'a hand-over is answered once'
      USING ERRCODE = '23514', CONSTRAINT = 'hand_over_answered_once';
  END IF;
  NEW.accepted_in := CASE WHEN NEW.state = 'accepted' THEN txid_current() END;
  RETURN NEW;
END $$;
CREATE TRIGGER check_hand_over BEFORE INSERT OR UPDATE ON allocation_handover
  FOR EACH ROW EXECUTE FUNCTION allocation_check_hand_over();
REVOKE EXECUTE ON FUNCTION allocation_check_hand_over() FROM PUBLIC;
"""

# Tenant and project never change, and the owner only in the transaction that accepts a hand-over.
OWNER = """
CREATE FUNCTION portal_booking_keeps_owner() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  IF (OLD.tenant_id, OLD.project_id) IS DISTINCT FROM (NEW.tenant_id, NEW.project_id)
    OR OLD.ready_at IS NOT NULL OR OLD.state NOT IN ('requested', 'queued', 'scheduled')
    OR NOT EXISTS (
      SELECT FROM public.allocation_handover h WHERE h.tenant_id = OLD.tenant_id
      AND h.booking_id = OLD.id AND h.giver_id = OLD.owner_id AND h.taker_id = NEW.owner_id
      AND h.state = 'accepted' AND h.accepted_in = txid_current()) THEN
    RAISE EXCEPTION 'a booking keeps its owner and project' USING ERRCODE = '42501';
  END IF;
  RETURN NEW;
END $$;
-- An update that names none of the columns, as almost all are, does not call it.
CREATE TRIGGER keeps_owner BEFORE UPDATE OF tenant_id, project_id, owner_id ON allocation_booking
  FOR EACH ROW WHEN (
    (OLD.tenant_id, OLD.project_id, OLD.owner_id) IS DISTINCT FROM
    (NEW.tenant_id, NEW.project_id, NEW.owner_id))
  EXECUTE FUNCTION portal_booking_keeps_owner();
REVOKE EXECUTE ON FUNCTION portal_booking_keeps_owner() FROM PUBLIC;
"""

SQL = RIGHTS + OFFERS + OWNER
