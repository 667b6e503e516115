"""Nodes and engines of Kubernetes with Volcano."""

from django.db import migrations, models
from django.db.models import Q

_KINDS = [
    ("device", "Agent"),
    ("slurm", "Slurm"),
    ("kubernetes", "Kubernetes"),
    ("quota", "Kubernetes without Kueue"),
    ("volcano", "Kubernetes with Volcano"),
]


class Migration(migrations.Migration):
    dependencies = [("allocation", "0008_pool")]

    operations = [
        migrations.AlterField(
            model_name="node",
            name="engine",
            field=models.CharField(
                choices=_KINDS,
                db_default="device",
                default="device",
                help_text="Who gives its GPUs to bookings: the agent itself, or another scheduler for it.",
                max_length=10,
            ),
        ),
        migrations.RemoveConstraint(model_name="engineagent", name="engine_is_a_scheduler"),
        migrations.AddConstraint(
            model_name="engineagent",
            constraint=models.CheckConstraint(
                condition=Q(engine__in=["", "slurm", "kubernetes", "quota", "volcano"]),
                name="engine_is_a_scheduler",
            ),
        ),
    ]
