"""Groups that a tenant's directory keeps."""

import uuid

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.text
from django.db import migrations, models

from tenants.platform.wall import protect


class Migration(migrations.Migration):
    dependencies = [("tenants", "0003_audit_named")]

    operations = [
        migrations.CreateModel(
            name="DirectoryGroup",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "name",
                    models.CharField(help_text="`displayName` of the directory.", max_length=200),
                ),
                (
                    "external_id",
                    models.CharField(blank=True, help_text="`externalId`.", max_length=255),
                ),
                (
                    "members",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), help_text="Ids of accounts.", size=None
                    ),
                ),
                ("created", models.DateTimeField()),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        django.db.models.functions.text.Lower("name"),
                        models.F("tenant"),
                        name="directory_group_once",
                    ),
                    models.UniqueConstraint(
                        fields=("tenant", "id"), name="directory_group_id_in_tenant"
                    ),
                ]
            },
        ),
        # The operators' process alone reads and writes what gives people roles.
        migrations.RunSQL(protect("tenants_directorygroup", grants="")),
    ]
