"""Peak hours and peak prices of price books, and the part of a charge that is for them."""

from django.db import migrations, models
from django.db.models import F, Q


class Migration(migrations.Migration):
    dependencies = [("billing", "0006_reversals")]
    operations = [
        migrations.AddField("pricebook", "published_at", models.DateTimeField(help_text="Quotes of before it don't know it; null: from `valid_from` on.", null=True)),
        migrations.AddField("pricebook", "peak_zone", models.CharField(db_default="UTC", default="UTC", help_text="Whose clocks the peak hours are.", max_length=64)),
        migrations.AddField("pricebook", "peak_weekly", models.JSONField(db_default=[], default=list, help_text="Peak hours: [weekday, first hour, hour of the end], Monday is 0.")),
        migrations.AddField("price", "peak_per_gpu_hour", models.DecimalField(decimal_places=4, help_text="In peak hours; null: the same.", max_digits=12, null=True)),
        migrations.AddField("transfer", "surcharge", models.DecimalField(db_default=0, decimal_places=6, default=0, help_text="The part of a charge that is for peak hours.", max_digits=20)),
        migrations.AddConstraint("price", models.CheckConstraint(condition=Q(peak_per_gpu_hour=None) | Q(peak_per_gpu_hour__gte=F("per_gpu_hour"), peak_per_gpu_hour__lt=1_000_000), name="price_peak_not_lower")),
        migrations.AddConstraint("transfer", models.CheckConstraint(condition=Q(surcharge=0) | Q(kind="settle", surcharge__gt=0, surcharge__lte=F("amount")), name="transfer_surcharge_in_charge")),
    ]
