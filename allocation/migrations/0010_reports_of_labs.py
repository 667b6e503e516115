"""Reports of labs by mail."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


from tenants.platform.wall import tenant_key


class Migration(migrations.Migration):
    dependencies = [
        ("allocation", "0009_requirements_in_projects"),
        ("tenants", "0007_caps_of_labs"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="reportsubscription",
            name="report_once",
        ),
        migrations.AddField(
            model_name="reportsubscription",
            name="lab",
            field=models.ForeignKey(
                blank=True,
                db_constraint=False,
                help_text="The statement of the projects of a lab.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="tenants.lab",
            ),
        ),
        migrations.AddConstraint(
            model_name="reportsubscription",
            constraint=models.UniqueConstraint(
                fields=("user", "tenant", "project", "lab", "cadence", "format"),
                name="report_once",
                nulls_distinct=False,
            ),
        ),
        migrations.AddConstraint(
            model_name="reportsubscription",
            constraint=models.CheckConstraint(
                condition=models.Q(("lab", None), ("project", None), _connector="OR"),
                name="report_of_one_owner",
            ),
        ),
        migrations.RunSQL(
            tenant_key("allocation_reportsubscription", "lab_id", "tenants_lab"),
            migrations.RunSQL.noop,
        ),
    ]
