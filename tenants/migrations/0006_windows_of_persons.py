"""Limits of persons at some times."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


# Admins and leads set limits of persons at some times; only operators those of a tenant.
OWN = "project_id IS NOT NULL OR lab_id IS NOT NULL OR user_id IS NOT NULL"
RULES = f"""
ALTER POLICY own_windows_added ON tenants_quotawindow WITH CHECK ({OWN});
ALTER POLICY own_windows_removed ON tenants_quotawindow USING ({OWN});
"""


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0005_platform_messages"),
    ]

    operations = [
        migrations.AddField(
            model_name="quotawindow",
            name="user",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddConstraint(
            model_name="quotawindow",
            constraint=models.CheckConstraint(
                condition=models.Q(("user", None), ("lab", None), _connector="OR"),
                name="quota_window_no_person_of_a_lab",
            ),
        ),
        migrations.RunSQL(RULES, migrations.RunSQL.noop),
    ]
