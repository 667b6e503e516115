"""A key is written with its answer, in one transaction: no claim of it is ever seen."""

from django.db import migrations, models

# Claims whose request died: the next request with the key works.
CLAIMS = "DELETE FROM tenants_idempotencykey WHERE answer IS NULL"
FINAL = "UPDATE tenants_idempotencykey SET is_final = locked_until IS NULL"


class Migration(migrations.Migration):
    """The time of a claim goes, and whether an answer is final comes."""

    dependencies = [("tenants", "0011_audit_chain")]

    operations = [
        migrations.RunSQL(CLAIMS, migrations.RunSQL.noop),
        migrations.AddField(
            "idempotencykey",
            "is_final",
            models.BooleanField(default=True, help_text="False while a better answer is awaited."),
            preserve_default=False,
        ),
        migrations.RunSQL(FINAL, migrations.RunSQL.noop),
        migrations.RemoveField("idempotencykey", "locked_until"),
        migrations.AlterField("idempotencykey", "status", models.PositiveSmallIntegerField()),
        migrations.AlterField("idempotencykey", "answer", models.JSONField()),
    ]
