"""Set-up fees of tiers in price books."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("billing", "0015_platform_and_labs")]
    operations = [
        migrations.AddField(
            "pricebook",
            "setup_fees",
            models.JSONField(
                db_default=models.Value({}, output_field=models.JSONField()),
                default=dict,
                help_text="What the first start of a booking costs, by tier; none: nothing.",
            ),
        ),
    ]
