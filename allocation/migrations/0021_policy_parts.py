"""Versions of the policy that are in force for a part of the site."""

import django.db.models.deletion
from django.db import migrations, models

# What went into force until now did as itself. An activation ends once, so its trigger rests meanwhile.
FILLED = """
SET CONSTRAINTS ALL IMMEDIATE;
ALTER TABLE allocation_policyactivation DISABLE TRIGGER kept;
UPDATE allocation_policyactivation SET in_force_id = version_id WHERE state = 'done';
ALTER TABLE allocation_policyactivation ENABLE TRIGGER kept;
GRANT UPDATE (in_force_id) ON allocation_policyactivation TO portal_system, portal_ops;
"""
# What an activation puts into force is its own version, unless it says otherwise.
ACTIVATED = """
CREATE OR REPLACE FUNCTION allocation_policy_activated() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog, public AS $$
BEGIN
  IF TG_OP = 'UPDATE' AND OLD.state <> 'waiting' THEN
    RAISE EXCEPTION 'an activation ends once' USING ERRCODE = '23514', CONSTRAINT = 'policy_activation_once';
  END IF;
  IF NEW.state = 'done' AND NEW.in_force_id IS NULL THEN
    NEW.in_force_id := NEW.version_id;
  END IF;
  IF NEW.state = 'done' AND NEW.kind = 'activation' AND NEW.waiver = ''
    AND NEW.ended_at < NEW.asked_at + interval '1 day'
    AND NOT EXISTS (SELECT FROM allocation_policyapproval a WHERE a.version_id = NEW.version_id)
    AND NOT EXISTS (SELECT FROM allocation_policyactivation a
                    WHERE a.version_id = NEW.version_id AND a.state = 'done' AND a.id <> NEW.id) THEN
    RAISE EXCEPTION 'a second operator approves a version, or it waits for a day'
      USING ERRCODE = '23514', CONSTRAINT = 'policy_second_person';
  END IF;
  RETURN NEW;
END $$;
"""
# The parts never change either.
KEPT = """
CREATE OR REPLACE FUNCTION portal_policy_kept() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
BEGIN
  IF TG_OP = 'UPDATE'
    AND (OLD.state, NEW.state) IN (('live', 'retired'), ('draft', 'live'), ('retired', 'live'))
    AND (NEW.number, NEW.document, NEW.parts, NEW.created, NEW.created_by_id)
      IS NOT DISTINCT FROM (OLD.number, OLD.document, OLD.parts, OLD.created, OLD.created_by_id)
  THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'a version of the policy is kept as it is' USING ERRCODE = '42501';
END $$;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0020_observed_clusters'),
    ]

    operations = [
        migrations.AddField(
            model_name='policyactivation',
            name='classes',
            field=models.JSONField(blank=True, db_default=[], default=list, help_text='Slugs of GPU classes; empty: for all.'),
        ),
        migrations.AddField(
            model_name='policyactivation',
            name='in_force',
            field=models.ForeignKey(blank=True, help_text='The version that it put into force: another one than `version` for a part of the site.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='allocation.policyversion'),
        ),
        migrations.AddField(
            model_name='policyactivation',
            name='tenants',
            field=models.JSONField(blank=True, db_default=[], default=list, help_text='Ids of organisations; empty: for all.'),
        ),
        migrations.AddField(
            model_name='policyversion',
            name='parts',
            field=models.JSONField(blank=True, db_default=[], default=list, help_text='Parts of the site in which another version is in force: `version`, `classes`, `tenants` by id, and the `values` that it has otherwise there.'),
        ),
        migrations.RunSQL(FILLED + ACTIVATED + KEPT, migrations.RunSQL.noop),
        migrations.AddConstraint(
            model_name='policyactivation',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('in_force__isnull', False), ('state', 'done')), models.Q(models.Q(('state', 'done'), _negated=True), ('in_force', None)), _connector='OR'), name='policy_activation_in_force'),
        ),
    ]
