"""Stand-ins of approvers, counter-offers, and requests that become smaller while they wait."""

import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import protect, tenant_key

# Who stands in for an approver decides neither their own request nor that of the approver, and
# nobody decides two steps, not even through another person. A digest changes only while the request
# is open, and the one before stays known.
RULES = """
CREATE OR REPLACE FUNCTION allocation_check_approval_act() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF EXISTS (SELECT FROM allocation_approval a WHERE a.tenant_id = NEW.tenant_id
             AND a.id = NEW.approval_id AND a.asker_id IN (NEW.person_id, NEW.principal_id)) THEN
    RAISE EXCEPTION 'nobody decides their own request'
      USING ERRCODE = '23514', CONSTRAINT = 'approval_act_by_another';
  END IF;
  IF EXISTS (SELECT FROM allocation_approvalact act WHERE act.tenant_id = NEW.tenant_id
             AND act.approval_id = NEW.approval_id
             AND (act.person_id = NEW.principal_id OR act.principal_id = NEW.person_id
                  OR act.principal_id = NEW.principal_id)) THEN
    RAISE EXCEPTION 'nobody decides two steps'
      USING ERRCODE = '23514', CONSTRAINT = 'approval_act_once_for_all';
  END IF;
  IF NEW.principal_id IS NOT NULL AND NOT EXISTS (
      SELECT FROM allocation_standin s WHERE s.tenant_id = NEW.tenant_id
      AND s.person_id = NEW.person_id AND s.approver_id = NEW.principal_id
      AND s.starts <= NEW.at AND s.until > NEW.at AND s.ended IS NULL) THEN
    RAISE EXCEPTION 'nobody has named this person'
      USING ERRCODE = '23514', CONSTRAINT = 'approval_act_named';
  END IF;
  RETURN NEW;
END $$;
CREATE FUNCTION allocation_check_digest() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF OLD.state <> 'open' OR NOT NEW.covers @> (OLD.covers || to_jsonb(OLD.digest)) THEN
    RAISE EXCEPTION 'a request keeps the digests that it had'
      USING ERRCODE = '23514', CONSTRAINT = 'approval_digests_kept';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_digest BEFORE UPDATE OF digest, covers ON allocation_approval FOR EACH ROW
  WHEN (NEW.digest <> OLD.digest OR NEW.covers <> OLD.covers)
  EXECUTE FUNCTION allocation_check_digest();
CREATE FUNCTION allocation_check_counter() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF OLD.state <> 'open' THEN
    RAISE EXCEPTION 'a counter-offer is answered once'
      USING ERRCODE = '23514', CONSTRAINT = 'counter_answered_once';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_counter BEFORE UPDATE ON allocation_counteroffer
  FOR EACH ROW EXECUTE FUNCTION allocation_check_counter();
GRANT UPDATE (digest, covers) ON allocation_approval TO portal_web;
"""
WALL = "".join(
    [
        protect("allocation_standin", grants="SELECT, INSERT, UPDATE (ended, ended_by_id)"),
        protect("allocation_counteroffer", grants="SELECT, INSERT, UPDATE (state, answered)"),
        tenant_key("allocation_standin", "project_id", "tenants_project"),
        tenant_key("allocation_counteroffer", "approval_id", "allocation_approval"),
    ]
)


class Migration(migrations.Migration):

    dependencies = [
        ("allocation", "0039_entries_that_exclude"),
        ("tenants", "0019_policy_hooks"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='approval',
            name='covers',
            field=models.JSONField(db_default=[], default=list, help_text='Digests of larger requests that it was before: approving one approves it, too.'),
        ),
        migrations.AddField(
            model_name='approvalact',
            name='principal',
            field=models.ForeignKey(blank=True, help_text='The approver that the person stood in for; null: nobody.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.CreateModel(
            name='CounterOffer',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('request_text', models.CharField(max_length=400)),
                ('target', models.JSONField(help_text='The terms that the booking would have.')),
                ('differences', models.JSONField(help_text='What differs: before and after, by field.')),
                ('digest', models.CharField(help_text='SHA-256 of what the asker accepts.', max_length=64)),
                ('reason', models.CharField(blank=True, max_length=200)),
                ('at', models.DateTimeField()),
                ('state', models.CharField(choices=[('open', 'Waiting for the asker'), ('accepted', 'Accepted'), ('declined', 'Declined'), ('replaced', 'Replaced')], default='open', max_length=10)),
                ('answered', models.DateTimeField(blank=True, null=True)),
                ('approval', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name='counters', to='allocation.approval')),
                ('person', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('principal', models.ForeignKey(blank=True, help_text='The approver that the person stands in for; null: nobody.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'ordering': ['-at', 'id'],
                'constraints': [models.UniqueConstraint(fields=('tenant', 'id'), name='counter_id_in_tenant'), models.UniqueConstraint(condition=models.Q(('state', 'open')), fields=('approval',), name='counter_one_open'), models.CheckConstraint(condition=models.Q(models.Q(('answered', None), ('state', 'open')), models.Q(models.Q(('state', 'open'), _negated=True), ('answered__gte', models.F('at'))), _connector='OR'), name='counter_answered_later')],
            },
        ),
        migrations.CreateModel(
            name='StandIn',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('starts', models.DateTimeField()),
                ('until', models.DateTimeField()),
                ('created', models.DateTimeField()),
                ('ended', models.DateTimeField(blank=True, help_text='When it was ended early.', null=True)),
                ('approver', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('ended_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('person', models.ForeignKey(help_text='Who decides for the approver.', on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(blank=True, db_constraint=False, help_text='Requests of this project only; null: all that the approver decides.', null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.project')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'ordering': ['starts', 'id'],
                'indexes': [models.Index(condition=models.Q(('ended', None)), fields=['tenant', 'person'], name='stand_in_by_person'), models.Index(condition=models.Q(('ended', None)), fields=['tenant', 'approver'], name='stand_in_by_approver')],
                'constraints': [models.UniqueConstraint(fields=('tenant', 'id'), name='stand_in_id_in_tenant'), models.CheckConstraint(condition=models.Q(('person', models.F('approver')), _negated=True), name='stand_in_is_another'), models.CheckConstraint(condition=models.Q(('until__gt', models.F('starts'))), name='stand_in_ends_later'), models.CheckConstraint(condition=models.Q(models.Q(('ended', None), ('ended_by', None)), models.Q(('ended__gte', models.F('created')), ('ended_by__isnull', False)), _connector='OR'), name='stand_in_ended_by_somebody')],
            },
        ),
        migrations.RunSQL(RULES + WALL, migrations.RunSQL.noop),
    ]
