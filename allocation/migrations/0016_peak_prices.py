"""Peak prices of bookings."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("allocation", "0015_jira"), ("billing", "0007_peak_prices")]
    operations = [
        migrations.AddField("booking", "peak_surcharge", models.DecimalField(db_default=0, decimal_places=6, default=0, help_text="More per hour in peak hours.", max_digits=20)),
        migrations.AddField("booking", "peak_zone", models.CharField(blank=True, db_default="", default="", max_length=64)),
        migrations.AddField("booking", "peak_weekly", models.JSONField(db_default=[], default=list, help_text="Peak hours, as its price book has them.")),
        migrations.AddField("booking", "used_peak_seconds", models.PositiveIntegerField(db_default=0, default=0, help_text="Those of `used_seconds` that were in peak hours.")),
    ]
