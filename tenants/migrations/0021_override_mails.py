"""Mails about exceptions from limits and failing policy hooks, which are about no booking."""

from django.db import migrations, models
from django.db.models import Q

KINDS = [
    "password.reset",
    "budget.threshold_reached",
    "policy_hook.failing",
    "override.asked",
    "override.granted",
    "override.declined",
    "override.ending",
]


class Migration(migrations.Migration):
    dependencies = [("tenants", "0020_labs")]
    operations = [
        migrations.RemoveConstraint("mail", "mail_about_one"),
        migrations.AddConstraint(
            "mail",
            models.CheckConstraint(
                condition=Q(booking__isnull=False, invitation=None)
                | Q(booking=None, invitation__isnull=False)
                | Q(booking=None, invitation=None, kind__in=KINDS),
                name="mail_about_one",
            ),
        ),
    ]
