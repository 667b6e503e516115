"""Times that hold: dates that end at the same local time, changes of maintenance that are counted,
and histories of bookings that never run backwards."""

from django.db import migrations, models

# Calendars have had the number 1 of maintenance that ended.
ENDED = """
UPDATE allocation_maintenance SET revision = 1, changed_at = ended_at WHERE ended_at IS NOT NULL
"""
# Processes read the clock at different times before they write. A booking's rows are written one
# after the other, as their writers hold its lock.
IN_ORDER = """
CREATE FUNCTION allocation_event_in_order() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  NEW.at := greatest(NEW.at, (
    SELECT max(e.at) FROM allocation_bookingevent e
    WHERE e.tenant_id = NEW.tenant_id AND e.booking_id = NEW.booking_id));
  RETURN NEW;
END $$;
CREATE TRIGGER event_in_order BEFORE INSERT ON allocation_bookingevent
  FOR EACH ROW EXECUTE FUNCTION allocation_event_in_order();
"""
OUT_OF_ORDER = """
DROP TRIGGER event_in_order ON allocation_bookingevent;
DROP FUNCTION allocation_event_in_order();
"""
RIGHTS = "GRANT UPDATE (keeps_end, skipped) ON allocation_series TO portal_web"


class Migration(migrations.Migration):
    dependencies = [("allocation", "0003_token_ancestors")]

    operations = [
        migrations.AddField(
            model_name="series",
            name="keeps_end",
            field=models.BooleanField(
                db_default=False,
                default=False,
                help_text="Each date ends at the same local time; otherwise each has the same "
                "length.",
            ),
        ),
        migrations.AddField(
            model_name="booking",
            name="changed_at",
            field=models.DateTimeField(
                blank=True,
                help_text="Time of the last change; null: none since submission.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="maintenance",
            name="revision",
            field=models.PositiveIntegerField(
                db_default=0,
                default=0,
                help_text="Rises when its window or reason changes or it ends.",
            ),
        ),
        migrations.AddField(
            model_name="maintenance",
            name="changed_at",
            field=models.DateTimeField(
                blank=True, help_text="Time of the last such change; null: none.", null=True
            ),
        ),
        migrations.RunSQL(ENDED, migrations.RunSQL.noop),
        migrations.RunSQL(IN_ORDER, OUT_OF_ORDER),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
    ]
