"""The driver with which a run was measured."""

from django.db import migrations, models

RIGHTS = "GRANT UPDATE (driver) ON allocation_progress TO portal_web, portal_system;"


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0062_observed_kubernetes'),
    ]

    operations = [
        migrations.AddField(
            model_name='progress',
            name='driver',
            field=models.CharField(blank=True, db_default='', default='', help_text='Driver versions of its nodes when its rate began to be measured; empty: not known.', max_length=80),
        ),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
    ]
