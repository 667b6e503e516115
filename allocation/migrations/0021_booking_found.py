"""Indexes that hold all that a search of bookings reads."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("allocation", "0021_money")]
    operations = [
        migrations.AddIndex(
            model_name="booking",
            index=models.Index(
                fields=["tenant", "-submitted"],
                include=["id", "number", "name", "project", "owner"],
                name="booking_found",
            ),
        ),
        migrations.AddIndex(
            model_name="booking",
            index=models.Index(
                fields=["tenant", "project", "-submitted"],
                include=["id", "number", "name", "owner"],
                name="booking_found_in_project",
            ),
        ),
        migrations.RemoveIndex(model_name="booking", name="booking_latest"),
        migrations.RemoveIndex(model_name="booking", name="booking_of_project"),
    ]
