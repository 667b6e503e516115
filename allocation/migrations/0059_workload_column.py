"""The workload of a booking as a column that PostgreSQL computes, with an index of finished ones.

An index of the expression would not do: row-level security lets no function that is not leakproof be
looked up before its own condition.
"""

from django.db import migrations

SAID = "coalesce(nullif(labels->>'workload', ''), nullif(ask->>'workload', ''))"


def slug(text: str) -> str:
    clean = f"trim(BOTH '-' FROM regexp_replace(lower({text}), '[^a-z0-9_]+', '-', 'g'))"
    return f"trim(BOTH '-' FROM left({clean}, 63))"


NAME = f"""coalesce(
  {slug(SAID)},
  CASE WHEN {slug("name")} !~ '^[0-9]*$' THEN
    CASE WHEN regexp_replace({slug("name")}, '(-v?[0-9]+)+$', '') ~ '^[0-9]+$' THEN ''
    ELSE regexp_replace({slug("name")}, '(-v?[0-9]+)+$', '') END
  ELSE '' END)"""
CREATE = f"""
ALTER TABLE allocation_booking ADD COLUMN workload text GENERATED ALWAYS AS ({NAME}) STORED;
CREATE INDEX booking_by_workload ON allocation_booking (project_id, workload) WHERE state = 'ended';
"""


class Migration(migrations.Migration):

    dependencies = [("allocation", "0058_cuts_of_guarantees")]

    operations = [migrations.RunSQL(CREATE, "ALTER TABLE allocation_booking DROP COLUMN workload")]
