"""What of a decision was not written, and how many turns in a row left something."""

from django.db import migrations, models

# One instant over everybody: who asked, and for what, is not said.
OLDEST = """
CREATE FUNCTION portal_oldest_undecided() RETURNS timestamptz
STABLE LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT min(submitted) FROM allocation_booking WHERE state = 'requested'
$$;
REVOKE EXECUTE ON FUNCTION portal_oldest_undecided() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION portal_oldest_undecided() TO portal_web, portal_system, portal_ops;
"""


class Migration(migrations.Migration):
    dependencies = [("allocation", "0025_occupancy_history")]

    operations = [
        migrations.AddField("decision", "withheld", models.JSONField(db_default=[], default=list)),
        migrations.AddField(
            "solverstate", "withheld_cycles", models.PositiveIntegerField(db_default=0, default=0)
        ),
        migrations.RunSQL(OLDEST),
    ]
