"""Changes of fixed windows that wait for any earlier start."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("allocation", "0006_platform_messages")]

    operations = [
        migrations.AddField(
            model_name="bookingchange",
            name="is_sooner",
            field=models.BooleanField(
                db_default=False,
                default=False,
                help_text="Any earlier start is taken, and becomes the start of the fixed window.",
            ),
        ),
    ]
