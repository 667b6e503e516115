"""Lets no two people or groups of a directory have one `externalId`."""

from django.db import migrations, models

# The oldest keeps it. The directory sets that of others again when it next finds them by name.
ONCE = """
UPDATE {table} r SET external_id = '' WHERE external_id <> '' AND EXISTS (
  SELECT FROM {table} o WHERE o.tenant_id = r.tenant_id AND o.external_id = r.external_id
    AND (o.created, o.id) < (r.created, r.id));
SET CONSTRAINTS ALL IMMEDIATE;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0007_rights"),
    ]

    operations = [
        migrations.RunSQL(
            "".join(ONCE.format(table=f"tenants_directory{each}") for each in ("group", "person")),
            migrations.RunSQL.noop,
        ),
        migrations.AddConstraint(
            model_name="directorygroup",
            constraint=models.UniqueConstraint(
                condition=models.Q(("external_id", ""), _negated=True),
                fields=("tenant", "external_id"),
                name="directory_group_external_id_once",
            ),
        ),
        migrations.AddConstraint(
            model_name="directoryperson",
            constraint=models.UniqueConstraint(
                condition=models.Q(("external_id", ""), _negated=True),
                fields=("tenant", "external_id"),
                name="directory_external_id_once",
            ),
        ),
    ]
