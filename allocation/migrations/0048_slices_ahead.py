"""Slices that nodes make ahead of expected requests, and a policy that says on how many GPUs."""

import importlib

import django.db.models.deletion
from django.db import migrations, models

from tenants.platform.wall import no_right, system_table

headroom = importlib.import_module("allocation.migrations.0035_headroom")
SLICES = "allocation_sliceahead"
RIGHTS = system_table(SLICES) + no_right("DELETE", SLICES) + no_right("INSERT, UPDATE, DELETE", SLICES, roles="portal_ops")
OBJECTS = ("borrow_windows", "headroom", "headroom_for", "class_weights")


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0046_machines_leave'),
        ('tenants', '0008_directory_ids'),
    ]

    operations = [
        migrations.RunSQL(
            f"{headroom.DROP}\n{headroom.document(*OBJECTS, 'slice_ahead')}",
            f"{headroom.DROP}\n{headroom.document(*OBJECTS)}",
        ),
        migrations.CreateModel(
            name='SliceAhead',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('profile', models.CharField(max_length=24)),
                ('profile_id', models.PositiveIntegerField()),
                ('start', models.PositiveSmallIntegerField(help_text='Its first memory slot.')),
                ('size', models.PositiveSmallIntegerField()),
                ('ordered', models.DateTimeField()),
                ('closed', models.DateTimeField(blank=True, help_text='When it was taken, or no longer expected.', null=True)),
                ('taken', models.BooleanField(default=False, help_text='Whether a booking started on it.')),
                ('ready_seconds', models.FloatField(blank=True, help_text='From the order to start that booking until its device was ready.', null=True)),
                ('gpu', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to='allocation.gpu')),
            ],
            options={
                'ordering': ['ordered', 'id'],
                'constraints': [models.UniqueConstraint(condition=models.Q(('closed', None)), fields=('gpu', 'start'), name='slice_ahead_once'), models.CheckConstraint(condition=models.Q(models.Q(('closed', None), ('taken', False)), ('closed__gte', models.F('ordered')), _connector='OR'), name='slice_ahead_closed')],
            },
        ),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
    ]
