"""What sprints of projects rent."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import no_right, protect, tenant_key, updates_only

_RULE = "allocation_sprintrule"
RIGHTS = (
    protect(
        _RULE,
        grants="SELECT, INSERT, UPDATE (mode, gpu_class_id, gpus, most_cost, issue, changed, changed_by_id)",
    )
    + tenant_key(_RULE, "project_id", "tenants_project")
    + no_right("DELETE", _RULE)
    + updates_only({_RULE: ""})
)


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0024_policy_trial_demand'),
        ('tenants', '0008_directory_ids'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='SprintRule',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('mode', models.CharField(choices=[('off', 'Nothing'), ('propose', 'A plan that a lead approves'), ('rent', 'A plan that is active')], max_length=7)),
                ('gpus', models.PositiveSmallIntegerField()),
                ('most_cost', models.DecimalField(decimal_places=6, help_text='Of each sprint.', max_digits=20)),
                ('issue', models.CharField(blank=True, help_text='It gets comments, such as GPU-1.', max_length=40)),
                ('changed', models.DateTimeField()),
                ('changed_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('gpu_class', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.gpuclass')),
                ('project', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenants.project')),
                ('tenant', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('project',), name='sprint_rule_once'), models.CheckConstraint(condition=models.Q(('mode__in', ('off', 'propose', 'rent'))), name='sprint_rule_mode_known'), models.CheckConstraint(condition=models.Q(('gpus__gte', 1), ('most_cost__gt', 0)), name='sprint_rule_has_bounds')],
            },
        ),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
    ]
