"""Labels and references of projects."""

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("tenants", "0024_mails_of_messages")]
    operations = [
        migrations.AddField(
            "project",
            "labels",
            models.JSONField(
                blank=True,
                default=dict,
                db_default=models.Value({}, output_field=models.JSONField()),
                help_text="Key-value pairs, at most 32; its charges have them, too.",
            ),
        ),
        migrations.AddField(
            "project",
            "external_ref",
            models.CharField(
                max_length=500, blank=True, default="", db_default="", help_text="URL or key of a ticket."
            ),
        ),
        migrations.AddConstraint(
            "project",
            models.CheckConstraint(
                condition=Q(external_ref__regex=r"^\S*$"), name="project_reference_sane"
            ),
        ),
    ]
