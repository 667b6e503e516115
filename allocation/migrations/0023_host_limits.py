"""Whether a node keeps bookings to their host cores and memory."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("allocation", "0022_kept")]

    operations = [
        migrations.AddField(
            "node",
            "host_limits",
            models.CharField(
                choices=[("counted", "Counted"), ("enforced", "Enforced")],
                db_default="counted",
                default="counted",
                max_length=8,
            ),
        ),
        migrations.AddField(
            "node",
            "host_note",
            models.CharField(blank=True, db_default="", default="", max_length=200),
        ),
    ]
