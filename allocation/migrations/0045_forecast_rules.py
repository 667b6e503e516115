"""What projects rent for expected shortages."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import no_right, protect, tenant_key, updates_only

_RULE = "allocation_forecastrule"
RIGHTS = (
    protect(
        _RULE,
        grants="SELECT, INSERT,"
        " UPDATE (mode, hours, days, gpus, most_cost, note, checked, changed, changed_by_id)",
    )
    + tenant_key(_RULE, "project_id", "tenants_project")
    + no_right("DELETE", _RULE)
    + updates_only({_RULE: "note, checked"}, roles="portal_system")
    + updates_only({_RULE: ""}, roles="portal_ops")
)


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0043_class_weights'),
        ('tenants', '0009_rights_to_credentials'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AlterField(
            model_name='capacityplan',
            name='reference',
            field=models.CharField(blank=True, help_text='Address of the sprint, or `backlog:` or `forecast:` and the class.', max_length=500),
        ),
        migrations.AlterField(
            model_name='capacityplan',
            name='source',
            field=models.CharField(choices=[('person', 'A person'), ('sprint', 'A sprint'), ('backlog', 'The backlog'), ('forecast', 'The forecast')], max_length=8),
        ),
        migrations.CreateModel(
            name='ForecastRule',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('mode', models.CharField(choices=[('off', 'Nothing'), ('propose', 'A plan that a lead approves'), ('rent', 'A plan that is active')], max_length=7)),
                ('gpus', models.PositiveSmallIntegerField()),
                ('most_cost', models.DecimalField(decimal_places=6, help_text='Of its plans of a calendar month (UTC).', max_digits=20)),
                ('note', models.CharField(blank=True, help_text='Why it could make no plan.', max_length=300)),
                ('changed', models.DateTimeField()),
                ('hours', models.PositiveSmallIntegerField(help_text='So many hours have to be short at least.')),
                ('days', models.PositiveSmallIntegerField(help_text='Of the coming days that are looked at.')),
                ('checked', models.DateTimeField(blank=True, help_text='When it last read the forecast.', null=True)),
                ('changed_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('gpu_class', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.gpuclass')),
                ('project', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenants.project')),
                ('tenant', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('project', 'gpu_class'), name='forecast_rule_once'), models.CheckConstraint(condition=models.Q(('mode__in', ('off', 'propose', 'rent'))), name='forecast_rule_mode_known'), models.CheckConstraint(condition=models.Q(('days__gte', 1), ('days__lte', 14), ('gpus__gte', 1), ('hours__gte', 1), ('most_cost__gt', 0)), name='forecast_rule_has_bounds')],
            },
        ),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
    ]
