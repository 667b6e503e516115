"""Credits that are used up once, no-shows, and nodes that contradict the portal's record."""

from django.db import migrations, models
from django.db.models import Q

# Of these zero means never, or nothing.
FROM_ZERO = "'{no_show_after,no_show_share,mode_changes,mode_patience}'::text[]"
GUARD = f"""
ALTER TABLE allocation_policyversion DROP CONSTRAINT policy_of_whole_numbers;
ALTER TABLE allocation_policyversion ADD CONSTRAINT policy_of_whole_numbers CHECK (
  jsonb_typeof(document) = 'object'
  AND NOT jsonb_path_exists(document, '$.* ? (@.type() != "number" || @ < 0 || @ != @.floor())')
  AND NOT jsonb_path_exists(document - {FROM_ZERO}, '$.* ? (@ < 1)')
);
"""
SECONDS = {"db_default": 0, "default": 0}


class Migration(migrations.Migration):
    dependencies = [
        ("allocation", "0020_modes"),
    ]

    operations = [
        migrations.RunSQL(GUARD, migrations.RunSQL.noop),
        migrations.AddField("booking", "redo_seconds", models.PositiveIntegerField(**SECONDS)),
        migrations.AddField("booking", "credited_seconds", models.PositiveIntegerField(**SECONDS)),
        migrations.AddField("booking", "fee_seconds", models.PositiveIntegerField(**SECONDS)),
        migrations.AddField("booking", "absent_seconds", models.PositiveIntegerField(**SECONDS)),
        migrations.AddField(
            "booking", "absent_until", models.DateTimeField(blank=True, null=True)
        ),
        migrations.AddField(
            "booking", "absence_warnings", models.PositiveSmallIntegerField(**SECONDS)
        ),
        migrations.AddField(
            "pause",
            "own",
            models.CharField(
                max_length=8,
                blank=True,
                db_default="",
                default="",
                choices=[
                    ("owner", "the same owner"),
                    ("project", "the same project"),
                    ("tenant", "the same organisation"),
                    ("member", "a member of this organisation"),
                ],
            ),
        ),
        migrations.AddConstraint(
            "pause",
            models.CheckConstraint(
                condition=Q(own__in=["", "owner", "project", "tenant", "member"]),
                name="pause_own_known",
            ),
        ),
        migrations.AddField("node", "conflicts", models.BigIntegerField(**SECONDS)),
        migrations.AddField("node", "refunded_seconds", models.BigIntegerField(**SECONDS)),
        migrations.AlterField(
            "gpuevent",
            "kind",
            models.CharField(
                max_length=10,
                choices=[
                    ("xid", "Error"),
                    ("ecc", "Memory error"),
                    ("lost", "Not found"),
                    ("drift", "Made by hand"),
                    ("foreign", "Unbooked use"),
                    ("intruder", "Use by others"),
                    ("hang", "Driver hangs"),
                    ("silent", "Not heard"),
                    ("slow", "Slow start"),
                    ("mode", "Mode change"),
                    ("warned", "Users warned"),
                    ("asked", "Asked to end"),
                    ("killed", "Ended"),
                    ("conflict", "Contradiction"),
                    ("operator", "Operator"),
                ],
            ),
        ),
    ]
