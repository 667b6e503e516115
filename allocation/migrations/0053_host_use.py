"""Data that starts fetch, what bookings use of hosts, and free cores for work that waits for input."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import no_right, protect, tenant_key, updates_only

_STAGING, _USE, _SPARE, _RAISED = (
    "allocation_staging", "allocation_hostuse", "allocation_sparecores", "allocation_raisedcores",
)
# Workers keep what nodes say, and raise cores; leads choose it for their projects.
RIGHTS = (
    protect(_STAGING, grants="SELECT")
    + protect(_USE, grants="SELECT")
    + protect(_SPARE, grants="SELECT, INSERT, UPDATE (is_on, changed_at, changed_by_id)")
    + protect(_RAISED, grants="SELECT")
    + tenant_key(_STAGING, "booking_id", "allocation_booking")
    + tenant_key(_USE, "booking_id", "allocation_booking")
    + tenant_key(_SPARE, "project_id", "tenants_project")
    + tenant_key(_RAISED, "booking_id", "allocation_booking")
    + no_right("DELETE", _STAGING, _USE, _SPARE, _RAISED)
    + no_right("INSERT, UPDATE", _STAGING, _USE, _SPARE, _RAISED, roles="portal_ops")
    + no_right("INSERT", _SPARE, roles="portal_system")
    + updates_only(
        {
            _STAGING: "nodes",
            _USE: "at, seconds, cpu_seconds, core_seconds, cores, spare, cpu, memory_mb, peak_memory_mb, read_mb,"
            " written_mb, received_mb, sent_mb",
            _SPARE: "",
            _RAISED: "most, run, raised_at, ended_at, evidence",
        },
        roles="portal_system",
    )
)


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0052_node_caches'),
        ('tenants', '0008_directory_ids'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AlterField(
            model_name='allocation',
            name='agent_steps',
            field=models.JSONField(blank=True, help_text='Name, start and length in ms of what its agent did until it was ready; null unless traces are on, or data was fetched.', null=True),
        ),
        migrations.CreateModel(
            name='SpareCores',
            fields=[
                ('project', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='+', serialize=False, to='tenants.project')),
                ('is_on', models.BooleanField()),
                ('changed_at', models.DateTimeField()),
                ('changed_by', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('tenant', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
        ),
        migrations.CreateModel(
            name='HostUse',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('at', models.DateTimeField(help_text='Of the newest measurement.')),
                ('seconds', models.FloatField(help_text='Measured time.')),
                ('cpu_seconds', models.FloatField(help_text='Core-seconds that were used.')),
                ('core_seconds', models.FloatField(help_text='Core-seconds that it could use; 0: not limited, or not known.')),
                ('cores', models.PositiveIntegerField(help_text='That it can use now.')),
                ('spare', models.PositiveIntegerField(help_text='Cores that the node could lend to it.')),
                ('cpu', models.PositiveIntegerField(help_text='Thousandths of a core in the newest measurement.')),
                ('memory_mb', models.PositiveIntegerField(help_text='Now.', null=True)),
                ('peak_memory_mb', models.PositiveIntegerField(null=True)),
                ('read_mb', models.FloatField(help_text='From disks.', null=True)),
                ('written_mb', models.FloatField(help_text='To disks.', null=True)),
                ('received_mb', models.FloatField(help_text='From the network.', null=True)),
                ('sent_mb', models.FloatField(help_text='To the network.', null=True)),
                ('booking', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='host_uses', to='allocation.booking')),
                ('node', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='allocation.node')),
                ('tenant', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('booking', 'node'), name='host_use_once'), models.CheckConstraint(condition=models.Q(('core_seconds__gte', 0), ('cpu_seconds__gte', 0), ('seconds__gte', 0)), name='host_use_is_a_number')],
            },
        ),
        migrations.CreateModel(
            name='RaisedCores',
            fields=[
                ('booking', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='raised_cores', serialize=False, to='allocation.booking')),
                ('most', models.PositiveIntegerField()),
                ('run', models.DateTimeField(help_text='When the run began for which it was raised.')),
                ('raised_at', models.DateTimeField()),
                ('ended_at', models.DateTimeField(help_text='When it was taken back.', null=True)),
                ('evidence', models.JSONField(help_text='The numbers by which its work waited for input.')),
                ('tenant', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'constraints': [models.CheckConstraint(condition=models.Q(('most__gte', 1), ('most__lte', 1024)), name='raised_cores_bounded')],
            },
        ),
        migrations.CreateModel(
            name='Staging',
            fields=[
                ('booking', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, primary_key=True, related_name='staging', serialize=False, to='allocation.booking')),
                ('nodes', models.JSONField(help_text='By name of the node: `data`, `began_at` (Unix s), `seconds` (null: not yet), `error`.')),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('tenant', 'booking'), name='staging_in_tenant')],
            },
        ),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
    ]
