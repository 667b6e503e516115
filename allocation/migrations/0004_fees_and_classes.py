"""Set-up fees of bookings, and the mark of a ladder that wants the cheapest class."""

from django.db import migrations, models


def _money(name: str, help_text: str) -> migrations.AddField:
    field = models.DecimalField(
        db_default=0, decimal_places=6, default=0, help_text=help_text, max_digits=20
    )
    return migrations.AddField("booking", name, field)


class Migration(migrations.Migration):
    dependencies = [("allocation", "0003_overrides_of_rules"), ("billing", "0003_levels_and_fees")]
    operations = [
        _money("setup_fee", "Charged once, at the first start."),
        _money("setup_paid", "What of it is charged, a part of `settled`."),
        migrations.AddField(
            "booking",
            "on_cheapest",
            models.BooleanField(
                db_default=False,
                default=False,
                help_text="The ladder of a budget wants the cheapest of its classes, not the first end.",
            ),
        ),
        migrations.AddIndex(
            "booking",
            models.Index(
                condition=models.Q(on_cheapest=True),
                fields=["tenant"],
                name="booking_on_cheapest",
            ),
        ),
    ]
