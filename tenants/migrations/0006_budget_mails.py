"""Mails about budgets, whose facts are in their outbox message."""

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("tenants", "0005_token_scopes")]
    operations = [
        migrations.RemoveConstraint("mail", "mail_about_one"),
        migrations.AddConstraint(
            "mail",
            models.CheckConstraint(
                condition=Q(booking__isnull=False, invitation=None)
                | Q(booking=None, invitation__isnull=False)
                | Q(
                    booking=None,
                    invitation=None,
                    kind__in=["password.reset", "budget.threshold_reached"],
                ),
                name="mail_about_one",
            ),
        ),
    ]
