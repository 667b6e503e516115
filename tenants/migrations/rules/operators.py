"""Access of operators to the data of a tenant."""

from tenants.platform.wall import callable_by, protect

# By the session of an operator only: a token opens nothing. Each row is a role of the person, or
# that of an admin.
SQL = (
    protect("tenants_operatoraccess", grants="SELECT")
    + """
CREATE FUNCTION portal_operator_access(credential bytea, slug text, at timestamptz)
RETURNS TABLE (access_id uuid, user_id bigint, username text, reason text, until timestamptz,
               tenant_id uuid, project_id uuid, role text, person text, time_zone text)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT a.id, coalesce(a.person_id, o.id), coalesce(p.username, ''), a.reason, a.until,
         t.id, m.project_id, coalesce(m.role, 'tenant_admin'),
         coalesce(nullif(trim(p.first_name || ' ' || p.last_name), ''), p.username, o.username),
         o.time_zone
  FROM portal_holder(credential, at) h
  JOIN tenants_user o ON o.id = h.user_id AND o.is_staff AND h.tenant_id IS NULL
  JOIN tenants_operatoraccess a ON a.operator_id = o.id AND a.ended_at IS NULL AND at < a.until
  JOIN tenants_tenant t ON t.id = a.tenant_id AND t.is_open AND t.slug = portal_operator_access.slug
  LEFT JOIN tenants_user p ON p.id = a.person_id
  LEFT JOIN tenants_membership m ON m.tenant_id = t.id AND m.user_id = a.person_id
  WHERE a.person_id IS NULL OR m.id IS NOT NULL
$$;
"""
    + callable_by("portal_operator_access(bytea, text, timestamptz)")
)
