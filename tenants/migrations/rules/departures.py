"""Departures are written by the database, so that no program that takes a right forgets one."""

from tenants.platform.wall import callable_by, protect, tenant_key

TRIGGERS = """
CREATE FUNCTION portal_departure_of_member() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  INSERT INTO tenants_departure (tenant_id, user_id, project_id, is_seen)
    VALUES (OLD.tenant_id, OLD.user_id, OLD.project_id, false);
  RETURN NULL;
END $$;
CREATE TRIGGER departed AFTER DELETE ON tenants_membership
  FOR EACH ROW EXECUTE FUNCTION portal_departure_of_member();
CREATE TRIGGER departed_with_role AFTER UPDATE OF role ON tenants_membership
  FOR EACH ROW WHEN (NEW.role = 'viewer' AND OLD.role <> 'viewer')
  EXECUTE FUNCTION portal_departure_of_member();
CREATE FUNCTION portal_departure_of_account() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  INSERT INTO tenants_departure (tenant_id, user_id, is_seen)
    SELECT DISTINCT m.tenant_id, m.user_id, false FROM tenants_membership m WHERE m.user_id = OLD.id;
  RETURN NULL;
END $$;
CREATE TRIGGER departed AFTER UPDATE OF is_active ON tenants_user
  FOR EACH ROW WHEN (OLD.is_active AND NOT NEW.is_active)
  EXECUTE FUNCTION portal_departure_of_account();
CREATE FUNCTION portal_departure_of_known() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  INSERT INTO tenants_departure (tenant_id, user_id, is_seen)
    VALUES (OLD.tenant_id, OLD.user_id, false);
  RETURN NULL;
END $$;
CREATE TRIGGER departed AFTER UPDATE OF disabled ON tenants_knownperson
  FOR EACH ROW WHEN (OLD.disabled IS NULL AND NEW.disabled IS NOT NULL)
  EXECUTE FUNCTION portal_departure_of_known();
CREATE FUNCTION portal_departure_of_project() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  INSERT INTO tenants_departure (tenant_id, project_id, is_seen)
    VALUES (OLD.tenant_id, OLD.id, false);
  RETURN NULL;
END $$;
CREATE TRIGGER departed AFTER UPDATE OF is_open ON tenants_project
  FOR EACH ROW WHEN (OLD.is_open AND NOT NEW.is_open)
  EXECUTE FUNCTION portal_departure_of_project();
CREATE FUNCTION portal_departure_of_tenant() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  INSERT INTO tenants_departure (tenant_id, is_seen) VALUES (OLD.id, false);
  RETURN NULL;
END $$;
CREATE TRIGGER departed AFTER UPDATE OF is_open ON tenants_tenant
  FOR EACH ROW WHEN (OLD.is_open AND NOT NEW.is_open)
  EXECUTE FUNCTION portal_departure_of_tenant();
"""

SQL = (
    protect("tenants_departure", grants="")
    + tenant_key("tenants_departure", "project_id", "tenants_project", cascade=True)
    + TRIGGERS
    + callable_by(
        "portal_departure_of_member()",
        "portal_departure_of_account()",
        "portal_departure_of_known()",
        "portal_departure_of_project()",
        "portal_departure_of_tenant()",
        roles="",
    )
)
