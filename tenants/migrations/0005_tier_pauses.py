"""What a tier says of pauses: method, how often, credit and more time."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0004_replace"),
    ]

    operations = [
        migrations.AddField(
            model_name="tier",
            name="credit_cap_seconds",
            field=models.PositiveIntegerField(db_default=14400, default=14400),
        ),
        migrations.AddField(
            model_name="tier",
            name="max_pauses",
            field=models.PositiveSmallIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="tier",
            name="more_time_seconds",
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="tier",
            name="more_times",
            field=models.PositiveSmallIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="tier",
            name="pause_method",
            field=models.CharField(
                choices=[
                    ("stop", "Ended by the node"),
                    ("signal", "Ends itself, killed at the deadline"),
                    ("suspend", "Frozen on its node"),
                ],
                db_default="stop",
                default="stop",
                max_length=8,
            ),
        ),
        migrations.AddConstraint(
            model_name="tier",
            constraint=models.CheckConstraint(
                condition=models.Q(("pause_method__in", ["stop", "signal", "suspend"])),
                name="tier_pause_method",
            ),
        ),
    ]
