"""Maintenance windows, errors of GPUs, and bookings that hardware broke off."""

import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import open_table, system_table

# A run that hardware broke off, and for which there is no room any more.
STEPS = """
INSERT INTO allocation_transition VALUES ('queued', 'failed') ON CONFLICT DO NOTHING;
"""
# When hardware is away is everybody's business; what went wrong on it is the operator's.
WALL = open_table("allocation_maintenance") + system_table("allocation_gpuevent")


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0007_shares'),
        ('tenants', '0004_replace'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Maintenance',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('starts', models.DateTimeField()),
                ('ends', models.DateTimeField()),
                ('drain_by', models.DateTimeField()),
                ('reason', models.CharField(max_length=120)),
                ('created', models.DateTimeField()),
                ('ended_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'ordering': ['starts', 'id'],
            },
        ),
        migrations.CreateModel(
            name='GpuEvent',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('xid', 'Error'), ('ecc', 'Memory error'), ('lost', 'Not found'), ('drift', 'Made by hand'), ('foreign', 'Unbooked use'), ('operator', 'Operator')], max_length=10)),
                ('code', models.IntegerField(blank=True, null=True)),
                ('instance', models.CharField(blank=True, max_length=80)),
                ('slot', models.SmallIntegerField(blank=True, null=True)),
                ('at', models.DateTimeField()),
                ('until', models.DateTimeField(blank=True, null=True)),
                ('sentence', models.CharField(max_length=300)),
            ],
            options={
                'ordering': ['-id'],
            },
        ),
        migrations.AddField(
            model_name='booking',
            name='hardware_lost_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='gpu',
            name='drain_by',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='gpu',
            name='needs_operator',
            field=models.BooleanField(db_default=False, default=False),
        ),
        migrations.AddField(
            model_name='node',
            name='drain_by',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddConstraint(
            model_name='gpu',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('drain_by', None), ('needs_operator', False)), models.Q(('health', 'ok'), _negated=True), _connector='OR'), name='gpu_in_service_is_healthy'),
        ),
        migrations.AddConstraint(
            model_name='node',
            constraint=models.CheckConstraint(condition=models.Q(('drain_by', None), ('state', 'draining'), _connector='OR'), name='node_drain_by_drains'),
        ),
        migrations.AddField(
            model_name='maintenance',
            name='created_by',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='maintenance',
            name='gpu',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='allocation.gpu'),
        ),
        migrations.AddField(
            model_name='maintenance',
            name='node',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='allocation.node'),
        ),
        migrations.AddField(
            model_name='maintenance',
            name='rack',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, to='allocation.rack'),
        ),
        migrations.AddField(
            model_name='gpuevent',
            name='gpu',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, to='allocation.gpu'),
        ),
        migrations.AddField(
            model_name='gpuevent',
            name='node',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='events', to='allocation.node'),
        ),
        migrations.AddIndex(
            model_name='maintenance',
            index=models.Index(condition=models.Q(('ended_at', None)), fields=['ends'], name='maintenance_open'),
        ),
        migrations.AddConstraint(
            model_name='maintenance',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('gpu', None), ('node', None), ('rack__isnull', False)), models.Q(('gpu', None), ('node__isnull', False), ('rack', None)), models.Q(('gpu__isnull', False), ('node', None), ('rack', None)), _connector='OR'), name='maintenance_of_one_thing'),
        ),
        migrations.AddConstraint(
            model_name='maintenance',
            constraint=models.CheckConstraint(condition=models.Q(('drain_by__gte', models.F('starts')), ('starts__lt', models.F('ends')), ('drain_by__lte', models.F('ends'))), name='maintenance_window_sane'),
        ),
        migrations.AddIndex(
            model_name='gpuevent',
            index=models.Index(fields=['node', '-id'], name='gpu_event_of_node'),
        ),
        migrations.AddConstraint(
            model_name='gpuevent',
            constraint=models.UniqueConstraint(condition=models.Q(('kind__in', ['xid', 'ecc'])), fields=('gpu', 'kind', 'code', 'instance', 'at'), name='gpu_error_once'),
        ),
        migrations.AddConstraint(
            model_name='gpuevent',
            constraint=models.UniqueConstraint(condition=models.Q(('kind__in', ['drift', 'foreign']), ('until', None)), fields=('gpu', 'kind', 'slot'), name='gpu_trouble_once', nulls_distinct=False),
        ),
        migrations.RunSQL(STEPS, migrations.RunSQL.noop),
        migrations.RunSQL(WALL, migrations.RunSQL.noop),
    ]
