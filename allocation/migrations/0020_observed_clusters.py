"""Clusters that other systems run: their jobs, accounts and GPU types, as their records say.

An organisation reads its own accounts and their jobs. Nothing is ever removed.
"""

import django.db.models.deletion
from django.db import migrations, models

from tenants.platform.wall import no_right, protect, system_table, tenant_key, updates_only

TABLES = ("allocation_observedcluster", "allocation_observedaccount", "allocation_observedtype")
JOBS = "allocation_observedjob"
# All but what a job is known by.
CHANGING = (
    "account, tenant_id, project_id, gpu_class_id, gpus, person, partition, state, nodes, eligible, started,"
    " ended, limit_seconds, is_booking, read_at"
)
# Records are sent by operators; a command on the portal's host has the system's role. Only operators say
# whose an account is, and which class a type is.
RIGHTS = (
    system_table("allocation_observedcluster")
    + system_table("allocation_observedtype")
    + protect("allocation_observedaccount", grants="")
    + protect(JOBS, grants="SELECT")
    + tenant_key("allocation_observedaccount", "project_id", "tenants_project")
    + tenant_key(JOBS, "project_id", "tenants_project")
    + no_right("DELETE", *TABLES, JOBS)
    + updates_only({"allocation_observedcluster": "read_at", JOBS: CHANGING})
    + updates_only(
        {"allocation_observedaccount": "", "allocation_observedtype": ""}, roles="portal_system"
    )
    + updates_only(
        {"allocation_observedaccount": "tenant_id, project_id", "allocation_observedtype": "gpu_class_id"},
        roles="portal_ops",
    )
)


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0019_demand'),
        ('tenants', '0008_directory_ids'),
    ]

    operations = [
        migrations.CreateModel(
            name='ObservedCluster',
            fields=[
                ('slug', models.SlugField(max_length=40, primary_key=True, serialize=False)),
                ('engine', models.CharField(choices=[('slurm', 'Slurm')], default='slurm', max_length=12)),
                ('created', models.DateTimeField()),
                ('read_at', models.DateTimeField(help_text='When records were read last.')),
            ],
            options={
                'ordering': ['slug'],
            },
        ),
        migrations.CreateModel(
            name='ObservedAccount',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=64)),
                ('project', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.project')),
                ('tenant', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
                ('cluster', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='allocation.observedcluster')),
            ],
            options={
                'ordering': ['cluster', 'name'],
            },
        ),
        migrations.CreateModel(
            name='ObservedJob',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.CharField(max_length=64)),
                ('gpu_type', models.CharField(blank=True, max_length=64)),
                ('gpus', models.PositiveIntegerField()),
                ('person', models.CharField(blank=True, help_text="Its owner's account on the cluster.", max_length=64)),
                ('partition', models.CharField(blank=True, max_length=64)),
                ('state', models.CharField(max_length=24)),
                ('nodes', models.TextField(blank=True)),
                ('submitted', models.DateTimeField()),
                ('eligible', models.DateTimeField()),
                ('started', models.DateTimeField(blank=True, null=True)),
                ('ended', models.DateTimeField(blank=True, null=True)),
                ('limit_seconds', models.PositiveBigIntegerField(blank=True, null=True)),
                ('is_booking', models.BooleanField(help_text='It holds the devices of a booking, which counts by itself.')),
                ('read_at', models.DateTimeField(help_text='What runs then is known to run until then.')),
                ('account', models.CharField(blank=True, max_length=64)),
                ('project', models.ForeignKey(blank=True, db_constraint=False, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.project')),
                ('cluster', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='allocation.observedcluster')),
                ('gpu_class', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.gpuclass')),
                ('tenant', models.ForeignKey(blank=True, help_text="The account's; null: operators' only.", null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'ordering': ['cluster', 'submitted', 'id'],
            },
        ),
        migrations.CreateModel(
            name='ObservedType',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(blank=True, help_text='Empty: the cluster has no types.', max_length=64)),
                ('cluster', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='allocation.observedcluster')),
                ('gpu_class', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.gpuclass')),
            ],
            options={
                'ordering': ['cluster', 'name'],
            },
        ),
        migrations.AddConstraint(
            model_name='observedaccount',
            constraint=models.UniqueConstraint(fields=('cluster', 'name'), name='observed_account_once'),
        ),
        migrations.AddConstraint(
            model_name='observedaccount',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('project', None), ('tenant', None)), models.Q(('project__isnull', False), ('tenant__isnull', False)), _connector='OR'), name='observed_account_of_project'),
        ),
        migrations.AddIndex(
            model_name='observedjob',
            index=models.Index(fields=['cluster', 'started'], name='observed_job_started'),
        ),
        migrations.AddIndex(
            model_name='observedjob',
            index=models.Index(fields=['read_at'], name='observed_job_read'),
        ),
        migrations.AddConstraint(
            model_name='observedjob',
            constraint=models.UniqueConstraint(fields=('cluster', 'number', 'submitted', 'gpu_type'), name='observed_job_once'),
        ),
        migrations.AddConstraint(
            model_name='observedjob',
            constraint=models.CheckConstraint(condition=models.Q(('gpus__gt', 0)), name='observed_job_gpus'),
        ),
        migrations.AddConstraint(
            model_name='observedjob',
            constraint=models.CheckConstraint(condition=models.Q(('eligible__gte', models.F('submitted')), models.Q(('started', None), ('started__gte', models.F('submitted')), _connector='OR'), models.Q(('ended', None), ('ended__gte', models.F('submitted')), _connector='OR'), models.Q(('ended', None), ('started', None), ('ended__gte', models.F('started')), _connector='OR')), name='observed_job_times'),
        ),
        migrations.AddConstraint(
            model_name='observedtype',
            constraint=models.UniqueConstraint(fields=('cluster', 'name'), name='observed_type_once'),
        ),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
    ]
