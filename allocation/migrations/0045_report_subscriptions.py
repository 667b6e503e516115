"""Statements that are mailed to people regularly."""

import datetime
import uuid

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import Q

from tenants.platform.wall import protect, tenant_key

WALL = protect("allocation_reportsubscription") + tenant_key(
    "allocation_reportsubscription", "project_id", "tenants_project"
)


class Migration(migrations.Migration):
    dependencies = [
        ("allocation", "0044_spend_variances"),
        ("tenants", "0024_mails_of_messages"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]
    operations = [
        migrations.CreateModel(
            name="ReportSubscription",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("cadence", models.CharField(choices=[("weekly", "Every week"), ("monthly", "Every month")], max_length=7)),
                ("format", models.CharField(choices=[("pdf", "PDF"), ("csv", "CSV"), ("focus.csv", "FOCUS 1.2, CSV"), ("focus.parquet", "FOCUS 1.2, Parquet")], max_length=13)),
                ("at", models.TimeField(default=datetime.time(8), help_text="By the clocks of `zone`.")),
                ("zone", models.CharField(help_text="The person's time zone when it was made.", max_length=64)),
                ("due", models.DateTimeField(help_text="When the next report is sent.")),
                ("created", models.DateTimeField()),
                ("project", models.ForeignKey(blank=True, db_constraint=False, help_text="Null: the statement of the whole organisation.", null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="tenants.project")),
                ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="tenants.tenant")),
                ("user", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL)),
            ],
            options={
                "ordering": ["created", "id"],
                "indexes": [models.Index(fields=["due"], name="report_due")],
                "constraints": [
                    models.UniqueConstraint(fields=("user", "tenant", "project", "cadence", "format"), name="report_once", nulls_distinct=False),
                    models.CheckConstraint(condition=Q(cadence__in=["weekly", "monthly"]) & Q(format__in=["pdf", "csv", "focus.csv", "focus.parquet"]), name="report_choices"),
                ],
            },
        ),
        migrations.RunSQL(WALL),
    ]
