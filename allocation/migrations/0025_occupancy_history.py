"""Occupancies of one piece of hardware never overlap, the closed ones included.

Whoever opens one passes the time at which its turn began, and the piece may have become free a
moment later. Readers of the history would see two bookings on it at once.
"""

from django.db import migrations

# One that is open lies on what comes, so the constraints say all that those before them said.
CONSTRAINTS = """
ALTER TABLE allocation_occupancy
  DROP CONSTRAINT occupancy_once_on_hardware,
  DROP CONSTRAINT occupancy_one_mode,
  ADD CONSTRAINT occupancy_once_on_hardware
    EXCLUDE USING gist (slots WITH &&, tstzrange(opened, closed) WITH &&) WHERE (share IS NULL),
  ADD CONSTRAINT occupancy_one_mode
    EXCLUDE USING gist (slots WITH &&, ((share IS NULL)::int) WITH <>,
                        tstzrange(opened, closed) WITH &&);
"""

TIMES = """
CREATE FUNCTION occupancy_in_turn() RETURNS trigger
SECURITY DEFINER LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    NEW.opened := greatest(NEW.opened, (
      SELECT max(closed) FROM allocation_occupancy before
      WHERE before.slots && NEW.slots
        AND before.opened <= NEW.opened
        AND tstzrange(before.opened, before.closed) @> NEW.opened
        AND (before.share IS NULL OR NEW.share IS NULL)));
  END IF;
  NEW.closed := greatest(NEW.closed, CASE WHEN NEW.closed IS NOT NULL THEN NEW.opened END);
  RETURN NEW;
END $$;
CREATE TRIGGER in_turn BEFORE INSERT OR UPDATE OF opened, closed ON allocation_occupancy
  FOR EACH ROW EXECUTE FUNCTION occupancy_in_turn();
"""

# What was written before is put right: the later of two begins when the earlier was over.
MENDED = """
CREATE INDEX occupancy_mended ON allocation_occupancy
  USING gist (slots, tstzrange(opened, closed));
DO $$
BEGIN
  LOOP
    UPDATE allocation_occupancy mended SET opened = found.free,
      closed = CASE WHEN closed IS NOT NULL THEN greatest(closed, found.free) END
    FROM (SELECT late.id, max(before.closed) AS free
          FROM allocation_occupancy late JOIN allocation_occupancy before
            ON before.slots && late.slots AND before.closed IS NOT NULL
              AND (before.share IS NULL OR late.share IS NULL)
              AND tstzrange(before.opened, before.closed) && tstzrange(late.opened, late.closed)
              AND (before.opened, before.id) < (late.opened, late.id)
          GROUP BY late.id) found
    WHERE mended.id = found.id;
    EXIT WHEN NOT FOUND;
  END LOOP;
END $$;
DROP INDEX occupancy_mended;
"""


class Migration(migrations.Migration):
    """Rows in order, then the guard that keeps them so."""

    dependencies = [("allocation", "0024_node_inventory")]

    operations = [
        migrations.RunSQL(MENDED, migrations.RunSQL.noop),
        migrations.RunSQL(CONSTRAINTS, migrations.RunSQL.noop),
        migrations.RunSQL(TIMES, migrations.RunSQL.noop),
    ]
