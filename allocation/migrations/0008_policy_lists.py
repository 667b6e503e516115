"""A policy may also hold lists of names."""

from django.db import migrations

LISTS = "'{order,victim_rules}'::text[]"
ZERO_ALLOWED = (
    "'{no_show_after,no_show_share,mode_changes,mode_patience}'::text[]"
)
POLICY = f"""
ALTER TABLE allocation_policyversion DROP CONSTRAINT policy_of_whole_numbers;
ALTER TABLE allocation_policyversion ADD CONSTRAINT policy_of_whole_numbers CHECK (
  jsonb_typeof(document) = 'object'
  AND NOT jsonb_path_exists(
    document - {LISTS}, '$.* ? (@.type() != "number" || @ < 0 || @ != @.floor())')
  AND NOT jsonb_path_exists(document - {LISTS} - {ZERO_ALLOWED}, '$.* ? (@ < 1)')
  AND coalesce(jsonb_typeof(document->'order'), 'array') = 'array'
  AND coalesce(jsonb_typeof(document->'victim_rules'), 'array') = 'array'
  AND NOT jsonb_path_exists(document, '$.order[*] ? (@.type() != "string")')
  AND NOT jsonb_path_exists(document, '$.victim_rules[*] ? (@.type() != "string")')
);
"""


class Migration(migrations.Migration):
    dependencies = [("allocation", "0007_claims")]
    operations = [migrations.RunSQL(POLICY)]
