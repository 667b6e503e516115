"""From when on the spend of a budget is unusual."""

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("billing", "0012_slice_prices")]
    operations = [
        migrations.AddField(
            "budget",
            "variance_percent",
            models.PositiveSmallIntegerField(
                null=True,
                blank=True,
                default=50,
                db_default=50,
                help_text="More than expected, in percent; null: nobody is notified.",
            ),
        ),
        migrations.AddField(
            "budget",
            "variance_amount",
            models.DecimalField(
                max_digits=20,
                decimal_places=6,
                default=20,
                db_default=20,
                help_text="The least difference that notifies.",
            ),
        ),
        migrations.AddConstraint(
            "budget",
            models.CheckConstraint(
                condition=Q(variance_percent=None) | Q(variance_percent__range=(1, 1000)),
                name="budget_variance_percent",
            ),
        ),
        migrations.AddConstraint(
            "budget",
            models.CheckConstraint(
                condition=Q(variance_amount__gte=0), name="budget_variance_amount"
            ),
        ),
    ]
