"""Five-minute rows of what agents measured, kept for ninety days; more signals; tallies."""

import django.db.models.deletion
from django.db import migrations, models

from tenants.platform.wall import open_table, protect

# A tally tells nothing of tenants: the web only reads it. What was read twice in one moment, by a
# reader that was killed, is one reading.
ONCE = """
DELETE FROM allocation_gpusample a USING allocation_gpusample b
WHERE a.id > b.id AND a.gpu_id = b.gpu_id AND a.at = b.at AND a.slot IS NOT DISTINCT FROM b.slot;
"""
WALL = "\n".join(
    [protect("allocation_gpuuse", grants="SELECT"), open_table("allocation_eventcounter")]
)


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0010_series'),
        ('tenants', '0003_quota_algebra'),
    ]

    operations = [
        migrations.RunSQL(ONCE, migrations.RunSQL.noop),
        migrations.CreateModel(
            name='GpuUse',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('slot', models.PositiveSmallIntegerField(blank=True, null=True)),
                ('allocation_id', models.UUIDField(blank=True, null=True)),
                ('at', models.DateTimeField()),
                ('seconds', models.PositiveSmallIntegerField()),
                ('measured', models.PositiveSmallIntegerField()),
                ('busy_min', models.PositiveSmallIntegerField(blank=True, null=True)),
                ('busy_avg', models.FloatField(blank=True, null=True)),
                ('busy_max', models.PositiveSmallIntegerField(blank=True, null=True)),
                ('memory_avg_mb', models.PositiveIntegerField(blank=True, null=True)),
                ('memory_max_mb', models.PositiveIntegerField(blank=True, null=True)),
                ('memory_total_mb', models.PositiveIntegerField(blank=True, null=True)),
                ('power_avg_mw', models.PositiveIntegerField(blank=True, null=True)),
                ('power_max_mw', models.PositiveIntegerField(blank=True, null=True)),
                ('temperature_max_c', models.PositiveSmallIntegerField(blank=True, null=True)),
                ('processes_max', models.PositiveSmallIntegerField(blank=True, null=True)),
                ('bandwidth_avg', models.FloatField(blank=True, null=True)),
                ('tensor_avg', models.FloatField(blank=True, null=True)),
                ('pcie_kb', models.PositiveIntegerField(blank=True, null=True)),
                ('nvlink_kb', models.PositiveIntegerField(blank=True, null=True)),
                ('throttled', models.PositiveSmallIntegerField(blank=True, null=True)),
                ('energy_mj', models.PositiveBigIntegerField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name='EventCounter',
            fields=[
                ('name', models.CharField(max_length=80, primary_key=True, serialize=False)),
                ('count', models.PositiveBigIntegerField(default=0)),
            ],
        ),
        migrations.RemoveIndex(
            model_name='gpusample',
            name='sample_latest',
        ),
        migrations.AddField(
            model_name='gpu',
            name='peers',
            field=models.JSONField(blank=True, db_default=[], default=list),
        ),
        migrations.AddField(
            model_name='gpusample',
            name='bandwidth',
            field=models.PositiveSmallIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='gpusample',
            name='energy_mj',
            field=models.PositiveBigIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='gpusample',
            name='nvlink_rx_kb',
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='gpusample',
            name='nvlink_tx_kb',
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='gpusample',
            name='pcie_rx_kb',
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='gpusample',
            name='pcie_tx_kb',
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='gpusample',
            name='sm_mhz',
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='gpusample',
            name='tensor',
            field=models.PositiveSmallIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='gpusample',
            name='throttle',
            field=models.PositiveBigIntegerField(blank=True, null=True),
        ),
        migrations.AddIndex(
            model_name='gpusample',
            index=models.Index(fields=['at'], name='sample_age'),
        ),
        migrations.AddConstraint(
            model_name='gpusample',
            constraint=models.UniqueConstraint(fields=('gpu', 'at', 'slot'), name='sample_once', nulls_distinct=False),
        ),
        migrations.AddConstraint(
            model_name='gpusample',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('bandwidth', None), ('bandwidth__lte', 100), _connector='OR'), models.Q(('tensor', None), ('tensor__lte', 100), _connector='OR')), name='sample_percents'),
        ),
        migrations.AddConstraint(
            model_name='gpusample',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('allocation_id', None), ('tenant', None)), models.Q(('allocation_id__isnull', False), ('tenant__isnull', False)), _connector='OR'), name='sample_whose'),
        ),
        migrations.AddField(
            model_name='gpuuse',
            name='gpu',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, to='allocation.gpu'),
        ),
        migrations.AddField(
            model_name='gpuuse',
            name='tenant',
            field=models.ForeignKey(blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant'),
        ),
        migrations.AddIndex(
            model_name='gpuuse',
            index=models.Index(fields=['at'], name='use_age'),
        ),
        migrations.AddIndex(
            model_name='gpuuse',
            index=models.Index(condition=models.Q(('allocation_id__isnull', False)), fields=['allocation_id', 'at'], name='use_of_allocation'),
        ),
        migrations.AddConstraint(
            model_name='gpuuse',
            constraint=models.UniqueConstraint(fields=('gpu', 'at', 'slot', 'allocation_id'), name='use_once', nulls_distinct=False),
        ),
        migrations.AddConstraint(
            model_name='gpuuse',
            constraint=models.CheckConstraint(condition=models.Q(('measured__lte', models.F('seconds')), ('seconds__lte', 300)), name='use_seconds'),
        ),
        migrations.AddConstraint(
            model_name='gpuuse',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('busy_avg', None), ('measured', 0)), models.Q(('busy_avg__gte', 0), ('busy_avg__lte', 100), ('measured__gt', 0)), _connector='OR'), name='use_measured_or_null'),
        ),
        migrations.AddConstraint(
            model_name='gpuuse',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('allocation_id', None), ('tenant', None)), models.Q(('allocation_id__isnull', False), ('tenant__isnull', False)), _connector='OR'), name='use_whose'),
        ),
        migrations.RunSQL(WALL, migrations.RunSQL.noop),
    ]
