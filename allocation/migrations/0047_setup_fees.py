"""Set-up fees of bookings."""

from django.db import migrations, models


def _money(name: str, help_text: str) -> migrations.AddField:
    field = models.DecimalField(
        db_default=0, decimal_places=6, default=0, help_text=help_text, max_digits=20
    )
    return migrations.AddField("booking", name, field)


class Migration(migrations.Migration):
    dependencies = [("allocation", "0046_decisions_for_people"), ("billing", "0016_setup_fees")]
    operations = [
        _money("setup_fee", "Charged once, at the first start."),
        _money("setup_paid", "What of it is charged, a part of `settled`."),
    ]
