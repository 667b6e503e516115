"""Leases, numbers of everything that nodes say, and what keeps a node from new work."""

from django.db import migrations, models
from django.db.models import Q

ZERO = models.BigIntegerField(db_default=0, default=0)
NO = models.BooleanField(db_default=False, default=False)


class Migration(migrations.Migration):
    dependencies = [("allocation", "0005_node_access"), ("tenants", "0004_replace")]
    operations = [
        migrations.AddField("node", "heartbeat_seq", ZERO.clone()),
        migrations.AddField("node", "telemetry_seq", ZERO.clone()),
        migrations.AddField("node", "inventory_seq", ZERO.clone()),
        migrations.AddField("node", "stale_dropped", ZERO.clone()),
        migrations.AddField("node", "refused", ZERO.clone()),
        migrations.AddField("node", "throttled", ZERO.clone()),
        migrations.AddField("node", "heartbeat_at", models.DateTimeField(blank=True, null=True)),
        migrations.AddField(
            "node", "clock_skew_seconds", models.IntegerField(blank=True, null=True)
        ),
        migrations.AddField("node", "clock_wrong", NO.clone()),
        migrations.AddField("node", "cut_off", NO.clone()),
        migrations.AddField("node", "ahead_epoch", models.BigIntegerField(blank=True, null=True)),
        migrations.AddField("node", "differences", models.JSONField(db_default=[], default=list)),
        migrations.AddField(
            "booking", "replaced", models.PositiveSmallIntegerField(db_default=0, default=0)
        ),
        migrations.AddField(
            "booking", "used_seconds", models.PositiveIntegerField(db_default=0, default=0)
        ),
        migrations.AddField("allocation", "leased", NO.clone()),
        migrations.AddField("allocation", "left", NO.clone()),
        migrations.AddConstraint(
            "allocation",
            models.CheckConstraint(
                condition=Q(left=False) | Q(state__in=["releasing", "ended"]),
                name="allocation_abandoned_is_over",
            ),
        ),
    ]
