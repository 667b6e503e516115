"""Tokens know the token that made them, so that none outlives it."""

import django.db.models.deletion
from django.db import migrations, models

from tenants.platform.wall import tenant_key


class Migration(migrations.Migration):
    dependencies = [("tenants", "0007_sessions")]

    operations = [
        migrations.AddField(
            "apitoken",
            "made_with",
            models.ForeignKey(
                blank=True,
                db_constraint=False,
                help_text="The token that made this one; it ends no later than that.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                to="tenants.apitoken",
            ),
        ),
        migrations.AddConstraint(
            "apitoken",
            models.UniqueConstraint(fields=["tenant", "id"], name="apitoken_id_in_tenant"),
        ),
        migrations.RunSQL(
            tenant_key("tenants_apitoken", "made_with_id", "tenants_apitoken"),
            reverse_sql=migrations.RunSQL.noop,
        ),
    ]
