"""Decisions as keyframes and deltas, and what keeps the keyframe of a delta where it is."""

import django.db.models.deletion
from django.db import migrations, models


# A delta continues the keyframe of its base, which nobody moves away meanwhile.
FOLLOWS = """
CREATE FUNCTION allocation_decision_follows() RETURNS trigger
SECURITY DEFINER LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF NEW.base_id IS NOT NULL THEN
    PERFORM FROM allocation_decision base WHERE base.id = NEW.base_id AND base.id < NEW.id
      AND base.format = 3 AND base.archived_in = ''
      AND coalesce(base.keyframe_id, base.id) = NEW.keyframe_id
      FOR SHARE;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'decision % does not follow decision %', NEW.id, NEW.base_id
        USING ERRCODE = '23514', CONSTRAINT = 'decision_follows_its_base';
    END IF;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER follows_its_base BEFORE INSERT ON allocation_decision
  FOR EACH ROW EXECUTE FUNCTION allocation_decision_follows();
"""

# The bytes of a keyframe, and of each delta, are needed by all deltas after it.
ARCHIVED_TOGETHER = """
CREATE FUNCTION allocation_decision_needed() RETURNS trigger
SECURITY DEFINER LANGUAGE plpgsql SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  IF EXISTS (
    SELECT FROM allocation_decision later
    WHERE later.keyframe_id = coalesce(NEW.keyframe_id, NEW.id)
      AND later.id > NEW.id AND later.archived_in = '')
  THEN
    RAISE EXCEPTION 'a later decision needs the bytes of decision %', NEW.id
      USING ERRCODE = '23001', CONSTRAINT = 'decision_archived_with_its_deltas';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER archived_together AFTER UPDATE OF archived_in ON allocation_decision
  DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW WHEN (OLD.archived_in = '' AND NEW.archived_in <> '')
  EXECUTE FUNCTION allocation_decision_needed();
"""


class Migration(migrations.Migration):

    dependencies = [
        ("allocation", "0003_planned_start_strengths"),
    ]

    operations = [
        migrations.AddField(
            model_name='decision',
            name='base',
            field=models.OneToOneField(blank=True, help_text='The decision before it, which its bytes are relative to.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='allocation.decision'),
        ),
        migrations.AddField(
            model_name='decision',
            name='counts',
            field=models.JSONField(db_default={}, default=dict, help_text='Rows of each part of the plan.'),
        ),
        migrations.AddField(
            model_name='decision',
            name='format',
            field=models.PositiveSmallIntegerField(db_default=2, default=2, help_text='3: by rows, as a keyframe or a delta.'),
        ),
        migrations.AddField(
            model_name='decision',
            name='keyframe',
            field=models.ForeignKey(blank=True, help_text='The decision with the whole documents; null if it is this one.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='deltas', to='allocation.decision'),
        ),
        migrations.AddConstraint(
            model_name='decision',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('base', None), ('keyframe', None)), models.Q(('base__isnull', False), ('format', 3), ('keyframe__isnull', False)), _connector='OR'), name='decision_keyframe_or_delta'),
        ),
        migrations.RunSQL(FOLLOWS + ARCHIVED_TOGETHER),
    ]
