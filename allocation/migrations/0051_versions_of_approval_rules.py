"""Approval rules are changed in place, each change with a new version."""

from django.db import migrations, models

RULE = "allocation_approvalrule"
FIELDS = (
    "project_id, name, min_cost, min_gpu_hours, min_gpus, min_seconds, classes, tiers, hours_begin, hours_end,"
    " weekdays, zone, is_first, steps, version"
)


class Migration(migrations.Migration):
    dependencies = [("allocation", "0049_limit_cuts")]
    operations = [
        migrations.AddField(
            model_name="approvalrule",
            name="version",
            field=models.PositiveIntegerField(db_default=1, default=1, help_text="Rises with every change."),
        ),
        migrations.RunSQL(
            f"GRANT UPDATE ({FIELDS}) ON {RULE} TO portal_web;",
            f"REVOKE UPDATE ({FIELDS}) ON {RULE} FROM portal_web;",
        ),
    ]
