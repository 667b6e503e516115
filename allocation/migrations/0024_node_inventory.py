"""What each node's agent reported last."""

import django.db.models.deletion
from django.db import migrations, models

from tenants.platform.wall import system_table


class Migration(migrations.Migration):
    dependencies = [("allocation", "0023_host_limits")]

    operations = [
        migrations.CreateModel(
            name="NodeInventory",
            fields=[
                (
                    "node",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="inventory",
                        serialize=False,
                        to="allocation.node",
                    ),
                ),
                ("document", models.JSONField()),
                ("at", models.DateTimeField()),
            ],
        ),
        migrations.RunSQL(system_table("allocation_nodeinventory"), migrations.RunSQL.noop),
    ]
