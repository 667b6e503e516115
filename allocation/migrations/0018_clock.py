"""The portal's own clock, watched."""

from django.db import migrations, models

from tenants.wall import system_table


class Migration(migrations.Migration):
    dependencies = [
        ("allocation", "0015_life"),
    ]

    operations = [
        migrations.CreateModel(
            name="MachineClock",
            fields=[
                ("machine", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("apart", models.DurationField()),
                ("jump", models.DurationField(blank=True, null=True)),
            ],
        ),
        migrations.RunSQL(system_table("allocation_machineclock"), migrations.RunSQL.noop),
    ]
