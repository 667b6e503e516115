"""Organisations that cancelled a claim after others had notice for it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("allocation", "0007_changes_to_any_earlier_start")]

    operations = [
        migrations.AddField(
            model_name="booking",
            name="cooling_until",
            field=models.DateTimeField(
                blank=True,
                help_text="It was cancelled after others had notice for it: until then nobody is "
                "paused for its organisation.",
                null=True,
            ),
        ),
        migrations.AddIndex(
            model_name="booking",
            index=models.Index(
                condition=models.Q(("cooling_until__isnull", False)),
                fields=["cooling_until"],
                name="booking_cooling",
            ),
        ),
    ]
