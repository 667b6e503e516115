"""Files of large statements, which a worker makes for people."""

import django.db.models.deletion
import uuid
from django.conf import settings
from django.db import migrations, models

from tenants.platform.wall import protect, tenant_key

RULES = protect("allocation_statementexport", grants="SELECT, INSERT, DELETE") + tenant_key(
    "allocation_statementexport", "project_id", "tenants_project"
)


class Migration(migrations.Migration):
    dependencies = [
        ("allocation", "0004_fees_and_classes"),
        ("tenants", "0004_directory_groups"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="StatementExport",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("month", models.DateField(help_text="Its first day.")),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("pdf", "PDF"),
                            ("csv", "CSV"),
                            ("focus.csv", "FOCUS 1.2, CSV"),
                            ("focus.parquet", "FOCUS 1.2, Parquet"),
                        ],
                        max_length=13,
                    ),
                ),
                ("created", models.DateTimeField()),
                (
                    "lines",
                    models.PositiveIntegerField(
                        help_text="Lines of the statement when it was asked for."
                    ),
                ),
                ("lines_done", models.PositiveIntegerField(default=0)),
                ("attempts", models.PositiveSmallIntegerField(default=0)),
                ("claimed_until", models.DateTimeField(blank=True, null=True)),
                (
                    "finished_at",
                    models.DateTimeField(
                        blank=True, help_text="When it was ready, or given up.", null=True
                    ),
                ),
                (
                    "name",
                    models.CharField(
                        blank=True, help_text="The file's name, once ready.", max_length=120
                    ),
                ),
                ("size", models.PositiveBigIntegerField(default=0, help_text="Bytes of the file.")),
                (
                    "content",
                    models.BinaryField(help_text="The file, compressed by zlib.", null=True),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        help_text="Null: the statement of the whole organisation.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="tenants.project",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, to="tenants.tenant"
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["created", "id"],
                "indexes": [
                    models.Index(
                        condition=models.Q(("finished_at__isnull", True)),
                        fields=["created"],
                        name="export_open",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("user", "tenant", "project", "month", "kind"),
                        name="export_once",
                        nulls_distinct=False,
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("kind__in", ["pdf", "csv", "focus.csv", "focus.parquet"])
                        ),
                        name="export_kind",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("content__isnull", True),
                            ("finished_at__isnull", False),
                            _connector="OR",
                        ),
                        name="export_ready_is_finished",
                    ),
                ],
            },
        ),
        migrations.RunSQL(RULES, migrations.RunSQL.noop),
    ]
