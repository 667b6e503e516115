from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("allocation", "0006_change_feed")]
    operations = [
        migrations.AddField(
            "booking",
            "claimed_from",
            models.DateTimeField(
                blank=True, help_text="When it first waited for units that are lent.", null=True
            ),
        ),
    ]
