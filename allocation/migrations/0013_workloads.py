"""Advice that quotes have shown, and what projects let the portal choose."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import no_right, protect, tenant_key, updates_only

# Quotes and leads write them through the web; workers quote for Jira. Nobody deletes one.
RIGHTS = (
    protect("allocation_adviceshown", grants="SELECT, INSERT, UPDATE (shown, last_at)")
    + protect("allocation_diversion", grants="SELECT, INSERT, UPDATE (mode, since, changed_by_id)")
    + tenant_key("allocation_adviceshown", "project_id", "tenants_project")
    + tenant_key("allocation_diversion", "project_id", "tenants_project")
    + no_right("DELETE", "allocation_adviceshown", "allocation_diversion")
    + updates_only({"allocation_adviceshown": "shown, last_at", "allocation_diversion": ""})
)


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0012_policy_activations'),
        ('tenants', '0008_directory_ids'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='AdviceShown',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('workload', models.CharField(max_length=63)),
                ('code', models.CharField(max_length=16)),
                ('shown', models.PositiveIntegerField()),
                ('first_at', models.DateTimeField()),
                ('last_at', models.DateTimeField()),
                ('project', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenants.project')),
                ('tenant', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('project', 'workload', 'code'), name='advice_shown_once')],
            },
        ),
        migrations.CreateModel(
            name='Diversion',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('workload', models.CharField(blank=True, max_length=63)),
                ('mode', models.CharField(choices=[('off', 'Off'), ('suggest', 'Suggest'), ('automatic', 'Automatic')], max_length=9)),
                ('since', models.DateTimeField()),
                ('changed_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('project', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='tenants.project')),
                ('tenant', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('project', 'workload'), name='diversion_once'), models.CheckConstraint(condition=models.Q(('mode__in', ('off', 'suggest', 'automatic'))), name='diversion_mode_known')],
            },
        ),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
    ]
