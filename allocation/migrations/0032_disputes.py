"""Disputes of statements: answered once, by operators only."""

import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import protect, tenant_key

WALL = "".join(
    [
        protect("allocation_statementdispute", grants="SELECT, INSERT, UPDATE"),
        tenant_key("allocation_statementdispute", "project_id", "tenants_project"),
        tenant_key("allocation_statementdispute", "booking_id", "allocation_booking"),
    ]
)
RULES = """
CREATE FUNCTION allocation_check_dispute() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, public AS $$
BEGIN
  IF OLD.state <> 'open' THEN
    RAISE EXCEPTION 'a dispute is answered once'
      USING ERRCODE = '23514', CONSTRAINT = 'dispute_answered_once';
  END IF;
  IF NEW.state IN ('accepted', 'declined') AND current_user = 'portal_web' THEN
    RAISE EXCEPTION 'only an operator answers a dispute'
      USING ERRCODE = '23514', CONSTRAINT = 'dispute_operators_answer';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER check_dispute BEFORE UPDATE ON allocation_statementdispute
  FOR EACH ROW EXECUTE FUNCTION allocation_check_dispute();
"""


class Migration(migrations.Migration):

    dependencies = [
        ("allocation", "0031_idle"),
        ("tenants", "0016_budget_events"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='StatementDispute',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('month', models.DateField(help_text='The first day of the month.')),
                ('note', models.CharField(max_length=1000)),
                ('state', models.CharField(choices=[('open', 'Open'), ('accepted', 'Accepted'), ('declined', 'Declined'), ('withdrawn', 'Withdrawn')], default='open', max_length=9)),
                ('raised_at', models.DateTimeField()),
                ('answer', models.CharField(blank=True, max_length=1000)),
                ('answered_at', models.DateTimeField(blank=True, null=True)),
                ('answered_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('booking', models.ForeignKey(blank=True, db_constraint=False, help_text='The booking whose charges are disputed; null: the statement.', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='allocation.booking')),
                ('project', models.ForeignKey(blank=True, db_constraint=False, help_text='Null: the statement of the whole organisation.', null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.project')),
                ('raised_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'ordering': ['-raised_at', 'id'],
                'indexes': [models.Index(fields=['tenant', 'month'], name='dispute_month')],
                'constraints': [models.UniqueConstraint(fields=('tenant', 'id'), name='dispute_id_in_tenant'), models.UniqueConstraint(condition=models.Q(('state', 'open')), fields=('tenant', 'project', 'month', 'booking'), name='dispute_open_once', nulls_distinct=False), models.CheckConstraint(condition=models.Q(models.Q(('answer', ''), ('answered_by', None), ('state__in', ['open', 'withdrawn'])), models.Q(('answered_at__gte', models.F('raised_at')), ('answered_by__isnull', False), ('state__in', ['accepted', 'declined']), models.Q(('answer', ''), _negated=True)), _connector='OR'), name='dispute_answered_by_somebody')],
            },
        ),
        migrations.RunSQL(WALL + RULES),
    ]
