"""Maintenance knows which of its events programs have got."""

from django.db import migrations, models

# What is over, or has begun, when this is installed is not announced any more.
PAST = """
UPDATE allocation_maintenance SET last_event = CASE
  WHEN ended_at <= starts THEN 'cancelled'
  WHEN ended_at IS NOT NULL OR ends <= now() THEN 'ended' ELSE 'started' END
WHERE ended_at IS NOT NULL OR starts <= now();
"""


class Migration(migrations.Migration):
    dependencies = [("allocation", "0003_fleet_texts")]
    operations = [
        migrations.AddField(
            "maintenance",
            "last_event",
            models.CharField(
                choices=[
                    ("planned", "Planned"),
                    ("started", "Started"),
                    ("ended", "Ended"),
                    ("cancelled", "Cancelled"),
                ],
                db_default="planned",
                default="planned",
                help_text="The last of its events that was sent to programs.",
                max_length=9,
            ),
        ),
        migrations.RunSQL(PAST),
        migrations.AddIndex(
            "maintenance",
            models.Index(
                condition=models.Q(("last_event__in", ("planned", "started"))),
                fields=["starts"],
                name="maintenance_to_announce",
            ),
        ),
    ]
