"""Pools of hosts: a node that is a slot of one, and the host that its engine has chosen for a job."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds columns that are empty for nodes that are hosts."""

    dependencies = [("allocation", "0007_watched_metric")]

    operations = [
        migrations.AddField(
            model_name="node",
            name="engine_pool",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="The pool of which it is a slot: its engine chooses the host of each job; else empty.",
                max_length=64,
            ),
        ),
        migrations.AddField(
            model_name="allocation",
            name="host",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Where that job runs, if its node is a slot of a pool; else empty.",
                max_length=64,
            ),
        ),
    ]
