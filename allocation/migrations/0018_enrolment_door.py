"""A web process may ask whether an enrolment token is good, and nothing more of such tokens."""

from django.db import migrations

DOOR = """
CREATE FUNCTION portal_enrolment_open(wanted bytea, at timestamptz) RETURNS boolean
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT EXISTS (
    SELECT FROM allocation_enrolmenttoken
    WHERE digest = wanted AND used_at IS NULL AND expires > at)
$$;
REVOKE EXECUTE ON FUNCTION portal_enrolment_open(bytea, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION portal_enrolment_open(bytea, timestamptz)
  TO portal_web, portal_system, portal_ops;
"""


class Migration(migrations.Migration):
    dependencies = [("allocation", "0017_clock")]
    operations = [
        migrations.RunSQL(DOOR, "DROP FUNCTION portal_enrolment_open(bytea, timestamptz)"),
    ]
