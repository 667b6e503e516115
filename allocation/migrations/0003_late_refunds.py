"""Bookings say which late shares an undo has given back."""

from django.db import migrations, models
from django.db.models import F, Q


class Migration(migrations.Migration):
    dependencies = [("allocation", "0002_rules"), ("billing", "0003_late_refunds")]
    operations = [
        migrations.AddField(
            model_name="booking",
            name="late_refunded",
            field=models.DecimalField(
                db_default=0,
                decimal_places=6,
                default=0,
                help_text="Late shares that an undo has given back.",
                max_digits=20,
            ),
        ),
        migrations.AddConstraint(
            model_name="booking",
            constraint=models.CheckConstraint(
                condition=Q(late_refunded__gte=0, late_refunded__lte=F("late_fees")),
                name="booking_refund_within_late_fees",
            ),
        ),
    ]
