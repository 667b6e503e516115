"""On how much time the network of a booking is based."""

from django.db import migrations, models

RIGHTS = "GRANT UPDATE (network_seconds) ON allocation_hostuse TO portal_system;"


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0063_progress_driver'),
    ]

    operations = [
        migrations.AddField(
            model_name='hostuse',
            name='network_seconds',
            field=models.FloatField(db_default=0, default=0, help_text='Measured time with a network, on which its sums are based.'),
        ),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
    ]
