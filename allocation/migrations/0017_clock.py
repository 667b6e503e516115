"""The portal's own clock, watched; what nodes do about strangers, by policy or for themselves."""

from django.db import migrations, models

from tenants.platform.wall import system_table


class Migration(migrations.Migration):
    dependencies = [
        ("allocation", "0016_asked_and_feeds"),
    ]

    operations = [
        migrations.CreateModel(
            name="MachineClock",
            fields=[
                ("machine", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("clock_offset", models.DurationField()),
                ("jump", models.DurationField(blank=True, null=True)),
            ],
        ),
        migrations.RunSQL(system_table("allocation_machineclock"), migrations.RunSQL.noop),
        migrations.AddField(
            "node", "unbooked_override", models.BooleanField(db_default=False, default=False)
        ),
        migrations.AddField(
            "node", "implausible", models.BigIntegerField(db_default=0, default=0)
        ),
        # What was said until now was said of each node.
        migrations.RunSQL(
            "UPDATE allocation_node SET unbooked_override = true WHERE unbooked_warn_after IS NOT NULL",
            migrations.RunSQL.noop,
        ),
    ]
