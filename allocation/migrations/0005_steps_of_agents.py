"""Allocations keep the times of their agents' steps, for traces."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("allocation", "0004_events_of_maintenance")]
    operations = [
        migrations.AddField(
            "allocation",
            "agent_steps",
            models.JSONField(
                blank=True,
                help_text="Name, start and length in ms of what its agent did until it was ready; "
                "null unless traces are on.",
                null=True,
            ),
        ),
    ]
