"""What versions of the policy set of tiers, quotas and prices, and what their activations changed."""

from django.db import migrations, models

RIGHTS = "GRANT UPDATE (applied) ON allocation_policyactivation TO portal_system, portal_ops;"
# The scenario never changes either.
KEPT = """
CREATE OR REPLACE FUNCTION portal_policy_kept() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
BEGIN
  IF TG_OP = 'UPDATE'
    AND (OLD.state, NEW.state) IN (('live', 'retired'), ('draft', 'live'), ('retired', 'live'))
    AND (NEW.number, NEW.document, NEW.parts, NEW.scenario, NEW.created, NEW.created_by_id)
      IS NOT DISTINCT FROM
      (OLD.number, OLD.document, OLD.parts, OLD.scenario, OLD.created, OLD.created_by_id)
  THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'a version of the policy is kept as it is' USING ERRCODE = '42501';
END $$;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0021_policy_parts'),
    ]

    operations = [
        migrations.AddField(
            model_name='policyactivation',
            name='applied',
            field=models.JSONField(blank=True, db_default=[], default=list, help_text='What it changed of tiers, quotas and prices: [kind, whose, field, before, after].'),
        ),
        migrations.AddField(
            model_name='policyversion',
            name='scenario',
            field=models.JSONField(blank=True, db_default={}, default=dict, help_text='What else it sets: `tiers`, `quotas` and `prices`; empty: nothing.'),
        ),
        migrations.RunSQL(RIGHTS + KEPT, migrations.RunSQL.noop),
    ]
