"""Comparisons of the spend of the platform, which belong to no tenant."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("allocation", "0005_statement_exports"),
        ("tenants", "0005_platform_messages"),
    ]

    operations = [
        migrations.AlterField(
            model_name="spendvariance",
            name="tenant",
            field=models.ForeignKey(
                blank=True,
                help_text="Null: of a budget of the platform.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                to="tenants.tenant",
            ),
        ),
    ]
