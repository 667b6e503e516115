"""A version of a tier that counts for a booking stays, and so does a withdrawal."""

from django.db import migrations, models

RULES = """
CREATE FUNCTION allocation_check_tier_version() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF OLD.withdrawn IS NOT NULL AND NEW.withdrawn IS DISTINCT FROM OLD.withdrawn THEN
    RAISE EXCEPTION 'a withdrawal is final'
      USING ERRCODE = '23514', CONSTRAINT = 'tier_version_withdrawn_once';
  END IF;
  IF NEW.withdrawn IS NOT NULL AND OLD.withdrawn IS NULL AND EXISTS (
      SELECT FROM allocation_booking
      WHERE tenant_id = OLD.tenant_id AND tier_id = OLD.tier_id AND submitted >= OLD.starts) THEN
    RAISE EXCEPTION 'bookings were asked for by this version'
      USING ERRCODE = '23514', CONSTRAINT = 'tier_version_in_use';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_tier_version BEFORE UPDATE ON allocation_tierversion
  FOR EACH ROW EXECUTE FUNCTION allocation_check_tier_version();
ALTER TABLE allocation_tierversion ADD CONSTRAINT tier_version_lists CHECK (
  jsonb_typeof(projects) = 'array' AND jsonb_typeof(classes) = 'array'
  AND jsonb_typeof(start_hours) = 'array' AND zone <> '');
"""
UNDO = """
ALTER TABLE allocation_tierversion DROP CONSTRAINT tier_version_lists;
DROP TRIGGER check_tier_version ON allocation_tierversion;
DROP FUNCTION allocation_check_tier_version();
"""


class Migration(migrations.Migration):

    dependencies = [
        ("allocation", "0035_stops"),
    ]

    operations = [
        migrations.AddConstraint(
            model_name="tierversion",
            constraint=models.CheckConstraint(
                condition=models.Q(("withdrawn", None), ("withdrawn__gte", models.F("created")), _connector="OR"),
                name="tier_version_withdrawn_after",
            ),
        ),
        migrations.RunSQL(RULES, UNDO),
    ]
