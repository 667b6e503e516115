"""Approvals: rules, requests, what people decided, stand-ins and counter-offers."""

from tenants.platform.reference import reference_of_tenants
from tenants.platform.wall import append_only, protect, tenant_key

# Rules are changed in place, each change with a new version.
_RULE = (
    "project_id, name, min_cost, min_gpu_hours, min_gpus, min_seconds, classes, tiers, hours_begin, hours_end,"
    " weekdays, zone, is_first, steps, version, retired, retired_by_id"
)
WALL = (
    protect("allocation_approvalrule", grants=f"SELECT, INSERT, UPDATE ({_RULE})")
    + tenant_key("allocation_approvalrule", "project_id", "tenants_project")
    + reference_of_tenants("allocation_approvalrule")
    + protect(
        "allocation_approval",
        grants="SELECT, INSERT, UPDATE (state, step, steps, decide_by, decided,"
        " decided_by_id, reason, digest, covers)",
    )
    + tenant_key("allocation_approval", "project_id", "tenants_project")
    + tenant_key("allocation_approval", "booking_id", "allocation_booking")
    + tenant_key("allocation_approval", "series_id", "allocation_series")
    + tenant_key("allocation_approval", "change_id", "allocation_bookingchange")
    + protect("allocation_approvalact", grants="SELECT, INSERT")
    + tenant_key("allocation_approvalact", "approval_id", "allocation_approval")
    + append_only("allocation_approvalact")
    + protect("allocation_standin", grants="SELECT, INSERT, UPDATE (ended, ended_by_id)")
    + tenant_key("allocation_standin", "project_id", "tenants_project")
    + tenant_key("allocation_standin", "made_with_id", "tenants_apitoken")
    + protect("allocation_counteroffer", grants="SELECT, INSERT, UPDATE (state, answered)")
    + tenant_key("allocation_counteroffer", "approval_id", "allocation_approval")
)

# A request is decided once, by another person. A digest changes only while the request is open, and
# the one before stays known.
REQUESTS = """
CREATE FUNCTION allocation_check_approval() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    IF NEW.state <> 'open' AND current_user = 'portal_web' THEN
      RAISE EXCEPTION 'an approval begins as open'
        USING ERRCODE = '23514', CONSTRAINT = 'approval_begins_open';
    END IF;
  ELSIF OLD.state <> 'open' THEN
    RAISE EXCEPTION 'an approval is decided once'
      USING ERRCODE = '23514', CONSTRAINT = 'approval_decided_once';
  ELSIF NEW.state = 'approved' AND NOT EXISTS (
      SELECT FROM allocation_approvalact act WHERE act.tenant_id = NEW.tenant_id
      AND act.approval_id = NEW.id AND act.person_id = NEW.decided_by_id
      AND act.verdict = 'approve') THEN
    RAISE EXCEPTION 'an approval needs the act of a person'
      USING ERRCODE = '23514', CONSTRAINT = 'approval_has_an_act';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_approval BEFORE INSERT OR UPDATE ON allocation_approval
  FOR EACH ROW EXECUTE FUNCTION allocation_check_approval();
CREATE FUNCTION allocation_check_digest() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF OLD.state <> 'open' OR NOT NEW.covers @> (OLD.covers || to_jsonb(OLD.digest)) THEN
    RAISE EXCEPTION 'a request keeps the digests that it had'
      USING ERRCODE = '23514', CONSTRAINT = 'approval_digests_kept';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_digest BEFORE UPDATE OF digest, covers ON allocation_approval FOR EACH ROW
  WHEN (NEW.digest <> OLD.digest OR NEW.covers <> OLD.covers)
  EXECUTE FUNCTION allocation_check_digest();
CREATE FUNCTION allocation_check_counter() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF OLD.state <> 'open' THEN
    RAISE EXCEPTION 'a counter-offer is answered once'
      USING ERRCODE = '23514', CONSTRAINT = 'counter_answered_once';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_counter BEFORE UPDATE ON allocation_counteroffer
  FOR EACH ROW EXECUTE FUNCTION allocation_check_counter();
"""

# Who stands in for an approver decides neither their own request nor that of the approver, and
# nobody decides two steps, not even through another person.
ACTS = """
CREATE FUNCTION allocation_check_approval_act() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF EXISTS (SELECT FROM allocation_approval a WHERE a.tenant_id = NEW.tenant_id
             AND a.id = NEW.approval_id AND a.asker_id IN (NEW.person_id, NEW.principal_id)) THEN
    RAISE EXCEPTION 'nobody decides their own request'
      USING ERRCODE = '23514', CONSTRAINT = 'approval_act_by_another';
  END IF;
  IF EXISTS (SELECT FROM allocation_approvalact act WHERE act.tenant_id = NEW.tenant_id
             AND act.approval_id = NEW.approval_id
             AND (act.person_id = NEW.principal_id OR act.principal_id = NEW.person_id
                  OR act.principal_id = NEW.principal_id)) THEN
    RAISE EXCEPTION 'nobody decides two steps'
      USING ERRCODE = '23514', CONSTRAINT = 'approval_act_once_for_all';
  END IF;
  IF NEW.principal_id IS NOT NULL AND NOT EXISTS (
      SELECT FROM allocation_standin s WHERE s.tenant_id = NEW.tenant_id
      AND s.person_id = NEW.person_id AND s.approver_id = NEW.principal_id
      AND s.starts <= NEW.at AND s.until > NEW.at AND s.ended IS NULL
      AND (s.made_with_id IS NULL OR portal_token_lives(s.made_with_id, NEW.at))) THEN
    RAISE EXCEPTION 'nobody has named this person'
      USING ERRCODE = '23514', CONSTRAINT = 'approval_act_named';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_approval_act BEFORE INSERT ON allocation_approvalact
  FOR EACH ROW EXECUTE FUNCTION allocation_check_approval_act();
"""

# A booking is approved in time, and exactly as it was decided. What a booking awaits is the request
# for itself; those of its changes have one of their own.
BOOKINGS = """
CREATE FUNCTION allocation_check_approved() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM allocation_approval a WHERE a.tenant_id = NEW.tenant_id
      AND a.booking_id = NEW.id AND a.state = 'approved' AND a.digest = NEW.approved_hash) THEN
    RAISE EXCEPTION 'the booking is not approved as it is'
      USING ERRCODE = '23514', CONSTRAINT = 'booking_approved';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_approved BEFORE UPDATE OF state ON allocation_booking FOR EACH ROW
  WHEN (OLD.state = 'awaiting_approval' AND NEW.state = 'requested')
  EXECUTE FUNCTION allocation_check_approved();
CREATE FUNCTION allocation_check_awaiting() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  whose uuid := CASE WHEN TG_TABLE_NAME = 'allocation_booking' THEN NEW.id
                ELSE (to_jsonb(NEW) ->> 'booking_id')::uuid END;
BEGIN
  IF EXISTS (SELECT FROM allocation_booking b WHERE b.id = whose AND b.state = 'awaiting_approval')
     <> EXISTS (SELECT FROM allocation_approval a
                WHERE a.booking_id = whose AND a.change_id IS NULL AND a.state = 'open')
  THEN
    RAISE EXCEPTION 'a booking that awaits an approval has exactly one open request'
      USING ERRCODE = '23514', CONSTRAINT = 'booking_awaits_one';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER awaits_one AFTER INSERT OR UPDATE ON allocation_approval
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION allocation_check_awaiting();
CREATE CONSTRAINT TRIGGER awaits_one_moved AFTER UPDATE OF state ON allocation_booking
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  WHEN (NEW.state <> OLD.state AND 'awaiting_approval' IN (NEW.state, OLD.state))
  EXECUTE FUNCTION allocation_check_awaiting();
"""

# A change waits for an approval as a booking does, and is granted with one only.
CHANGES = """
CREATE FUNCTION allocation_check_change_approved() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF NEW.state IN ('asked', 'changed') AND NOT EXISTS (
      SELECT FROM allocation_approval a WHERE a.tenant_id = NEW.tenant_id
      AND a.change_id = NEW.id AND a.state = 'approved') THEN
    RAISE EXCEPTION 'the change is not approved'
      USING ERRCODE = '23514', CONSTRAINT = 'change_approved';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_approved BEFORE UPDATE OF state ON allocation_bookingchange FOR EACH ROW
  WHEN (OLD.state = 'awaiting_approval') EXECUTE FUNCTION allocation_check_change_approved();
CREATE FUNCTION allocation_check_change_awaiting() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  whose uuid := (to_jsonb(NEW) ->> CASE WHEN TG_TABLE_NAME = 'allocation_bookingchange'
                                   THEN 'id' ELSE 'change_id' END)::uuid;
BEGIN
  IF EXISTS (SELECT FROM allocation_bookingchange c
             WHERE c.id = whose AND c.state = 'awaiting_approval')
     <> EXISTS (SELECT FROM allocation_approval a WHERE a.change_id = whose AND a.state = 'open')
  THEN
    RAISE EXCEPTION 'a change that awaits an approval has exactly one open request'
      USING ERRCODE = '23514', CONSTRAINT = 'change_awaits_one';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER change_awaits_one AFTER INSERT OR UPDATE ON allocation_approval
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.change_id IS NOT NULL)
  EXECUTE FUNCTION allocation_check_change_awaiting();
CREATE CONSTRAINT TRIGGER awaits_one AFTER INSERT OR UPDATE OF state ON allocation_bookingchange
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  EXECUTE FUNCTION allocation_check_change_awaiting();
"""

SQL = WALL + REQUESTS + ACTS + BOOKINGS + CHANGES
