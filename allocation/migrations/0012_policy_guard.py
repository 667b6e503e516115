"""A policy's document holds whole numbers above zero and nothing else, whoever writes it."""

from django.db import migrations

GUARD = """
ALTER TABLE allocation_policyversion ADD CONSTRAINT policy_of_whole_numbers CHECK (
  jsonb_typeof(document) = 'object'
  AND NOT jsonb_path_exists(document, '$.* ? (@.type() != "number" || @ < 1 || @ != @.floor())')
);
"""
UNGUARD = "ALTER TABLE allocation_policyversion DROP CONSTRAINT policy_of_whole_numbers;"


class Migration(migrations.Migration):
    dependencies = [("allocation", "0011_telemetry")]
    operations = [migrations.RunSQL(GUARD, UNGUARD)]
