"""Trials with more GPUs, and what organisations read of them."""

import django.db.models.deletion
from django.db import migrations, models

from tenants.platform.wall import no_right, protect

_TABLE = "allocation_policytrialtenant"
# The process that plays trials writes it, once.
RIGHTS = (
    protect(_TABLE, grants="SELECT")
    + no_right("UPDATE, DELETE", _TABLE, roles="portal_system")
    + no_right("INSERT, UPDATE, DELETE", _TABLE, roles="portal_ops")
)


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0064_network_of_bookings'),
        ('tenants', '0009_rights_to_credentials'),
    ]

    operations = [
        migrations.AddField(
            model_name='policytrial',
            name='fleet',
            field=models.JSONField(blank=True, db_default={}, default=dict, help_text='`gpu_class`, `gpus`, `from_hour` and `to_hour` that the site has more; empty: none.'),
        ),
        migrations.CreateModel(
            name='PolicyTrialTenant',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('trial', models.UUIDField(help_text='The trial.')),
                ('fleet', models.JSONField(help_text='As in the trial.')),
                ('days', models.PositiveSmallIntegerField()),
                ('until', models.DateTimeField(help_text='The end of the past that was played.')),
                ('rows', models.JSONField(help_text='Waits of the organisation and of its projects, in seconds.')),
                ('tenant', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'ordering': ['-until', '-id'],
                'constraints': [models.UniqueConstraint(fields=('tenant', 'trial'), name='policy_trial_tenant_once')],
            },
        ),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
    ]
