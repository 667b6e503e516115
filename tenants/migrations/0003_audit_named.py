"""A function that finds entries of the log by a name in any case."""

from django.db import migrations

# `upper()` is not leakproof, so under row-level security PostgreSQL would read all entries of a
# tenant before it compares. The function compares first, by the indexes, for one tenant only.
NAMED = """
CREATE FUNCTION portal_audit_named(words text) RETURNS SETOF bigint
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT e.id FROM tenants_auditentry e
  WHERE e.tenant_id = (SELECT portal_tenant()) AND (
    upper(e.object_id) = upper(words)
    OR upper(e.detail ->> 'label') = upper(words)
    OR upper(e.detail #>> '{after,where}') = upper(words)
    OR upper(e.detail #>> '{after,for}') = upper(words)
    OR upper(e.detail #>> '{after,tenant}') = upper(words))
$$;
REVOKE EXECUTE ON FUNCTION portal_audit_named(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION portal_audit_named(text) TO portal_web, portal_system, portal_ops;
"""


class Migration(migrations.Migration):
    dependencies = [("tenants", "0002_rules")]
    operations = [migrations.RunSQL(NAMED, "DROP FUNCTION portal_audit_named(text);")]
