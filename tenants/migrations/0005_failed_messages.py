"""Entries of queues on which a program failed, which stop no others."""

import django.db.models.deletion
from django.db import migrations, models

from tenants.migrations.rules import failures


class Migration(migrations.Migration):

    dependencies = [
        ('tenants', '0004_departures'),
    ]

    operations = [
        migrations.CreateModel(
            name='FailedMessage',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('queue', models.CharField(max_length=40)),
                ('key', models.CharField(help_text='Names the entry within its queue.', max_length=120)),
                ('error', models.CharField(help_text='What went wrong.', max_length=300)),
                ('tries', models.PositiveSmallIntegerField(default=1)),
                ('first_failed', models.DateTimeField()),
                ('last_failed', models.DateTimeField()),
                ('next_try', models.DateTimeField(blank=True, help_text='Null: it is parked.', null=True)),
                ('dismissed', models.DateTimeField(blank=True, help_text='An operator has decided that it is not tried again.', null=True)),
                ('tenant', models.ForeignKey(blank=True, help_text='Null: it belongs to the platform or to several tenants.', null=True, on_delete=django.db.models.deletion.PROTECT, to='tenants.tenant')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('queue', 'key'), name='failed_message_once'), models.CheckConstraint(condition=models.Q(('dismissed', None), ('next_try', None), _connector='OR'), name='failed_message_dismissed')],
            },
        ),
        migrations.RunSQL(failures.SQL, migrations.RunSQL.noop),
    ]
