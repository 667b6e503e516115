"""Sessions, and whose credential it is that a request carries.

A credential is the hash of a session's key or of a token's text. A web process can't read such
hashes; it knows those that its requests carry. A token is valid in one tenant only, and so is a
session that a tenant's provider began.
"""

from tenants.platform.wall import callable_by, system_table

CREDENTIALS = """
CREATE FUNCTION portal_holder(credential bytea, at timestamptz)
RETURNS TABLE (user_id bigint, tenant_id uuid)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT u.id, held.tenant_id
  FROM (SELECT s.user_id, s.only_tenant_id AS tenant_id
        FROM tenants_session s WHERE s.digest = credential AND s.expires > at
        UNION ALL
        SELECT k.user_id, k.tenant_id FROM portal_live_token(credential, at) k) held
  JOIN tenants_user u ON u.id = held.user_id AND u.is_active
$$;
CREATE FUNCTION portal_person(credential bytea, at timestamptz) RETURNS bigint
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT h.user_id FROM portal_holder(credential, at) h
$$;
CREATE FUNCTION portal_account(credential bytea, at timestamptz) RETURNS SETOF tenants_user
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT u.* FROM tenants_user u WHERE u.id = portal_person(credential, at)
$$;
CREATE FUNCTION portal_account_by_password(wanted text, presented text) RETURNS SETOF tenants_user
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT u.* FROM tenants_user u WHERE u.id = portal_password_holder(wanted, presented)
$$;
CREATE FUNCTION portal_memberships_of(credential bytea, at timestamptz)
RETURNS TABLE (tenant_id uuid, tenant_slug text, tenant_name text, project_id uuid, role text,
               person text, time_zone text)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT m.* FROM portal_holder(credential, at) h, LATERAL portal_memberships(h.user_id) m
  WHERE h.tenant_id IS NULL OR m.tenant_id = h.tenant_id
$$;
-- Logs a change of a person's account in each of their tenants.
CREATE FUNCTION portal_account_note(credential bytea, done text, said jsonb, at timestamptz)
RETURNS void
VOLATILE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  INSERT INTO tenants_auditentry (tenant_id, at, actor_id, action, object_kind, object_id, detail)
  SELECT DISTINCT m.tenant_id, at, m.user_id, done, 'user', m.user_id::text, said
  FROM tenants_membership m JOIN tenants_tenant t ON t.id = m.tenant_id AND t.is_open
  WHERE m.user_id = portal_person(credential, at)
    AND done IN ('session.ended', 'session.all_ended', 'user.password_set')
$$;
CREATE FUNCTION portal_readers(digests bytea[], at timestamptz)
RETURNS TABLE (digest bytea, tenant_slug text, tenant_id uuid, project_id uuid, role text)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT s.digest, m.tenant_slug, m.tenant_id, m.project_id, m.role
  FROM tenants_session s, LATERAL portal_memberships(s.user_id) m
  WHERE s.digest = ANY (digests) AND s.expires > at
    AND (s.only_tenant_id IS NULL OR m.tenant_id = s.only_tenant_id)
$$;
""" + callable_by("portal_holder(bytea, timestamptz)", "portal_person(bytea, timestamptz)", roles="")

SESSIONS = (
    system_table("tenants_session")
    + """
CREATE FUNCTION portal_session(wanted bytea, at timestamptz)
RETURNS TABLE (user_id bigint, data text, last_seen timestamptz, device text)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT s.user_id, s.data, s.last_seen, s.device
  FROM tenants_session s WHERE s.digest = wanted AND s.expires > at
$$;
CREATE FUNCTION portal_session_start(wanted bytea, held text, ends timestamptz, at timestamptz)
RETURNS boolean
VOLATILE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  WITH made AS (
    INSERT INTO tenants_session (id, digest, data, created, expires, last_seen, device)
    VALUES (gen_random_uuid(), wanted, held, at, ends, at, '') ON CONFLICT (digest) DO NOTHING
    RETURNING 1)
  SELECT EXISTS (SELECT FROM made)
$$;
CREATE FUNCTION portal_session_update(wanted bytea, held text, ends timestamptz) RETURNS boolean
VOLATILE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  WITH changed AS (
    UPDATE tenants_session SET data = held, expires = ends WHERE digest = wanted RETURNING 1)
  SELECT EXISTS (SELECT FROM changed)
$$;
CREATE FUNCTION portal_session_seen(wanted bytea, at timestamptz, by text, from_where inet)
RETURNS void
VOLATILE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  UPDATE tenants_session SET last_seen = at, device = by, address = from_where
  WHERE digest = wanted
$$;
CREATE FUNCTION portal_session_drop(wanted bytea) RETURNS void
VOLATILE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  DELETE FROM tenants_session WHERE digest = wanted
$$;
CREATE FUNCTION portal_sessions_of(credential bytea, at timestamptz)
RETURNS TABLE (id uuid, created timestamptz, expires timestamptz, last_seen timestamptz,
               device text, address text, is_this boolean)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT s.id, s.created, s.expires, s.last_seen, s.device, host(s.address),
         s.digest = credential
  FROM tenants_session s
  WHERE s.user_id = portal_person(credential, at) AND s.expires > at
  ORDER BY s.created DESC, s.id DESC
$$;
CREATE FUNCTION portal_sessions_end(credential bytea, at timestamptz, one uuid) RETURNS bigint
VOLATILE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  WITH ended AS (
    DELETE FROM tenants_session s
    WHERE s.user_id = portal_person(credential, at)
      AND CASE WHEN one IS NULL THEN s.digest <> credential ELSE s.id = one END
    RETURNING 1)
  SELECT count(*) FROM ended
$$;
"""
)

RIGHTS = callable_by(
    "portal_account(bytea, timestamptz)",
    "portal_account_by_password(text, text)",
    "portal_account_note(bytea, text, jsonb, timestamptz)",
    "portal_memberships_of(bytea, timestamptz)",
    "portal_readers(bytea[], timestamptz)",
    "portal_session(bytea, timestamptz)",
    "portal_session_start(bytea, text, timestamptz, timestamptz)",
    "portal_session_update(bytea, text, timestamptz)",
    "portal_session_seen(bytea, timestamptz, text, inet)",
    "portal_session_drop(bytea)",
    "portal_sessions_of(bytea, timestamptz)",
    "portal_sessions_end(bytea, timestamptz, uuid)",
)

SQL = CREDENTIALS + SESSIONS + RIGHTS
