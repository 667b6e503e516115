"""Caps of GPU-hours of labs."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0006_windows_of_persons"),
    ]

    operations = [
        migrations.AddField(
            model_name="labquota",
            name="cap_carries",
            field=models.BooleanField(
                db_default=False,
                default=False,
                help_text="Adds the unused hours of the month before.",
            ),
        ),
        migrations.AddField(
            model_name="labquota",
            name="cap_days",
            field=models.PositiveSmallIntegerField(
                blank=True,
                help_text="Any such number of days in a row; null is a UTC month.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="labquota",
            name="cap_gpu_hours",
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AddConstraint(
            model_name="labquota",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("cap_carries", False), ("cap_days", None), ("cap_gpu_hours", None)),
                    models.Q(("cap_days", None), ("cap_gpu_hours__gt", 0)),
                    models.Q(
                        ("cap_carries", False),
                        ("cap_days__gte", 1),
                        ("cap_days__lte", 31),
                        ("cap_gpu_hours__gt", 0),
                    ),
                    _connector="OR",
                ),
                name="lab_quota_cap_fits",
            ),
        ),
    ]
