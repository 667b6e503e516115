"""Indexes of the bookings that each turn of the solver asks for."""

from django.db import migrations, models

_OVER = ["ended", "refused", "rejected", "expired", "cancelled", "failed"]


class Migration(migrations.Migration):
    """Indexes only: no row changes."""

    dependencies = [("allocation", "0002_rules")]
    operations = [
        migrations.RemoveIndex(model_name="booking", name="booking_open"),
        migrations.AddIndex(
            model_name="booking",
            index=models.Index(
                fields=["state", "planned_starts"],
                name="booking_open",
                condition=~models.Q(state__in=_OVER),
            ),
        ),
        migrations.AddIndex(
            model_name="booking",
            index=models.Index(
                fields=["state"],
                name="booking_borrowing",
                condition=models.Q(borrowed_units__gt=0)
                | models.Q(at_risk_from__isnull=False)
                | models.Q(reclaims_from__isnull=False),
            ),
        ),
        migrations.AddIndex(
            model_name="booking",
            index=models.Index(
                fields=["state"],
                name="booking_extended",
                condition=models.Q(extension_until__isnull=False),
            ),
        ),
    ]
