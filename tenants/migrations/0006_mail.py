"""Mails that people are owed, and which of them they want."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import protect


class Migration(migrations.Migration):
    dependencies = [("tenants", "0005_tier_pauses")]

    operations = [
        migrations.AddField(
            "user",
            "mails",
            models.CharField(
                choices=[
                    ("all", "Everything about my bookings"),
                    ("urgent", "Only what can't wait: a pause that counts down"),
                    ("none", "Nothing"),
                ],
                db_default="all",
                default="all",
                max_length=8,
            ),
        ),
        migrations.AddConstraint(
            "user",
            models.CheckConstraint(
                condition=models.Q(("mails__in", ["all", "urgent", "none"])), name="user_mails"
            ),
        ),
        migrations.CreateModel(
            "Mail",
            [
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("message", models.BigIntegerField()),
                ("kind", models.CharField(max_length=60)),
                ("booking", models.UUIDField()),
                ("at", models.DateTimeField()),
                ("due", models.DateTimeField()),
                ("tries", models.PositiveSmallIntegerField(default=0)),
                ("sent", models.DateTimeField(blank=True, null=True)),
                ("dropped", models.CharField(blank=True, max_length=120)),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant"
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("user", "message"), name="mail_once"),
                    models.CheckConstraint(
                        condition=models.Q(("sent", None), ("dropped", ""), _connector="OR"),
                        name="mail_one_end",
                    ),
                ],
                "indexes": [
                    models.Index(
                        condition=models.Q(("dropped", ""), ("sent", None)),
                        fields=["due", "id"],
                        name="mail_waiting",
                    )
                ],
            },
        ),
        migrations.RunSQL(
            protect("tenants_mail", grants="SELECT")
            + "GRANT UPDATE (mails) ON tenants_user TO portal_web;",
            reverse_sql=migrations.RunSQL.noop,
        ),
    ]
