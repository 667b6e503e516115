"""What `doctor` found on each node last."""

import django.db.models.deletion
from django.db import migrations, models

from tenants.platform.wall import system_table

# A node says this: what it may fill is bounded where it is stored, too.
BOUNDED = """
ALTER TABLE allocation_nodeexamination ADD CONSTRAINT examination_is_bounded CHECK (
  jsonb_typeof(checks) = 'array' AND jsonb_array_length(checks) <= 64
  AND octet_length(checks::text) <= 262144
);
"""


class Migration(migrations.Migration):
    dependencies = [("allocation", "0030_corrections")]

    operations = [
        migrations.CreateModel(
            name="NodeExamination",
            fields=[
                (
                    "node",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="examination",
                        serialize=False,
                        to="allocation.node",
                    ),
                ),
                ("checks", models.JSONField()),
                ("seq", models.BigIntegerField()),
                ("at", models.DateTimeField()),
            ],
        ),
        migrations.RunSQL(
            system_table("allocation_nodeexamination") + BOUNDED, migrations.RunSQL.noop
        ),
    ]
