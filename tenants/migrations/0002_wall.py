"""Row-level security, tenant-safe keys, grants, and the two doors before a tenant is known."""

from django.db import migrations

from tenants.platform.wall import (
    APPEND_ONLY_FUNCTION,
    TENANT_FUNCTION,
    append_only,
    open_table,
    protect,
    tenant_key,
)

DOORS = """
CREATE FUNCTION portal_memberships(member bigint)
RETURNS TABLE (tenant_id uuid, tenant_slug text, tenant_name text, project_id uuid, role text,
               person text, time_zone text)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT t.id, t.slug, t.name, m.project_id, m.role,
         coalesce(nullif(trim(u.first_name || ' ' || u.last_name), ''), u.username), u.time_zone
  FROM tenants_membership m
  JOIN tenants_tenant t ON t.id = m.tenant_id AND t.is_open
  JOIN tenants_user u ON u.id = m.user_id AND u.is_active
  WHERE m.user_id = member
$$;
CREATE FUNCTION portal_token(wanted bytea)
RETURNS TABLE (token_id uuid, user_id bigint, tenant_id uuid, tenant_slug text,
               expires timestamptz, revoked timestamptz, last_used timestamptz)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT a.id, a.user_id, a.tenant_id, t.slug, a.expires, a.revoked, a.last_used
  FROM tenants_apitoken a JOIN tenants_tenant t ON t.id = a.tenant_id
  WHERE a.digest = wanted
$$;
REVOKE EXECUTE ON FUNCTION portal_memberships(bigint), portal_token(bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION portal_memberships(bigint), portal_token(bytea)
  TO portal_web, portal_system, portal_ops;
"""

GRANTS = "\n".join(
    [
        open_table("django_content_type"),
        open_table("auth_group"),
        open_table("auth_permission"),
        open_table("auth_group_permissions"),
        open_table("tenants_user_groups"),
        open_table("tenants_user_user_permissions"),
        "GRANT SELECT ON django_migrations TO portal_web, portal_system, portal_ops;",
        # Nobody becomes an operator through a web request: the flag is not in this list.
        "GRANT SELECT ON tenants_user TO portal_web;"
        "GRANT UPDATE (last_login, password, time_zone, first_name, last_name, email)"
        " ON tenants_user TO portal_web;"
        "GRANT SELECT, INSERT, UPDATE, DELETE ON tenants_user TO portal_system, portal_ops;",
        open_table("tenants_gpuclass"),
        open_table("tenants_tier"),
    ]
)

WALL = "\n".join(
    [
        protect("tenants_tenant", "id", "SELECT, UPDATE (bookings_counted)"),
        protect("tenants_project"),
        protect("tenants_membership"),
        protect("tenants_quota"),
        protect("tenants_apitoken", grants="SELECT, INSERT, UPDATE"),
        protect("tenants_idempotencykey"),
        protect("tenants_auditentry", grants="SELECT, INSERT"),
        protect("tenants_outboxmessage", grants="SELECT, INSERT"),
        tenant_key("tenants_membership", "project_id", "tenants_project"),
        tenant_key("tenants_quota", "project_id", "tenants_project"),
        append_only("tenants_auditentry"),
    ]
)


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0001_initial"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]
    operations = [
        migrations.RunSQL(TENANT_FUNCTION),
        migrations.RunSQL(APPEND_ONLY_FUNCTION),
        migrations.RunSQL(DOORS),
        migrations.RunSQL(GRANTS),
        migrations.RunSQL(WALL),
    ]
