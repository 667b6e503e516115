"""Changes that wait for room."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds the time until which a change waits."""

    dependencies = [("allocation", "0037_bulk_acts")]

    operations = [
        migrations.AddField(
            "bookingchange",
            "keep_trying_until",
            models.DateTimeField(
                blank=True,
                help_text="It waits for room until then; null: if there is none it is kept as it is.",
                null=True,
            ),
        ),
    ]
