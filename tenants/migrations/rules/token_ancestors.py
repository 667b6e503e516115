"""What a token set up ends with it, and with every token before it."""

from tenants.platform.wall import callable_by, tenant_key

# Tokens before one: that which made it, and that which was rotated into it, by itself or by another. The first has to be
# valid, with a holder who is still a member; of the second only a revocation counts, because its
# rotation ended it.
LIVES = """
CREATE FUNCTION portal_token_lives(wanted uuid, at timestamptz) RETURNS boolean
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  WITH RECURSIVE line AS (
    SELECT wanted AS id, true AS is_needed, false AS is_passed
    UNION
    SELECT prior.id, line.is_needed AND prior.is_needed, prior.is_passed
    FROM line JOIN tenants_apitoken k ON k.id = line.id
    CROSS JOIN LATERAL (VALUES
      (k.made_with_id, true, false), (k.replaces_id, false, false), (k.follows_id, true, true))
      AS prior (id, is_needed, is_passed)
    WHERE prior.id IS NOT NULL)
  SELECT count(*) = count(k.id) AND bool_and(line.is_passed OR k.revoked IS NULL AND (
    NOT line.is_needed OR k.expires > at AND EXISTS (
      SELECT FROM tenants_user u WHERE u.id = k.user_id AND u.is_active AND (u.is_staff OR EXISTS (
        SELECT FROM portal_memberships(u.id) m
        WHERE m.tenant_id = k.tenant_id AND (k.project_id IS NULL
          OR m.role = 'tenant_admin' OR m.project_id = k.project_id))))))
  FROM line LEFT JOIN tenants_apitoken k ON k.id = line.id
$$;
CREATE FUNCTION portal_live_token(wanted bytea, at timestamptz)
RETURNS TABLE (token_id uuid, user_id bigint, tenant_id uuid, tenant_slug text,
               last_used timestamptz, scopes text[], project_id uuid)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT k.id, k.user_id, k.tenant_id, t.slug, k.last_used, k.scopes::text[], k.project_id
  FROM tenants_apitoken k JOIN tenants_tenant t ON t.id = k.tenant_id
  WHERE k.digest = wanted AND k.revoked IS NULL AND k.expires > at
    AND (k.made_with_id IS NULL AND k.replaces_id IS NULL OR portal_token_lives(k.id, at))
$$;
""" + callable_by("portal_token_lives(uuid, timestamptz)", "portal_live_token(bytea, timestamptz)")

KEYS = "".join(
    tenant_key(f"tenants_{table}", column, "tenants_apitoken")
    for table, column in (
        ("apitoken", "replaces_id"),
        ("apitoken", "follows_id"),
        ("webhook", "made_with_id"),
        ("chatchannel", "made_with_id"),
        ("invitation", "made_with_id"),
        ("policyhook", "made_with_id"),
    )
)

SQL = KEYS + LIVES
