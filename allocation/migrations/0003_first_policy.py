"""The first policy, all defaults, and the solver's fence: a portal without them can't decide."""

from django.db import migrations

FIRST = """
INSERT INTO allocation_policyversion (number, document, state, created)
  VALUES (1, '{}', 'live', '2026-11-01T00:00:00Z') ON CONFLICT DO NOTHING;
INSERT INTO allocation_solverstate (id, leader_term, epoch) VALUES (1, 0, 1)
  ON CONFLICT DO NOTHING;
"""


class Migration(migrations.Migration):
    dependencies = [("allocation", "0002_invariants")]
    operations = [migrations.RunSQL(FIRST)]
