"""Requirements of tiers in some projects only."""

from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("allocation", "0008_claims_that_were_cancelled"),
        ("tenants", "0007_caps_of_labs"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="requirement",
            name="projects",
            field=models.JSONField(
                db_default=models.Value([], models.JSONField()),
                default=list,
                help_text="Slugs of the projects in which a tier demands it; empty: in all.",
            ),
        ),
        migrations.AddConstraint(
            model_name="requirement",
            constraint=models.CheckConstraint(
                condition=models.Q(("projects", []), ("tier__isnull", False), _connector="OR"),
                name="requirement_projects_of_tier",
            ),
        ),
    ]
