"""What a broken run counts for stands on its places, also when the booking is paused later."""

from django.db import migrations, models

# What was kept of broken runs so far was laid to the end of the last of them; it stays there.
KEPT = """
UPDATE allocation_allocation a SET kept_seconds = b.used_seconds
FROM allocation_booking b
WHERE b.id = a.booking_id AND b.used_seconds > 0 AND a."left"
  AND lower(a.period) = (SELECT max(lower(l.period)) FROM allocation_allocation l
                         WHERE l.booking_id = a.booking_id AND l."left");
"""


class Migration(migrations.Migration):
    dependencies = [
        ("allocation", "0011_telemetry"),
    ]

    operations = [
        migrations.AddField(
            "allocation",
            "kept_seconds",
            models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.RunSQL(KEPT, migrations.RunSQL.noop),
    ]
