"""Planned outages, frozen decisions and backups; how long the leases of nodes last."""

import uuid

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import open_table


class Migration(migrations.Migration):
    dependencies = [
        ("allocation", "0026_withheld"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            "node", "lease_said", models.PositiveIntegerField(db_default=0, default=0)
        ),
        migrations.AddField(
            "node", "long_lease", models.PositiveIntegerField(db_default=0, default=0)
        ),
        migrations.AddField(
            "node", "long_lease_seq", models.BigIntegerField(db_default=0, default=0)
        ),
        migrations.CreateModel(
            name="PortalMode",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "kind",
                    models.CharField(
                        choices=[("outage", "Planned outage"), ("freeze", "Decisions frozen")],
                        max_length=6,
                    ),
                ),
                ("since", models.DateTimeField()),
                ("until", models.DateTimeField(blank=True, null=True)),
                ("closed_at", models.DateTimeField(blank=True, null=True)),
                ("reason", models.CharField(max_length=120)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                (
                    "begun_by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["-since"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at", None)),
                        fields=("kind",),
                        name="portal_mode_open_once",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("until", None), ("until__gt", models.F("since")), _connector="OR"
                        ),
                        name="portal_mode_window_sane",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("closed_at", None), ("kind", "freeze")),
                            models.Q(("kind", "outage"), ("until__isnull", False)),
                            _connector="OR",
                        ),
                        name="portal_mode_outage_ends",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("reason", ""), _negated=True),
                        name="portal_mode_has_reason",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Backup",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
                ("lsn", models.CharField(max_length=24)),
                ("size", models.BigIntegerField()),
                ("sha256", models.CharField(max_length=64)),
                ("checked_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={"ordering": ["-at"]},
        ),
        migrations.RunSQL(
            open_table("allocation_portalmode")
            + open_table("allocation_backup")
            # /readyz says which of them a database lacks.
            + "GRANT SELECT ON django_migrations TO portal_web, portal_system, portal_ops;",
            migrations.RunSQL.noop,
        ),
    ]
