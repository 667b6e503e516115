"""Tiers whose bookings are begun anew elsewhere when their node falls silent."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0003_quota_algebra")]
    operations = [
        migrations.AddField(
            "tier",
            "replace_on_lost",
            models.BooleanField(
                db_default=False,
                default=False,
                help_text="Begun anew elsewhere when its node falls silent; the node ends it itself.",
            ),
        ),
    ]
