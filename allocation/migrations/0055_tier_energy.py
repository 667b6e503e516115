"""Tiers whose work waits for cheap or clean energy."""

import django.db.models.deletion
from django.db import migrations, models

from allocation.migrations.rules.change_feed import of_all
from tenants.platform.wall import no_right, open_table

TABLE = "allocation_tierenergy"
RIGHTS = (
    open_table(TABLE)
    + no_right("INSERT, UPDATE, DELETE", TABLE, roles="portal_system")
    + of_all(TABLE)
    + of_all("allocation_zone")
)


class Migration(migrations.Migration):

    dependencies = [
        ('allocation', '0054_zones'),
        ('tenants', '0008_directory_ids'),
    ]

    operations = [
        migrations.CreateModel(
            name='TierEnergy',
            fields=[
                ('tier', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='+', serialize=False, to='tenants.tier')),
                ('prefers', models.CharField(choices=[('price', 'Cheap energy'), ('carbon', 'Clean energy')], max_length=6)),
                ('hours', models.PositiveSmallIntegerField(help_text='The most that it waits, from when it could have run.')),
            ],
            options={
                'ordering': ['tier'],
                'constraints': [models.CheckConstraint(condition=models.Q(('prefers__in', ['price', 'carbon'])), name='tier_energy_is_one'), models.CheckConstraint(condition=models.Q(('hours__gte', 1), ('hours__lte', 48)), name='tier_energy_waits_so_long')],
            },
        ),
        migrations.RunSQL(RIGHTS, migrations.RunSQL.noop),
    ]
