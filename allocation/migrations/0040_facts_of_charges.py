"""Each charge keeps the tier and the class that its booking has then, as the sums of charges do."""

from django.db import migrations

from tenants.platform.wall import callable_by

FACTS = """
CREATE FUNCTION allocation_charge_facts() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  booking record;
BEGIN
  SELECT b.tier_id, b.planned_class INTO booking FROM allocation_booking b
    WHERE b.tenant_id = NEW.tenant_id AND b.id = NEW.reference;
  NEW.tier := coalesce(booking.tier_id, '');
  NEW.gpu_class := coalesce(booking.planned_class, '');
  RETURN NEW;
END $$;
CREATE TRIGGER charge_facts BEFORE INSERT ON billing_transfer
  FOR EACH ROW WHEN (NEW.kind IN ('settle', 'charge', 'reverse') AND NEW.reference IS NOT NULL)
  EXECUTE FUNCTION allocation_charge_facts();
""" + callable_by("allocation_charge_facts()", roles="")


class Migration(migrations.Migration):
    dependencies = [("allocation", "0039_backlog_rules"), ("billing", "0006_facts_of_charges")]
    operations = [migrations.RunSQL(FACTS, migrations.RunSQL.noop)]
