"""More rungs of a ladder, thresholds on a forecast, and the forecast of a budget."""

from django.db import migrations, models
from django.db.models import Q

MONEY = {"max_digits": 20, "decimal_places": 6, "null": True, "blank": True}


class Migration(migrations.Migration):
    dependencies = [("billing", "0007_peak_prices")]
    operations = [
        migrations.AddField("budget", "forecast", models.DecimalField(**MONEY)),
        migrations.AddField("budget", "forecast_low", models.DecimalField(**MONEY)),
        migrations.AddField("budget", "forecast_high", models.DecimalField(**MONEY)),
        migrations.AddField("budget", "forecast_at", models.DateTimeField(blank=True, help_text="When it was computed.", null=True)),
        migrations.AlterField("guardrail", "measure", models.CharField(choices=[("spent", "Spent"), ("committed", "Spent and held"), ("forecast", "Forecast at the end of the period")], max_length=10)),
        migrations.AlterField(
            "guardrail",
            "action",
            models.CharField(
                choices=[
                    ("notify", "Notify"),
                    ("approval", "Ask for an approval of new bookings"),
                    ("no_borrowing", "Start nothing on borrowed GPUs"),
                    ("no_bookings", "Take no new bookings"),
                    ("drain", "Start nothing new"),
                    ("pause", "Pause what runs, after its notice"),
                ],
                max_length=12,
            ),
        ),
        migrations.RemoveConstraint("guardrail", "guardrail_choices"),
        migrations.AddConstraint(
            "guardrail",
            models.CheckConstraint(
                condition=Q(measure__in=["spent", "committed", "forecast"])
                & Q(action__in=["notify", "approval", "no_borrowing", "no_bookings", "drain", "pause"])
                & Q(audience__in=["leads", "admins", "both"]),
                name="guardrail_choices",
            ),
        ),
    ]
