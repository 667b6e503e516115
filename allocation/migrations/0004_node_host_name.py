"""Adds the name that a node has in its engine's scheduler, where that is another one."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("allocation", "0003_prices_of_workers")]

    operations = [
        migrations.AddField(
            model_name="node",
            name="host_name",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="As its engine's scheduler names it, where that is another name; else empty.",
                max_length=64,
            ),
        ),
    ]
