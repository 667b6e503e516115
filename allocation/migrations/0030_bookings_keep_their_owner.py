"""A booking keeps its owner and project, whichever program writes it."""

from django.db import migrations

# An update that names none of the columns, as almost all are, doesn't call it.
OWNER = """
CREATE FUNCTION portal_booking_keeps_owner() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
  RAISE EXCEPTION 'a booking keeps its owner and project' USING ERRCODE = '42501';
END $$;
CREATE TRIGGER keeps_owner BEFORE UPDATE OF tenant_id, project_id, owner_id ON allocation_booking
  FOR EACH ROW WHEN (
    (OLD.tenant_id, OLD.project_id, OLD.owner_id) IS DISTINCT FROM
    (NEW.tenant_id, NEW.project_id, NEW.owner_id))
  EXECUTE FUNCTION portal_booking_keeps_owner();
REVOKE EXECUTE ON FUNCTION portal_booking_keeps_owner() FROM PUBLIC;
"""


class Migration(migrations.Migration):
    dependencies = [("allocation", "0025_sprint_rules")]
    operations = [migrations.RunSQL(OWNER, migrations.RunSQL.noop)]
