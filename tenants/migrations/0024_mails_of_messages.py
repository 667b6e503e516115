"""Mails about anything that is no booking and no invitation, such as disputes and failing hooks."""

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("tenants", "0023_directory")]
    operations = [
        migrations.RemoveConstraint("mail", "mail_about_one"),
        migrations.AddConstraint(
            "mail",
            models.CheckConstraint(
                condition=Q(booking__isnull=False, invitation=None)
                | Q(booking=None, invitation__isnull=False)
                | (Q(booking=None, invitation=None) & ~Q(kind__startswith="booking.")),
                name="mail_about_one",
            ),
        ),
    ]
