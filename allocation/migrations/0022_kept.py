"""Decisions and versions of the policy can't be changed or removed, whoever asks."""

from django.db import migrations

from tenants.platform.wall import append_only

# A version goes out of use once, and stays what it was.
VERSIONS = """
CREATE FUNCTION portal_policy_kept() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
BEGIN
  IF TG_OP = 'UPDATE' AND OLD.state = 'live' AND NEW.state = 'retired'
    AND (NEW.number, NEW.document, NEW.created, NEW.created_by_id)
      IS NOT DISTINCT FROM (OLD.number, OLD.document, OLD.created, OLD.created_by_id)
  THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'a version of the policy is kept as it is' USING ERRCODE = '42501';
END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON allocation_policyversion
  FOR EACH ROW EXECUTE FUNCTION portal_policy_kept();
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON allocation_policyversion
  FOR EACH STATEMENT EXECUTE FUNCTION portal_append_only();
REVOKE UPDATE, DELETE ON allocation_decision, allocation_policyversion
  FROM portal_system, portal_ops;
GRANT UPDATE (state) ON allocation_policyversion TO portal_system, portal_ops;
"""


class Migration(migrations.Migration):
    dependencies = [("allocation", "0021_booking_found"), ("allocation", "0021_money")]
    operations = [migrations.RunSQL(append_only("allocation_decision") + VERSIONS)]
