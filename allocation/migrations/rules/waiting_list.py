"""The waiting list: entries and offers of places."""

from tenants.platform.wall import protect, tenant_key

# Owners change what their bookings on the waiting list wait for.
WALL = (
    protect(
        "allocation_waitentry",
        grants="SELECT, INSERT, UPDATE (slot, windows, expired_count, quiet_until, until, cost,"
        " any_of, is_met)",
    )
    + tenant_key("allocation_waitentry", "booking_id", "allocation_booking")
    + protect("allocation_waitoffer", grants="SELECT, UPDATE (state, decided_at, decided_by_id)")
    + tenant_key("allocation_waitoffer", "booking_id", "allocation_booking")
)

# The step by which a booking leaves the list closes its entry. A booking that got a place meets it.
ENTRIES = """
CREATE FUNCTION allocation_close_wait_entry() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  UPDATE allocation_waitentry SET slot = NULL, is_met = (NEW.state = 'scheduled')
    WHERE tenant_id = NEW.tenant_id AND booking_id = NEW.id AND slot IS NOT NULL;
  RETURN NULL;
END $$;
CREATE TRIGGER close_wait_entry AFTER UPDATE OF state ON allocation_booking FOR EACH ROW
  WHEN (NEW.waitlist <> ''
    AND NEW.state NOT IN ('requested', 'awaiting_approval', 'waitlisted', 'offered'))
  EXECUTE FUNCTION allocation_close_wait_entry();
"""

# A place that was offered becomes a booking by an acceptance in time, and is on the calendar as
# long as the offer is open.
OFFERS = """
CREATE FUNCTION allocation_check_accepted() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM allocation_waitoffer o WHERE o.tenant_id = NEW.tenant_id
      AND o.booking_id = NEW.id AND o.state = 'accepted' AND o.starts = NEW.planned_starts) THEN
    RAISE EXCEPTION 'nobody has accepted this place in time'
      USING ERRCODE = '23514', CONSTRAINT = 'booking_offer_accepted';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_accepted BEFORE UPDATE OF state ON allocation_booking FOR EACH ROW
  WHEN (OLD.state = 'offered' AND NEW.state = 'scheduled')
  EXECUTE FUNCTION allocation_check_accepted();
CREATE FUNCTION allocation_check_wait_offer() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF OLD.state <> 'open' THEN
    RAISE EXCEPTION 'an offer is answered once'
      USING ERRCODE = '23514', CONSTRAINT = 'wait_offer_answered_once';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_wait_offer BEFORE UPDATE ON allocation_waitoffer
  FOR EACH ROW EXECUTE FUNCTION allocation_check_wait_offer();
CREATE FUNCTION allocation_check_offered() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  whose uuid := CASE WHEN TG_TABLE_NAME = 'allocation_booking' THEN NEW.id
                ELSE (to_jsonb(NEW) ->> 'booking_id')::uuid END;
BEGIN
  IF EXISTS (SELECT FROM allocation_booking b WHERE b.id = whose AND b.state = 'offered')
     <> EXISTS (SELECT FROM allocation_waitoffer o WHERE o.booking_id = whose AND o.state = 'open')
  THEN
    RAISE EXCEPTION 'a booking whose place is offered has exactly one open offer'
      USING ERRCODE = '23514', CONSTRAINT = 'booking_offered_once';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER offered_once AFTER INSERT OR UPDATE ON allocation_waitoffer
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION allocation_check_offered();
CREATE CONSTRAINT TRIGGER offered_once_moved AFTER UPDATE OF state ON allocation_booking
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  WHEN (NEW.state <> OLD.state AND 'offered' IN (NEW.state, OLD.state))
  EXECUTE FUNCTION allocation_check_offered();
"""

SQL = WALL + ENTRIES + OFFERS
