"""People, their memberships, and service accounts."""

from tenants.platform.wall import callable_by, protect, system_table, tenant_key

# No web request makes an operator: `is_staff` is not among the columns. A tenant sees the people
# who are or were its members, and operators who acted there.
USERS = (
    system_table("tenants_user_groups")
    + system_table("tenants_user_user_permissions")
    + system_table("tenants_user")
    + """
GRANT SELECT, UPDATE (time_zone, mails) ON tenants_user TO portal_web;
ALTER TABLE tenants_user ENABLE ROW LEVEL SECURITY;
ALTER TABLE tenants_user FORCE ROW LEVEL SECURITY;
CREATE POLICY wall ON tenants_user
  USING (id IN (SELECT k.user_id FROM tenants_knownperson k
                WHERE k.tenant_id = (SELECT portal_tenant())))
  WITH CHECK (id IN (SELECT k.user_id FROM tenants_knownperson k
                     WHERE k.tenant_id = (SELECT portal_tenant())));
"""
)

# A web process adds nobody: it can't insert memberships, and its log entries add no known person.
KNOWN_PEOPLE = (
    protect("tenants_knownperson", grants="SELECT, UPDATE (disabled)")
    + """
CREATE FUNCTION portal_known_by_membership() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  INSERT INTO tenants_knownperson (tenant_id, user_id) VALUES (NEW.tenant_id, NEW.user_id)
    ON CONFLICT DO NOTHING;
  RETURN NULL;
END $$;
CREATE TRIGGER known AFTER INSERT ON tenants_membership
  FOR EACH ROW EXECUTE FUNCTION portal_known_by_membership();
CREATE FUNCTION portal_known_by_act() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  INSERT INTO tenants_knownperson (tenant_id, user_id) VALUES (NEW.tenant_id, NEW.actor_id)
    ON CONFLICT DO NOTHING;
  RETURN NULL;
END $$;
CREATE TRIGGER known AFTER INSERT ON tenants_auditentry FOR EACH ROW
  WHEN (NEW.tenant_id IS NOT NULL AND NEW.actor_id IS NOT NULL AND current_user <> 'portal_web')
  EXECUTE FUNCTION portal_known_by_act();
"""
)

# Everything that asks for somebody's memberships, from requests to sockets, goes through this
# function. It answers for a number, which a web process could count through, so none may call it.
MEMBERSHIPS = (
    protect("tenants_membership", grants="SELECT, UPDATE (role), DELETE")
    + tenant_key("tenants_membership", "project_id", "tenants_project")
    + """
CREATE FUNCTION portal_memberships(member bigint)
RETURNS TABLE (tenant_id uuid, tenant_slug text, tenant_name text, project_id uuid, role text,
               person text, time_zone text)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT t.id, t.slug, t.name, m.project_id, m.role,
         coalesce(nullif(trim(u.first_name || ' ' || u.last_name), ''), u.username), u.time_zone
  FROM tenants_membership m
  JOIN tenants_tenant t ON t.id = m.tenant_id AND t.is_open
  JOIN tenants_user u ON u.id = m.user_id AND u.is_active
  WHERE m.user_id = member AND NOT EXISTS (
    SELECT FROM tenants_knownperson k
    WHERE k.tenant_id = m.tenant_id AND k.user_id = m.user_id AND k.disabled IS NOT NULL)
$$;
"""
    + callable_by("portal_memberships(bigint)", roles="portal_system, portal_ops")
)

# The only account that a web process creates without an invitation: it has no password, and a role
# in one project, whose lead or tenant admin asks. Returns the service account, or nothing.
SERVICE_ACCOUNTS = (
    protect("tenants_serviceaccount", grants="SELECT, UPDATE (closed)")
    + tenant_key("tenants_serviceaccount", "project_id", "tenants_project")
    + """
CREATE FUNCTION portal_service_account_create(
  credential bytea, at timestamptz, wanted uuid, called text, sign_in_name text, given text)
RETURNS uuid
VOLATILE LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  person bigint;
  home uuid;
  made bigint;
  account uuid := gen_random_uuid();
  tried text := sign_in_name;
  number int := 1;
BEGIN
  SELECT h.user_id, p.tenant_id INTO person, home
    FROM portal_holder(credential, at) h
    JOIN tenants_project p ON p.id = wanted AND p.is_open AND p.tenant_id = portal_tenant()
    WHERE coalesce(h.tenant_id, p.tenant_id) = p.tenant_id AND EXISTS (
      SELECT FROM portal_memberships(h.user_id) m
      WHERE m.tenant_id = p.tenant_id
        AND (m.role = 'tenant_admin' OR (m.role = 'lead' AND m.project_id = p.id)));
  IF NOT FOUND OR given NOT IN ('viewer', 'researcher') THEN
    RETURN NULL;
  END IF;
  WHILE made IS NULL LOOP
    IF NOT EXISTS (SELECT FROM tenants_user u WHERE lower(u.username) = lower(tried)) THEN
      INSERT INTO tenants_user (username, first_name, last_name, email, is_staff, is_superuser,
                                is_active, date_joined, time_zone, mails)
        VALUES (tried, called, '', '', false, false, true, at, 'UTC', 'none')
        ON CONFLICT (username) DO NOTHING RETURNING id INTO made;
    END IF;
    number := number + 1;
    tried := number || '-' || sign_in_name;
  END LOOP;
  INSERT INTO tenants_serviceaccount
      (id, tenant_id, project_id, user_id, name, created, created_by_id)
    VALUES (account, home, wanted, made, called, at, person);
  INSERT INTO tenants_membership (id, tenant_id, project_id, user_id, role)
    VALUES (gen_random_uuid(), home, wanted, made, given);
  RETURN account;
END $$;
"""
    + callable_by("portal_service_account_create(bytea, timestamptz, uuid, text, text, text)")
    + """
CREATE FUNCTION portal_service_account_place() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF EXISTS (SELECT FROM tenants_serviceaccount s
             WHERE s.user_id = NEW.user_id AND (s.closed IS NOT NULL
               OR (s.tenant_id, s.project_id) IS DISTINCT FROM (NEW.tenant_id, NEW.project_id)
               OR NEW.role NOT IN ('viewer', 'researcher'))) THEN
    RAISE EXCEPTION 'a service account works in its own project' USING ERRCODE = '42501';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER service_account_place BEFORE INSERT OR UPDATE ON tenants_membership
  FOR EACH ROW EXECUTE FUNCTION portal_service_account_place();
"""
)

SQL = USERS + KNOWN_PEOPLE + MEMBERSHIPS + SERVICE_ACCOUNTS
