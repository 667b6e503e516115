"""What each hour had, and forecasts of demand. They name no tenant, so everybody may read them."""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models

from tenants.platform.wall import no_right, open_table

# One task writes them; hours are read again, forecasts are never changed.
RIGHTS = (
    open_table("allocation_demandhour")
    + open_table("allocation_demandforecast")
    + no_right("UPDATE", "allocation_demandforecast")
    + no_right("DELETE", "allocation_demandhour")
    + no_right("INSERT, UPDATE, DELETE", "allocation_demandhour", "allocation_demandforecast", roles="portal_ops")
)


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0018_policy_guards'),
        ('tenants', '0008_directory_ids'),
    ]

    operations = [
        migrations.CreateModel(
            name='DemandForecast',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('requested', 'GPUs asked for'), ('in_use', 'GPUs in use'), ('wanted', 'GPUs in use and waited for')], max_length=12)),
                ('at', models.DateTimeField(help_text='The first hour that it forecasts, in which it was made.')),
                ('low', django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(), help_text='8 in 10 hours are expected between low and high.', size=None)),
                ('middle', django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(), size=None)),
                ('high', django.contrib.postgres.fields.ArrayField(base_field=models.FloatField(), size=None)),
                ('hits', models.JSONField(help_text='By hours ahead: how many hours of the last four weeks kept forecasts had in their bands, of how many, and how far off they were on average in GPUs.')),
                ('gpu_class', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.gpuclass')),
            ],
            options={
                'ordering': ['gpu_class', 'kind', '-at'],
                'constraints': [models.UniqueConstraint(fields=('gpu_class', 'kind', 'at'), name='demand_forecast_once')],
            },
        ),
        migrations.CreateModel(
            name='DemandHour',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField(help_text="The hour's begin.")),
                ('requested', models.FloatField(help_text='GPUs that bookings asked for in it.')),
                ('in_use', models.FloatField(help_text='GPUs that bookings had, on average.')),
                ('wanted', models.FloatField(help_text='These, and the GPUs of bookings that waited.')),
                ('gpu_class', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='tenants.gpuclass')),
            ],
            options={
                'ordering': ['gpu_class', 'at'],
                'constraints': [models.UniqueConstraint(fields=('gpu_class', 'at'), name='demand_hour_once'), models.CheckConstraint(condition=models.Q(('in_use__gte', 0), ('requested__gte', 0), ('wanted__gte', 0)), name='demand_hour_positive')],
            },
        ),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
    ]
