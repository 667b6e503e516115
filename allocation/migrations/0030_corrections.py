"""What operators gave back of a booking's charge, or charged more."""

from django.db import migrations, models
from django.db.models import F, Q


class Migration(migrations.Migration):
    dependencies = [("allocation", "0029_feed_readers"), ("billing", "0004_corrections")]

    operations = [
        migrations.AddField(
            "booking",
            "corrected",
            models.DecimalField(db_default=0, decimal_places=6, default=0, max_digits=20),
        ),
        migrations.AddConstraint(
            "booking",
            models.CheckConstraint(
                condition=Q(corrected=0)
                | Q(
                    charged__isnull=False,
                    corrected__gte=-F("charged"),
                    corrected__lte=F("held") - F("charged"),
                ),
                name="booking_correction_sane",
            ),
        ),
    ]
