"""Roles of operators: who reads and writes them, and that a site always has an operator who may do all."""

from tenants.platform.wall import callable_by, no_right, system_table, updates_only

# Any process asks for the roles behind a credential that it has, and for nobody else's.
RIGHTS = (
    system_table("tenants_operatorrole")
    + no_right("DELETE", "tenants_operatorrole")
    + no_right("INSERT", "tenants_operatorrole", roles="portal_system")
    + updates_only({"tenants_operatorrole": ""}, "portal_system")
    + updates_only({"tenants_operatorrole": "since, approved_by_id, ended, ended_by_id"}, "portal_ops")
    + """
CREATE FUNCTION portal_operator_roles(credential bytea, at timestamptz)
RETURNS TABLE (role text, names text[])
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT r.role::text, r.names::text[]
  FROM portal_holder(credential, at) h
  JOIN tenants_user u ON u.id = h.user_id AND u.is_staff
  JOIN tenants_operatorrole r ON r.user_id = u.id AND r.since IS NOT NULL AND r.ended IS NULL
  ORDER BY r.role
$$;
"""
    + callable_by("portal_operator_roles(bytea, timestamptz)")
)

# Two operators who take each other's role at the same time wait for each other at the lock.
SITE = """
CREATE FUNCTION portal_site_operators() RETURNS SETOF bigint
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT u.id FROM tenants_operatorrole r JOIN tenants_user u ON u.id = r.user_id
  WHERE r.role = 'site' AND r.since IS NOT NULL AND r.ended IS NULL AND u.is_active AND u.is_staff
$$;
CREATE FUNCTION portal_last_site_operator() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('portal_site_operators'));
  IF NOT EXISTS (SELECT FROM portal_site_operators()) THEN
    RAISE EXCEPTION 'operator_last_site: a site needs an operator who may do everything'
      USING ERRCODE = '23514', CONSTRAINT = 'operator_last_site';
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER last_site AFTER UPDATE ON tenants_operatorrole FOR EACH ROW
  WHEN (OLD.role = 'site' AND OLD.ended IS NULL AND OLD.since IS NOT NULL AND NEW.ended IS NOT NULL)
  EXECUTE FUNCTION portal_last_site_operator();
CREATE FUNCTION portal_site_operator_stays() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT FROM tenants_operatorrole r WHERE r.user_id = NEW.id AND r.role = 'site'
             AND r.since IS NOT NULL AND r.ended IS NULL) THEN
    PERFORM pg_advisory_xact_lock(hashtext('portal_site_operators'));
    IF NOT EXISTS (SELECT FROM portal_site_operators()) THEN
      RAISE EXCEPTION 'operator_last_site: a site needs an operator who may do everything'
        USING ERRCODE = '23514', CONSTRAINT = 'operator_last_site';
    END IF;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER last_site AFTER UPDATE OF is_active, is_staff ON tenants_user FOR EACH ROW
  WHEN (OLD.is_active AND OLD.is_staff AND NOT (NEW.is_active AND NEW.is_staff))
  EXECUTE FUNCTION portal_site_operator_stays();
CREATE FUNCTION portal_operator_role_kept() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF TG_OP = 'UPDATE' AND OLD.ended IS NOT NULL THEN
    RAISE EXCEPTION 'operator_role_over: an ended role never changes' USING ERRCODE = '23514';
  END IF;
  IF NEW.role = 'site' AND NEW.since IS NOT NULL AND NEW.ended IS NULL AND NEW.approved_by_id IS NULL
    AND NEW.created_by_id IS NOT NULL
    AND EXISTS (SELECT FROM portal_site_operators() o WHERE o NOT IN (NEW.created_by_id, NEW.user_id))
  THEN
    RAISE EXCEPTION 'operator_role_second_person: another operator approves the role'
      USING ERRCODE = '23514', CONSTRAINT = 'operator_role_second_person';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER kept BEFORE INSERT OR UPDATE ON tenants_operatorrole FOR EACH ROW
  EXECUTE FUNCTION portal_operator_role_kept();
""" + callable_by(
    "portal_site_operators()",
    "portal_last_site_operator()",
    "portal_site_operator_stays()",
    "portal_operator_role_kept()",
    roles="",
)

SQL = RIGHTS + SITE
