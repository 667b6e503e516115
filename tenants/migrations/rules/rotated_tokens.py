"""A token that was rotated by another one depends on what the token before it depended on.

A later change of `token_ancestors`.
"""

from tenants.platform.wall import tenant_key

# The token before a rotation may end. Those that made it may not, whoever rotated it.
LIVES = """
CREATE OR REPLACE FUNCTION portal_token_lives(wanted uuid, at timestamptz) RETURNS boolean
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
"""

SQL = (
    "GRANT SELECT (follows_id) ON tenants_apitoken TO portal_web;"
    + tenant_key("tenants_apitoken", "follows_id", "tenants_apitoken")
    + LIVES
)
