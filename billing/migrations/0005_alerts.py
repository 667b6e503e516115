"""Alerts with named recipients and a history."""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models

from tenants.platform.wall import no_right, protect, tenant_key, updates_only

# Who sets a ladder, and the worker that looks at all of them, write what is reached and when it is left.
RIGHTS = (
    protect("billing_budgetalert", grants="SELECT, INSERT, UPDATE (cleared_at)")
    + tenant_key("billing_budgetalert", "budget_id", "billing_budget")
    + no_right("DELETE", "billing_budgetalert")
    + updates_only({"billing_budgetalert": "cleared_at"})
)
# Until now `warn_percent` only coloured pages.
MAIN_ALERTS = """
INSERT INTO billing_guardrail (id, tenant_id, budget_id, measure, percent, action, audience)
SELECT gen_random_uuid(), tenant_id, id, 'committed', warn_percent, 'notify', 'both'
FROM billing_budget WHERE ends > current_date
ON CONFLICT DO NOTHING;
SET CONSTRAINTS ALL IMMEDIATE;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('billing', '0004_rights_to_money'),
        ('tenants', '0008_directory_ids'),
    ]

    operations = [
        migrations.CreateModel(
            name='BudgetAlert',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('measure', models.CharField(choices=[('spent', 'Spent'), ('committed', 'Spent and held'), ('forecast', 'Forecast at the end of the period')], max_length=10)),
                ('percent', models.PositiveSmallIntegerField()),
                ('action', models.CharField(choices=[('notify', 'Notify'), ('approval', 'Ask for an approval of new bookings'), ('cheaper', 'Finish waiting work on the cheapest of its classes'), ('no_borrowing', 'Start nothing on borrowed GPUs'), ('no_bookings', 'Take no new bookings'), ('drain', 'Start nothing new'), ('pause', 'Pause what runs, after its notice')], max_length=12)),
                ('audience', models.CharField(choices=[('leads', 'Project leads'), ('admins', 'Tenant admins'), ('both', 'Project leads and tenant admins'), ('people', 'Only the people named')], max_length=8)),
                ('people', django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), help_text='Accounts that were notified, too.', size=None)),
                ('reached_at', models.DateTimeField()),
                ('cleared_at', models.DateTimeField(blank=True, help_text='When the share was lower, or the rung was removed.', null=True)),
                ('amount', models.DecimalField(decimal_places=6, max_digits=20)),
                ('spent', models.DecimalField(decimal_places=6, max_digits=20)),
                ('held', models.DecimalField(decimal_places=6, max_digits=20)),
                ('forecast', models.DecimalField(blank=True, decimal_places=6, max_digits=20, null=True)),
            ],
            options={
                'ordering': ['-reached_at', '-id'],
            },
        ),
        migrations.RemoveConstraint(
            model_name='guardrail',
            name='guardrail_choices',
        ),
        migrations.AddField(
            model_name='guardrail',
            name='people',
            field=django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), db_default=models.Value([], output_field=django.contrib.postgres.fields.ArrayField(base_field=models.IntegerField(), size=None)), default=list, help_text='Accounts that are notified, too.', size=None),
        ),
        migrations.AlterField(
            model_name='budget',
            name='warn_percent',
            field=models.PositiveSmallIntegerField(default=80, help_text='Share of spent and held money of the main alert; pages show it from there on.'),
        ),
        migrations.AlterField(
            model_name='guardrail',
            name='audience',
            field=models.CharField(choices=[('leads', 'Project leads'), ('admins', 'Tenant admins'), ('both', 'Project leads and tenant admins'), ('people', 'Only the people named')], default='both', max_length=8),
        ),
        migrations.AddConstraint(
            model_name='guardrail',
            constraint=models.CheckConstraint(condition=models.Q(('measure__in', ['spent', 'committed', 'forecast']), ('action__in', ['notify', 'approval', 'cheaper', 'no_borrowing', 'no_bookings', 'drain', 'pause']), ('audience__in', ['leads', 'admins', 'both', 'people'])), name='guardrail_choices'),
        ),
        migrations.AddField(
            model_name='budgetalert',
            name='budget',
            field=models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name='alerts', to='billing.budget'),
        ),
        migrations.AddField(
            model_name='budgetalert',
            name='tenant',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant'),
        ),
        migrations.AddConstraint(
            model_name='budgetalert',
            constraint=models.UniqueConstraint(condition=models.Q(('cleared_at', None)), fields=('budget', 'measure', 'percent', 'action'), name='budget_alert_once'),
        ),
        migrations.AddConstraint(
            model_name='budgetalert',
            constraint=models.CheckConstraint(condition=models.Q(('cleared_at', None), ('cleared_at__gte', models.F('reached_at')), _connector='OR'), name='budget_alert_time'),
        ),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
        migrations.RunSQL(MAIN_ALERTS, migrations.RunSQL.noop),
    ]
