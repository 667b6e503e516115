"""Messages and inbox entries about the platform, which belong to no tenant."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0004_directory_groups"),
    ]

    operations = [
        migrations.AlterField(
            model_name="notification",
            name="tenant",
            field=models.ForeignKey(
                blank=True,
                help_text="Null: about the platform, in the inbox of an operator.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                to="tenants.tenant",
            ),
        ),
        migrations.AlterField(
            model_name="outboxmessage",
            name="tenant",
            field=models.ForeignKey(
                blank=True,
                help_text="Null: about the platform, for operators only.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                to="tenants.tenant",
            ),
        ),
        migrations.AddConstraint(
            model_name="notification",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("tenant__isnull", False), ("path__startswith", "/ops/"), _connector="OR"
                ),
                name="notification_has_a_place",
            ),
        ),
    ]
