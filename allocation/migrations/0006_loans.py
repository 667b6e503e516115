"""A policy may have seconds by tier, and a new version of it is reference data.

They say for how long a tier that is never paused may borrow, which decides what is refused at once.
"""

from django.db import migrations

from allocation.migrations.rules.solver import DOCUMENT
from tenants.platform.reference import reference_of_all

NAME = "policy_of_whole_numbers"
DROP = f"ALTER TABLE allocation_policyversion DROP CONSTRAINT {NAME};"
# The other keys keep the rule of 0002.
SECONDS_BY_TIER = f"""
{DROP}
{DOCUMENT.replace("document - '", "document - 'borrow_windows' - '").replace(
    "jsonb_typeof(document) = 'object'",
    '''jsonb_typeof(document) = 'object'
  AND coalesce(jsonb_typeof(document->'borrow_windows'), 'object') = 'object'
  AND NOT jsonb_path_exists(
    document, '$.borrow_windows.* ? (@.type() != "number" || @ < 0 || @ != @.floor())')''',
)}
"""


class Migration(migrations.Migration):
    dependencies = [("allocation", "0005_claims_rest")]
    operations = [
        migrations.RunSQL(SECONDS_BY_TIER, f"{DROP}\n{DOCUMENT}"),
        migrations.RunSQL(
            reference_of_all("allocation_policyversion"),
            "DROP TRIGGER reference ON allocation_policyversion",
        ),
    ]
