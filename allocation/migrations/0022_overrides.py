"""Overrides: exceptions from limits, decided once and by somebody else than who asked."""

import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models


from tenants.platform.wall import protect, tenant_key

# A request is decided once; what was granted only ends, or finds its booking.
RULES = """
CREATE FUNCTION allocation_check_override() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF TG_OP = 'UPDATE' AND NEW.state <> OLD.state AND NOT (
      OLD.state = 'asked' AND NEW.state IN ('granted', 'declined', 'withdrawn')
      OR OLD.state = 'granted' AND NEW.state = 'ended') THEN
    RAISE EXCEPTION 'an override is decided once'
      USING ERRCODE = '23514', CONSTRAINT = 'override_decided_once';
  END IF;
  IF TG_OP = 'UPDATE' AND OLD.state <> 'asked' AND (
      NEW.amount, NEW.starts, NEW.until, NEW.is_once, NEW.decided_by_id)
      IS DISTINCT FROM (OLD.amount, OLD.starts, OLD.until, OLD.is_once, OLD.decided_by_id) THEN
    RAISE EXCEPTION 'an override never changes after its decision'
      USING ERRCODE = '23514', CONSTRAINT = 'override_never_changes';
  END IF;
  IF TG_OP = 'UPDATE' AND OLD.booking_id IS NOT NULL
      AND NEW.booking_id IS DISTINCT FROM OLD.booking_id THEN
    RAISE EXCEPTION 'an override is used by one booking'
      USING ERRCODE = '23514', CONSTRAINT = 'override_used_once';
  END IF;
  IF NEW.decider = 'operator' AND NEW.state IN ('granted', 'declined')
      AND (TG_OP = 'INSERT' OR OLD.state = 'asked') AND current_user = 'portal_web' THEN
    RAISE EXCEPTION 'only an operator decides about a limit of the platform'
      USING ERRCODE = '23514', CONSTRAINT = 'override_operators_decide';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_override BEFORE INSERT OR UPDATE ON allocation_override
  FOR EACH ROW EXECUTE FUNCTION allocation_check_override();
"""
WALL = "".join(
    [
        protect(
            "allocation_override",
            grants="SELECT, INSERT, UPDATE (amount, is_once, booking_id, starts, until, state,"
            " decided, decided_by_id, answer, ended)",
        ),
        tenant_key("allocation_override", "project_id", "tenants_project"),
        tenant_key("allocation_override", "booking_id", "allocation_booking"),
        tenant_key("allocation_override", "budget_id", "billing_budget"),
    ]
)


class Migration(migrations.Migration):

    dependencies = [
        ("allocation", "0021_late_shares"),
        ("billing", "0008_ladder_rungs"),
        ("tenants", "0012_disabled_people"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='booking',
            name='has_override',
            field=models.BooleanField(db_default=False, default=False, help_text="Some of its units don't count against a limit."),
        ),
        migrations.CreateModel(
            name='Override',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('quota', 'GPUs at once'), ('gpu_hours', 'GPU-hours'), ('budget', 'Budget'), ('length', 'Length of a booking'), ('open_bookings', 'Open bookings')], max_length=16)),
                ('amount', models.DecimalField(decimal_places=6, help_text='On top of the limit: quota units, GPU-hours, money, seconds or bookings.', max_digits=20)),
                ('is_once', models.BooleanField(default=False, help_text='For one booking, whenever it runs.')),
                ('starts', models.DateTimeField(blank=True, null=True)),
                ('until', models.DateTimeField(blank=True, null=True)),
                ('asked', models.DateTimeField()),
                ('reason', models.CharField(blank=True, max_length=200)),
                ('request_text', models.CharField(blank=True, help_text='The request that was refused, to send it again.', max_length=400)),
                ('decider', models.CharField(choices=[('operator', 'Operator'), ('tenant_admin', 'Tenant admin'), ('lead', 'Project lead')], help_text='Who decides.', max_length=16)),
                ('state', models.CharField(choices=[('asked', 'Waiting'), ('granted', 'Granted'), ('declined', 'Declined'), ('withdrawn', 'Withdrawn'), ('ended', 'Ended early')], default='asked', max_length=10)),
                ('decided', models.DateTimeField(blank=True, null=True)),
                ('answer', models.CharField(blank=True, max_length=200)),
                ('ended', models.DateTimeField(blank=True, null=True)),
                ('warned', models.DateTimeField(blank=True, help_text='When people were notified that it ends soon.', null=True)),
                ('asked_by', models.ForeignKey(blank=True, help_text='Null: its decider gave it without being asked.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('booking', models.ForeignKey(blank=True, db_constraint=False, help_text='The booking that uses it; null until one does.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='overrides', to='allocation.booking')),
                ('budget', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to='billing.budget')),
                ('decided_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('gpu_class', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.gpuclass')),
                ('person', models.ForeignKey(blank=True, help_text='The only person that it is for; null for everybody.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(blank=True, db_constraint=False, help_text='Whose limit it is about; null for that of the whole organisation.', null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.project')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
                ('tier', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.tier')),
            ],
            options={
                'ordering': ['-asked', 'id'],
                'indexes': [models.Index(condition=models.Q(('state', 'asked')), fields=['tenant', '-asked'], name='override_waiting'), models.Index(condition=models.Q(('state', 'granted')), fields=['tenant', 'kind'], name='override_granted')],
                'constraints': [models.UniqueConstraint(fields=('tenant', 'id'), name='override_id_in_tenant'), models.UniqueConstraint(condition=models.Q(('state', 'asked')), fields=('tenant', 'asked_by', 'kind', 'project', 'gpu_class', 'tier', 'budget', 'booking'), name='override_asked_once', nulls_distinct=False), models.CheckConstraint(condition=models.Q(models.Q(('budget', None), ('gpu_class__isnull', False), ('kind__in', ['quota', 'gpu_hours']), ('tier', None)), models.Q(('budget', None), ('gpu_class', None), ('kind', 'length'), ('project__isnull', False), ('tier__isnull', False)), models.Q(('budget', None), ('gpu_class', None), ('is_once', False), ('kind', 'open_bookings')), models.Q(('budget__isnull', False), ('gpu_class', None), ('is_once', False), ('kind', 'budget'), ('tier', None)), _connector='OR'), name='override_fits_its_kind'), models.CheckConstraint(condition=models.Q(models.Q(('kind', 'gpu_hours'), _negated=True), ('is_once', False), _connector='OR'), name='override_hours_dated'), models.CheckConstraint(condition=models.Q(('amount__gt', 0), ('amount__lt', 1000000000000)), name='override_amount_sane'), models.CheckConstraint(condition=models.Q(models.Q(('booking', None), ('is_once', False)), models.Q(('is_once', True), ('kind', 'length')), models.Q(('booking__isnull', False), ('is_once', True), ('kind', 'quota')), _connector='OR'), name='override_booking_once'), models.CheckConstraint(condition=models.Q(('starts', None), ('until', None), ('until__gt', models.F('starts')), _connector='OR'), name='override_ends_later'), models.CheckConstraint(condition=models.Q(models.Q(('state__in', ['granted', 'ended']), _negated=True), models.Q(('kind', 'budget'), ('until', None)), models.Q(('is_once', True), ('until', None)), models.Q(('is_once', False), ('starts__isnull', False), ('until__isnull', False)), _connector='OR'), name='override_granted_has_an_end'), models.CheckConstraint(condition=models.Q(models.Q(('decided_by', None), ('state__in', ['asked', 'withdrawn'])), models.Q(('decided__gte', models.F('asked')), ('decided_by__isnull', False), ('state__in', ['granted', 'declined', 'ended'])), _connector='OR'), name='override_decided_by_somebody'), models.CheckConstraint(condition=models.Q(('asked_by', None), models.Q(('decided_by', models.F('asked_by')), _negated=True), _connector='OR'), name='override_decided_by_another'), models.CheckConstraint(condition=models.Q(models.Q(('ended__gte', models.F('decided')), ('state', 'ended')), ('ended', None), _connector='OR'), name='override_ended_later')],
            },
        ),
        migrations.RunSQL(WALL + RULES),
    ]
