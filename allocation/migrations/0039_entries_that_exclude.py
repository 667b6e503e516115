"""Entries of the waiting list that exclude each other: one of them gets a place."""

from django.db import migrations, models

# The step by which a booking leaves the list closes its entry. A booking that got a place meets it.
CLOSE = """
CREATE OR REPLACE FUNCTION allocation_close_wait_entry() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  UPDATE allocation_waitentry SET slot = NULL, is_met = (NEW.state = 'scheduled')
    WHERE tenant_id = NEW.tenant_id AND booking_id = NEW.id AND slot IS NOT NULL;
  RETURN NULL;
END $$;
GRANT UPDATE (any_of, is_met) ON allocation_waitentry TO portal_web;
"""
CLOSE_BEFORE = """
REVOKE UPDATE (any_of, is_met) ON allocation_waitentry FROM portal_web;
CREATE OR REPLACE FUNCTION allocation_close_wait_entry() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  UPDATE allocation_waitentry SET slot = NULL
    WHERE tenant_id = NEW.tenant_id AND booking_id = NEW.id AND slot IS NOT NULL;
  RETURN NULL;
END $$;
"""


class Migration(migrations.Migration):
    """Adds the group of an entry, and that only one of a group is met."""

    dependencies = [("allocation", "0038_changes_that_wait")]

    operations = [
        migrations.AddField(
            "waitentry",
            "any_of",
            models.UUIDField(
                blank=True, help_text="Entries with the same one exclude each other.", null=True
            ),
        ),
        migrations.AddField(
            "waitentry",
            "is_met",
            models.BooleanField(
                db_default=False, default=False, help_text="Its booking got a place."
            ),
        ),
        migrations.AddConstraint(
            "waitentry",
            models.UniqueConstraint(
                condition=models.Q(("is_met", True)),
                fields=("any_of",),
                name="wait_entry_met_once",
            ),
        ),
        migrations.RunSQL(CLOSE, CLOSE_BEFORE),
    ]
