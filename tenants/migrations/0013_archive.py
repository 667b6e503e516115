"""Files of the archive, and the owner's right to move old lines of the log into them."""

import django.db.models.deletion
from django.db import migrations, models

from tenants.platform.wall import append_only, protect

# Whoever owns a table could switch its triggers off; the program that archives need not.
ARCHIVING = """
CREATE OR REPLACE FUNCTION portal_append_only() RETURNS trigger LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
BEGIN
  IF TG_OP = 'DELETE' AND current_user = 'portal_owner'
    AND TG_TABLE_NAME IN ('tenants_auditentry', 'allocation_bookingevent')
    AND current_setting('portal.archiving', true) = 'on'
  THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = '42501';
END $$;
"""


class Migration(migrations.Migration):
    """The list of files, itself append-only."""

    dependencies = [("tenants", "0012_keys_with_answers")]

    operations = [
        migrations.CreateModel(
            "ArchiveFile",
            [
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("kind", models.CharField(max_length=20)),
                ("name", models.CharField(max_length=120, unique=True)),
                ("rows", models.PositiveIntegerField()),
                ("last_seal", models.PositiveBigIntegerField(blank=True, null=True)),
                ("sha256", models.BinaryField(max_length=32)),
                ("written", models.DateTimeField()),
                (
                    "tenant",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        to="tenants.tenant",
                    ),
                ),
            ],
        ),
        migrations.RunSQL(
            protect("tenants_archivefile", grants="SELECT")
            + append_only("tenants_archivefile")
            + "REVOKE INSERT, UPDATE, DELETE ON tenants_archivefile FROM portal_system, portal_ops;"
            + ARCHIVING
        ),
    ]
