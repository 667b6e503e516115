"""Approvals: rules, requests and what people decided, with the rules that hold for them."""

import uuid

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import append_only, protect, tenant_key

# A booking is approved by another person, in time, and exactly as it was decided.
RULES = """
INSERT INTO allocation_transition VALUES ('awaiting_approval', 'expired') ON CONFLICT DO NOTHING;
CREATE FUNCTION allocation_check_approval() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    IF NEW.state <> 'open' AND current_user = 'portal_web' THEN
      RAISE EXCEPTION 'an approval begins as open'
        USING ERRCODE = '23514', CONSTRAINT = 'approval_begins_open';
    END IF;
  ELSIF OLD.state <> 'open' THEN
    RAISE EXCEPTION 'an approval is decided once'
      USING ERRCODE = '23514', CONSTRAINT = 'approval_decided_once';
  ELSIF NEW.state = 'approved' AND NOT EXISTS (
      SELECT FROM allocation_approvalact act WHERE act.tenant_id = NEW.tenant_id
      AND act.approval_id = NEW.id AND act.person_id = NEW.decided_by_id
      AND act.verdict = 'approve') THEN
    RAISE EXCEPTION 'an approval needs the act of a person'
      USING ERRCODE = '23514', CONSTRAINT = 'approval_has_an_act';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_approval BEFORE INSERT OR UPDATE ON allocation_approval
  FOR EACH ROW EXECUTE FUNCTION allocation_check_approval();
CREATE FUNCTION allocation_check_approval_act() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF EXISTS (SELECT FROM allocation_approval a WHERE a.tenant_id = NEW.tenant_id
             AND a.id = NEW.approval_id AND a.asker_id = NEW.person_id) THEN
    RAISE EXCEPTION 'nobody decides their own request'
      USING ERRCODE = '23514', CONSTRAINT = 'approval_act_by_another';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_approval_act BEFORE INSERT ON allocation_approvalact
  FOR EACH ROW EXECUTE FUNCTION allocation_check_approval_act();
CREATE FUNCTION allocation_check_approved() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM allocation_approval a WHERE a.tenant_id = NEW.tenant_id
      AND a.booking_id = NEW.id AND a.state = 'approved' AND a.digest = NEW.approved_hash) THEN
    RAISE EXCEPTION 'the booking is not approved as it is'
      USING ERRCODE = '23514', CONSTRAINT = 'booking_approved';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_approved BEFORE UPDATE OF state ON allocation_booking FOR EACH ROW
  WHEN (OLD.state = 'awaiting_approval' AND NEW.state = 'requested')
  EXECUTE FUNCTION allocation_check_approved();
CREATE FUNCTION allocation_check_awaiting() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  whose uuid := CASE WHEN TG_TABLE_NAME = 'allocation_booking' THEN NEW.id
                ELSE (to_jsonb(NEW) ->> 'booking_id')::uuid END;
BEGIN
  IF EXISTS (SELECT FROM allocation_booking b WHERE b.id = whose AND b.state = 'awaiting_approval')
     <> EXISTS (SELECT FROM allocation_approval a WHERE a.booking_id = whose AND a.state = 'open')
  THEN
    RAISE EXCEPTION 'a booking that awaits an approval has exactly one open request'
      USING ERRCODE = '23514', CONSTRAINT = 'booking_awaits_one';
  END IF;
  RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER awaits_one AFTER INSERT OR UPDATE ON allocation_approval
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION allocation_check_awaiting();
CREATE CONSTRAINT TRIGGER awaits_one_moved AFTER UPDATE OF state ON allocation_booking
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  WHEN (NEW.state <> OLD.state AND 'awaiting_approval' IN (NEW.state, OLD.state))
  EXECUTE FUNCTION allocation_check_awaiting();
"""
WALL = "".join(
    [
        protect(
            "allocation_approvalrule",
            grants="SELECT, INSERT, UPDATE (retired, retired_by_id)",
        ),
        protect(
            "allocation_approval",
            grants="SELECT, INSERT, UPDATE (state, step, steps, decide_by, decided,"
            " decided_by_id, reason)",
        ),
        protect("allocation_approvalact", grants="SELECT, INSERT"),
        tenant_key("allocation_approvalrule", "project_id", "tenants_project"),
        tenant_key("allocation_approval", "project_id", "tenants_project"),
        tenant_key("allocation_approval", "booking_id", "allocation_booking"),
        tenant_key("allocation_approval", "series_id", "allocation_series"),
        tenant_key("allocation_approvalact", "approval_id", "allocation_approval"),
        append_only("allocation_approvalact"),
    ]
)


class Migration(migrations.Migration):

    dependencies = [
        ("allocation", "0012_queue_places"),
        ("tenants", "0007_second_factors"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='booking',
            name='approved_hash',
            field=models.CharField(blank=True, db_default='', help_text='Digest that was approved; empty: none.', max_length=64),
        ),
        migrations.AddField(
            model_name='booking',
            name='place_until',
            field=models.DateTimeField(blank=True, help_text='How long its place is kept while it awaits an approval.', null=True),
        ),
        migrations.CreateModel(
            name='Approval',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('digest', models.CharField(help_text='SHA-256 of what is to be approved.', max_length=64)),
                ('rules', models.JSONField(help_text='Rules that the booking meets: {id, name}.')),
                ('asked', models.DateTimeField()),
                ('steps', models.JSONField(help_text='As those of a rule.')),
                ('step', models.PositiveSmallIntegerField(default=1)),
                ('decide_by', models.DateTimeField(help_text='End of the present step.')),
                ('latest', models.DateTimeField(blank=True, help_text='When an approval comes too late for the booking.', null=True)),
                ('state', models.CharField(choices=[('open', 'Waiting'), ('approved', 'Approved'), ('declined', 'Declined'), ('expired', 'Expired'), ('withdrawn', 'Withdrawn')], default='open', max_length=10)),
                ('decided', models.DateTimeField(blank=True, null=True)),
                ('reason', models.CharField(blank=True, max_length=200)),
                ('asker', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('booking', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name='approvals', to='allocation.booking')),
                ('decided_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, to='tenants.project')),
                ('series', models.ForeignKey(blank=True, db_constraint=False, help_text='All of its dates are decided together.', null=True, on_delete=django.db.models.deletion.PROTECT, to='allocation.series')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'ordering': ['asked', 'id'],
            },
        ),
        migrations.CreateModel(
            name='ApprovalAct',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('step', models.PositiveSmallIntegerField()),
                ('verdict', models.CharField(choices=[('approve', 'Approved'), ('decline', 'Declined')], max_length=8)),
                ('reason', models.CharField(blank=True, max_length=200)),
                ('at', models.DateTimeField()),
                ('approval', models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name='acts', to='allocation.approval')),
                ('person', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'ordering': ['id'],
            },
        ),
        migrations.CreateModel(
            name='ApprovalRule',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=80)),
                ('min_cost', models.DecimalField(blank=True, decimal_places=6, max_digits=20, null=True)),
                ('min_gpu_hours', models.DecimalField(blank=True, decimal_places=3, max_digits=12, null=True)),
                ('min_gpus', models.PositiveIntegerField(blank=True, help_text='At once.', null=True)),
                ('min_seconds', models.PositiveIntegerField(blank=True, help_text='Length.', null=True)),
                ('classes', models.JSONField(default=list, help_text='GPU classes; empty for all.')),
                ('tiers', models.JSONField(default=list, help_text='Tiers; empty for all.')),
                ('hours_begin', models.TimeField(blank=True, help_text='Outside of these hours only.', null=True)),
                ('hours_end', models.TimeField(blank=True, null=True)),
                ('weekdays', models.JSONField(default=list, help_text='Days of these hours; 0 is Monday.')),
                ('zone', models.CharField(default='UTC', help_text='Time zone of the hours.', max_length=64)),
                ('is_first', models.BooleanField(default=False, help_text="A person's first in the project.")),
                ('steps', models.JSONField(help_text='[{role, needed, hours, escalates}], in order.')),
                ('created', models.DateTimeField()),
                ('retired', models.DateTimeField(blank=True, null=True)),
                ('created_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(blank=True, db_constraint=False, help_text='The project that it is for; null for all of the organisation.', null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.project')),
                ('retired_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'ordering': ['created', 'id'],
            },
        ),
        migrations.AddIndex(
            model_name='approval',
            index=models.Index(condition=models.Q(('state', 'open')), fields=['tenant', 'asked', 'id'], name='approval_inbox'),
        ),
        migrations.AddIndex(
            model_name='approval',
            index=models.Index(fields=['tenant', '-decided', 'id'], name='approval_decided'),
        ),
        migrations.AddIndex(
            model_name='approval',
            index=models.Index(condition=models.Q(('state', 'open')), fields=['decide_by'], name='approval_due'),
        ),
        migrations.AddConstraint(
            model_name='approval',
            constraint=models.UniqueConstraint(fields=('tenant', 'id'), name='approval_id_in_tenant'),
        ),
        migrations.AddConstraint(
            model_name='approval',
            constraint=models.UniqueConstraint(condition=models.Q(('state', 'open')), fields=('booking',), name='approval_one_open'),
        ),
        migrations.AddConstraint(
            model_name='approval',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('decided', None), ('decided_by', None), ('state', 'open')), models.Q(('decided__gte', models.F('asked')), ('decided__lt', models.F('decide_by')), ('decided_by__isnull', False), ('state__in', ['approved', 'declined'])), models.Q(('decided__gte', models.F('decide_by')), ('decided_by', None), ('state', 'expired')), models.Q(('decided__isnull', False), ('decided_by', None), ('state', 'withdrawn')), _connector='OR'), name='approval_decided_in_time'),
        ),
        migrations.AddConstraint(
            model_name='approval',
            constraint=models.CheckConstraint(condition=models.Q(('decided_by', None), models.Q(('decided_by', models.F('asker')), _negated=True), _connector='OR'), name='approval_by_another'),
        ),
        migrations.AddConstraint(
            model_name='approvalact',
            constraint=models.UniqueConstraint(fields=('approval', 'person'), name='approval_act_once'),
        ),
        migrations.AddIndex(
            model_name='approvalrule',
            index=models.Index(condition=models.Q(('retired', None)), fields=['tenant'], name='approval_rule_in_force'),
        ),
        migrations.AddConstraint(
            model_name='approvalrule',
            constraint=models.UniqueConstraint(fields=('tenant', 'id'), name='approval_rule_in_tenant'),
        ),
        migrations.AddConstraint(
            model_name='approvalrule',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('min_cost', None), ('min_cost__gt', 0), _connector='OR'), models.Q(('min_gpu_hours', None), ('min_gpu_hours__gt', 0), _connector='OR'), models.Q(('min_gpus', None), ('min_gpus__gt', 0), _connector='OR'), models.Q(('min_seconds', None), ('min_seconds__gt', 0), _connector='OR')), name='approval_rule_amounts_sane'),
        ),
        migrations.AddConstraint(
            model_name='approvalrule',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('hours_begin', None), ('hours_end', None), ('weekdays', [])), models.Q(('hours_begin__isnull', False), ('hours_end__gt', models.F('hours_begin')), ('hours_end__isnull', False), models.Q(('weekdays', []), _negated=True)), _connector='OR'), name='approval_rule_hours_sane'),
        ),
        migrations.AddConstraint(
            model_name='approvalrule',
            constraint=models.CheckConstraint(condition=models.Q(('min_cost__isnull', False), ('min_gpu_hours__isnull', False), ('min_gpus__isnull', False), ('min_seconds__isnull', False), models.Q(('classes', []), _negated=True), models.Q(('tiers', []), _negated=True), ('hours_begin__isnull', False), ('is_first', True), _connector='OR'), name='approval_rule_states_something'),
        ),
        migrations.AddConstraint(
            model_name='approvalrule',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('retired', None), ('retired_by', None)), ('retired__gte', models.F('created')), _connector='OR'), name='approval_rule_retired_later'),
        ),
        migrations.RunSQL(WALL + RULES),
    ]
