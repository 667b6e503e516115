"""What a token set up ends with it, and with every token before it.

A later change of `tokens`, `sessions` and `invitations`.
"""

from tenants.platform.wall import callable_by, tenant_key

# Tokens before one: that which made it, and that which rotated itself into it. The first has to be
# valid, with a holder who is still a member; of the second only a revocation counts, because its
# rotation ended it.
LIVES = """
CREATE FUNCTION portal_token_lives(wanted uuid, at timestamptz) RETURNS boolean
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  WITH RECURSIVE line AS (
    SELECT wanted AS id, true AS is_needed
    UNION
    SELECT prior.id, line.is_needed AND prior.is_needed
    FROM line JOIN tenants_apitoken k ON k.id = line.id
    CROSS JOIN LATERAL (VALUES (k.made_with_id, true), (k.replaces_id, false))
      AS prior (id, is_needed)
    WHERE prior.id IS NOT NULL)
  SELECT count(*) = count(k.id) AND bool_and(k.revoked IS NULL AND (NOT line.is_needed OR
    k.expires > at AND EXISTS (
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
CREATE OR REPLACE FUNCTION portal_holder(credential bytea, at timestamptz)
RETURNS TABLE (user_id bigint, tenant_id uuid)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT u.id, held.tenant_id
  FROM (SELECT s.user_id, s.only_tenant_id AS tenant_id
        FROM tenants_session s WHERE s.digest = credential AND s.expires > at
        UNION ALL
        SELECT k.user_id, k.tenant_id FROM portal_live_token(credential, at) k) held
  JOIN tenants_user u ON u.id = held.user_id AND u.is_active
$$;
""" + callable_by("portal_token_lives(uuid, timestamptz)", "portal_live_token(bytea, timestamptz)")

INVITATIONS = """
CREATE OR REPLACE FUNCTION portal_invitation_offer(wanted uuid, at timestamptz)
RETURNS TABLE (invitation_id uuid, tenant_id uuid, tenant_slug text, tenant_name text,
               project_name text, role text, inviter text, expires timestamptz)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT i.id, t.id, t.slug, t.name, coalesce(p.name, ''), i.role,
         coalesce(nullif(trim(b.first_name || ' ' || b.last_name), ''), b.username), i.expires
  FROM tenants_invitation i
  JOIN tenants_tenant t ON t.id = i.tenant_id AND t.is_open
  JOIN tenants_user b ON b.id = i.made_by_id AND b.is_active
  LEFT JOIN tenants_project p ON p.id = i.project_id
  WHERE i.id = wanted AND i.state = 'open' AND i.expires > at AND coalesce(p.is_open, true)
    AND (i.made_with_id IS NULL OR portal_token_lives(i.made_with_id, at))
    AND (b.is_staff OR EXISTS (
      SELECT FROM portal_memberships(b.id) m
      WHERE m.tenant_id = i.tenant_id
        AND (m.role = 'tenant_admin' OR (m.role = 'lead' AND m.project_id = i.project_id))))
$$;
"""

KEYS = "GRANT SELECT (replaces_id) ON tenants_apitoken TO portal_web;" + "".join(
    tenant_key(f"tenants_{table}", column, "tenants_apitoken")
    for table, column in (
        ("apitoken", "replaces_id"),
        ("webhook", "made_with_id"),
        ("chatchannel", "made_with_id"),
        ("invitation", "made_with_id"),
        ("policyhook", "made_with_id"),
    )
)

# A token that had rotated itself was noted as the maker of its successor, which lives on.
SUCCESSORS = """
WITH RECURSIVE turn AS (
  SELECT k.id, k.made_with_id AS replaced FROM tenants_apitoken k
  WHERE EXISTS (SELECT FROM tenants_auditentry e
    WHERE e.action = 'token.rotated' AND e.object_id = k.made_with_id::text
      AND e.detail->>'successor' = k.id::text)),
line AS (
  SELECT id, replaced AS origin FROM turn
  UNION
  SELECT line.id, turn.replaced FROM line JOIN turn ON turn.id = line.origin)
UPDATE tenants_apitoken k SET replaces_id = turn.replaced, made_with_id = (
  SELECT o.made_with_id FROM line JOIN tenants_apitoken o ON o.id = line.origin
  WHERE line.id = k.id AND o.id NOT IN (SELECT id FROM turn))
FROM turn WHERE turn.id = k.id;
"""

SQL = KEYS + SUCCESSORS + LIVES + INVITATIONS
