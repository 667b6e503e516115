"""Labels and references of budgets, and of what belongs to a campaign."""

from django.db import migrations, models
from django.db.models import Q

NO_LABELS = models.Value({}, output_field=models.JSONField())


class Migration(migrations.Migration):
    dependencies = [("billing", "0013_variance_rules")]
    operations = [
        migrations.AddField(
            "budget",
            "labels",
            models.JSONField(
                blank=True,
                default=dict,
                db_default=NO_LABELS,
                help_text="Key-value pairs, at most 32; what it pays has them, too.",
            ),
        ),
        migrations.AddField(
            "budget",
            "external_ref",
            models.CharField(
                max_length=500, blank=True, default="", db_default="", help_text="URL or key of a ticket."
            ),
        ),
        migrations.AddConstraint(
            "budget",
            models.CheckConstraint(
                condition=Q(external_ref__regex=r"^\S*$"), name="budget_reference_sane"
            ),
        ),
        migrations.AddField(
            "campaign",
            "match_labels",
            models.JSONField(
                blank=True,
                default=dict,
                db_default=NO_LABELS,
                help_text="All of these labels; {}: none.",
            ),
        ),
        migrations.AddField(
            "campaign",
            "match_ref",
            models.CharField(
                max_length=500, blank=True, default="", db_default="", help_text="This ticket."
            ),
        ),
        migrations.AddConstraint(
            "campaign",
            models.CheckConstraint(
                condition=Q(match_ref__regex=r"^\S*$"), name="campaign_reference_sane"
            ),
        ),
    ]
