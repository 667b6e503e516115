"""What limits bookings besides quotas: tier versions, overrides, stops and requirements."""

from tenants.platform.reference import reference_of_all, reference_of_tenants
from tenants.platform.wall import protect, tenant_key


def open_if_of_all(table: str, grants: str) -> str:
    """SQL for a table whose rows without a tenant hold for all; `grants` are the web's rights.

    CASE, because pages without a tenant, such as the sign-in, read the rows of all:
    portal_tenant() would raise there.
    """
    return f"""
ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
CREATE POLICY wall ON {table}
  USING (CASE
    WHEN tenant_id IS NULL THEN true
    WHEN coalesce(current_setting('portal.tenant', true), '') = '' THEN false
    ELSE tenant_id = (SELECT portal_tenant()) END)
  WITH CHECK (tenant_id = (SELECT portal_tenant()));
GRANT {grants} ON {table} TO portal_web;
GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO portal_system, portal_ops;
"""


# A version of a tier that counts for a booking stays, and so does a withdrawal.
TIER_VERSIONS = (
    protect("allocation_tierversion", grants="SELECT, INSERT, UPDATE (withdrawn)")
    + reference_of_tenants("allocation_tierversion")
    + """
ALTER TABLE allocation_tierversion ADD CONSTRAINT tier_version_lists CHECK (
  jsonb_typeof(projects) = 'array' AND jsonb_typeof(classes) = 'array'
  AND jsonb_typeof(start_hours) = 'array' AND zone <> '');
CREATE FUNCTION allocation_check_tier_version() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF OLD.withdrawn IS NOT NULL AND NEW.withdrawn IS DISTINCT FROM OLD.withdrawn THEN
    RAISE EXCEPTION 'a withdrawal is final'
      USING ERRCODE = '23514', CONSTRAINT = 'tier_version_withdrawn_once';
  END IF;
  IF NEW.withdrawn IS NOT NULL AND OLD.withdrawn IS NULL AND EXISTS (
      SELECT FROM allocation_booking
      WHERE tenant_id = OLD.tenant_id AND tier_id = OLD.tier_id AND submitted >= OLD.starts) THEN
    RAISE EXCEPTION 'bookings were asked for by this version'
      USING ERRCODE = '23514', CONSTRAINT = 'tier_version_in_use';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_tier_version BEFORE UPDATE ON allocation_tierversion
  FOR EACH ROW EXECUTE FUNCTION allocation_check_tier_version();
"""
)

# A request is decided once, by somebody else than who asked; what was granted only ends, or finds
# its booking.
OVERRIDES = (
    protect(
        "allocation_override",
        grants="SELECT, INSERT, UPDATE (amount, is_once, booking_id, starts, until, state,"
        " decided, decided_by_id, answer, ended)",
    )
    + tenant_key("allocation_override", "project_id", "tenants_project")
    + tenant_key("allocation_override", "booking_id", "allocation_booking")
    + tenant_key("allocation_override", "budget_id", "billing_budget")
    + """
CREATE FUNCTION allocation_check_override() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF TG_OP = 'UPDATE' AND NEW.state <> OLD.state AND NOT (
      OLD.state = 'asked' AND NEW.state IN ('granted', 'declined', 'withdrawn')
      OR OLD.state = 'granted' AND NEW.state = 'ended') THEN
    RAISE EXCEPTION 'an override is decided once'
      USING ERRCODE = '23514', CONSTRAINT = 'override_decided_once';
  END IF;
  IF TG_OP = 'UPDATE' AND OLD.state <> 'asked' AND (
      NEW.amount, NEW.starts, NEW.until, NEW.is_once, NEW.decided_by_id)
      IS DISTINCT FROM (OLD.amount, OLD.starts, OLD.until, OLD.is_once, OLD.decided_by_id) THEN
    RAISE EXCEPTION 'an override never changes after its decision'
      USING ERRCODE = '23514', CONSTRAINT = 'override_never_changes';
  END IF;
  IF TG_OP = 'UPDATE' AND OLD.booking_id IS NOT NULL
      AND NEW.booking_id IS DISTINCT FROM OLD.booking_id THEN
    RAISE EXCEPTION 'an override is used by one booking'
      USING ERRCODE = '23514', CONSTRAINT = 'override_used_once';
  END IF;
  IF NEW.decider = 'operator' AND NEW.state IN ('granted', 'declined')
      AND (TG_OP = 'INSERT' OR OLD.state = 'asked') AND current_user = 'portal_web' THEN
    RAISE EXCEPTION 'only an operator decides about a limit of the platform'
      USING ERRCODE = '23514', CONSTRAINT = 'override_operators_decide';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_override BEFORE INSERT OR UPDATE ON allocation_override
  FOR EACH ROW EXECUTE FUNCTION allocation_check_override();
"""
)

# Operators stop new work; a tenant reads its own stops and those of all.
STOPS = (
    open_if_of_all("allocation_stop", "SELECT")
    + tenant_key("allocation_stop", "booking_id", "allocation_booking")
    + reference_of_all("allocation_stop")
)

# A requirement of all tenants has no tenant, so a key with tenant_id can't guard the reference of
# an acceptance. Erasing a person keeps that a text was accepted, and not from where.
REQUIREMENTS = (
    open_if_of_all("allocation_requirement", "SELECT, INSERT, UPDATE (ended)")
    + reference_of_all("allocation_requirement")
    + protect("allocation_acceptance", grants="SELECT, INSERT")
    + """
CREATE FUNCTION portal_acceptance_own() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM allocation_requirement r WHERE r.id = NEW.requirement_id
                 AND coalesce(r.tenant_id, NEW.tenant_id) = NEW.tenant_id) THEN
    RAISE EXCEPTION 'no such requirement of the tenant' USING ERRCODE = '23503';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER acceptance_own BEFORE INSERT OR UPDATE OF requirement_id, tenant_id
  ON allocation_acceptance FOR EACH ROW EXECUTE FUNCTION portal_acceptance_own();
CREATE FUNCTION portal_acceptance_forget() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  UPDATE allocation_acceptance SET address = NULL WHERE user_id = NEW.id;
  RETURN NULL;
END $$;
CREATE TRIGGER acceptances_forget AFTER UPDATE OF username ON tenants_user FOR EACH ROW
  WHEN (NEW.username = 'erased-' || NEW.id) EXECUTE FUNCTION portal_acceptance_forget();
"""
)

SQL = TIER_VERSIONS + OVERRIDES + STOPS + REQUIREMENTS
