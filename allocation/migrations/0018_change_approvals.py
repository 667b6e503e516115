"""Approvals of changes: a change waits for one as a booking does, and is granted with one only."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import tenant_key

# What a booking awaits is the request for itself; those of its changes have one of their own.
RULES = """
CREATE OR REPLACE FUNCTION allocation_check_awaiting() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  whose uuid := CASE WHEN TG_TABLE_NAME = 'allocation_booking' THEN NEW.id
                ELSE (to_jsonb(NEW) ->> 'booking_id')::uuid END;
BEGIN
  IF EXISTS (SELECT FROM allocation_booking b WHERE b.id = whose AND b.state = 'awaiting_approval')
     <> EXISTS (SELECT FROM allocation_approval a
                WHERE a.booking_id = whose AND a.change_id IS NULL AND a.state = 'open')
  THEN
    RAISE EXCEPTION 'a booking that awaits an approval has exactly one open request'
      USING ERRCODE = '23514', CONSTRAINT = 'booking_awaits_one';
  END IF;
  RETURN NULL;
END $$;
CREATE FUNCTION allocation_check_change_awaiting() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  whose uuid := (to_jsonb(NEW) ->> CASE WHEN TG_TABLE_NAME = 'allocation_bookingchange'
                                   THEN 'id' ELSE 'change_id' END)::uuid;
BEGIN
  IF EXISTS (SELECT FROM allocation_bookingchange c
             WHERE c.id = whose AND c.state = 'awaiting_approval')
     <> EXISTS (SELECT FROM allocation_approval a WHERE a.change_id = whose AND a.state = 'open')
  THEN
    RAISE EXCEPTION 'a change that awaits an approval has exactly one open request'
      USING ERRCODE = '23514', CONSTRAINT = 'change_awaits_one';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER change_awaits_one AFTER INSERT OR UPDATE ON allocation_approval
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.change_id IS NOT NULL)
  EXECUTE FUNCTION allocation_check_change_awaiting();
CREATE CONSTRAINT TRIGGER awaits_one AFTER INSERT OR UPDATE OF state ON allocation_bookingchange
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  EXECUTE FUNCTION allocation_check_change_awaiting();
CREATE FUNCTION allocation_check_change_approved() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF NEW.state IN ('asked', 'changed') AND NOT EXISTS (
      SELECT FROM allocation_approval a WHERE a.tenant_id = NEW.tenant_id
      AND a.change_id = NEW.id AND a.state = 'approved') THEN
    RAISE EXCEPTION 'the change is not approved'
      USING ERRCODE = '23514', CONSTRAINT = 'change_approved';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_approved BEFORE UPDATE OF state ON allocation_bookingchange FOR EACH ROW
  WHEN (OLD.state = 'awaiting_approval') EXECUTE FUNCTION allocation_check_change_approved();
"""


class Migration(migrations.Migration):

    dependencies = [
        ("allocation", "0017_approval_places"),
        ("tenants", "0012_disabled_people"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='approval',
            name='change',
            field=models.ForeignKey(blank=True, db_constraint=False, help_text='The change that is to be approved; null for the booking itself.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='approvals', to='allocation.bookingchange'),
        ),
        migrations.AddConstraint(
            model_name='bookingchange',
            constraint=models.UniqueConstraint(fields=('tenant', 'id'), name='change_id_in_tenant'),
        ),
        migrations.RunSQL(
            RULES + tenant_key("allocation_approval", "change_id", "allocation_bookingchange"),
            migrations.RunSQL.noop,
        ),
    ]
