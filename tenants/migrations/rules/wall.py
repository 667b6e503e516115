"""The tenant of a transaction, tables that only grow, and the tables of Django.

`portal_web` is the role of web processes, `portal_system` of background work, `portal_ops` of
operators. All tables belong to `portal_owner`.
"""

from tenants.platform.wall import open_table, system_table

# An unset tenant is an error, so that a forgotten context never shows an empty page.
CONTEXT = """
CREATE FUNCTION portal_tenant() RETURNS uuid STABLE LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
DECLARE said text := current_setting('portal.tenant', true);
BEGIN
  IF coalesce(said, '') = '' THEN
    RAISE EXCEPTION 'tenant context missing' USING ERRCODE = '42501';
  END IF;
  RETURN said::uuid;
END $$;
"""

# The program that archives moves old rows of the log into files; nobody else deletes from an
# append-only table.
APPEND_ONLY = """
CREATE FUNCTION portal_append_only() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
BEGIN
  IF TG_OP = 'DELETE' AND current_user = 'portal_owner'
    AND TG_TABLE_NAME IN ('tenants_auditentry', 'allocation_bookingevent')
    AND current_setting('portal.archiving', true) = 'on'
  THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = '42501';
END $$;
"""

DJANGO = (
    "GRANT SELECT ON django_migrations TO portal_web, portal_system, portal_ops;"
    + open_table("django_content_type")
    + open_table("auth_group")
    + open_table("auth_permission")
    + open_table("auth_group_permissions")
)

SQL = CONTEXT + APPEND_ONLY + DJANGO
