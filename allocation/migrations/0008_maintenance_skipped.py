"""Maintenance keeps the days of its rule that do not exist, as series do."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("allocation", "0007_rights")]
    operations = [
        migrations.AddField(
            model_name="maintenance",
            name="skipped",
            field=models.JSONField(
                blank=True,
                db_default=models.Value([], models.JSONField()),
                default=list,
                help_text="Days of the rule that the calendar does not have.",
            ),
        ),
    ]
