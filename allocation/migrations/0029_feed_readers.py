"""A calendar's address answers with its owner as a member: a web process can't ask by number."""

from django.db import migrations

FEED = """
DROP FUNCTION portal_feed(bytea);
CREATE FUNCTION portal_feed(wanted bytea)
RETURNS TABLE (owner_id bigint, tenant_slug text, feed_project_id uuid, gpu_class text,
               tenant_id uuid, project_id uuid, role text, person text, time_zone text)
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT f.owner_id, t.slug, f.project_id, f.gpu_class_id,
         m.tenant_id, m.project_id, m.role, m.person, m.time_zone
  FROM allocation_calendarfeed f
  JOIN tenants_tenant t ON t.id = f.tenant_id
  JOIN LATERAL portal_memberships(f.owner_id) m ON m.tenant_id = f.tenant_id
  WHERE f.digest = wanted AND f.revoked IS NULL
$$;
REVOKE EXECUTE ON FUNCTION portal_feed(bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION portal_feed(bytea) TO portal_web, portal_system, portal_ops;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("allocation", "0028_archived_decisions"),
        ("tenants", "0014_people_walled"),
    ]

    operations = [migrations.RunSQL(FEED)]
