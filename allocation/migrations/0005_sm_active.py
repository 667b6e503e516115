"""The time that SMs had work, in readings and in the rows of five minutes."""

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """Adds nullable columns; what is there has no reading of it."""

    dependencies = [
        ("allocation", "0004_node_host_name"),
        ("tenants", "0002_rules"),
    ]

    operations = [
        migrations.AddField("gpusample", "sm", models.PositiveSmallIntegerField(null=True, blank=True)),
        migrations.AddField("gpuuse", "sm_avg", models.FloatField(null=True, blank=True)),
        migrations.AddConstraint(
            "gpusample",
            models.CheckConstraint(condition=Q(sm=None) | Q(sm__lte=100), name="sample_sm_percent"),
        ),
    ]
