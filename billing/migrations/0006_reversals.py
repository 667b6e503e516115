"""Indexes for the few reversals among the many transfers of an account."""

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("billing", "0005_closed_months")]
    operations = [
        migrations.AddIndex("transfer", models.Index(fields=["debit"], include=["amount"], condition=Q(kind="reverse"), name="transfer_reversed_debit")),
        migrations.AddIndex("transfer", models.Index(fields=["credit"], include=["amount"], condition=Q(kind="reverse"), name="transfer_reversed_credit")),
        migrations.AddIndex("transfer", models.Index(fields=["tenant", "at", "id"], include=["kind", "debit", "credit"], condition=Q(kind__in=["settle", "charge", "reverse"], reference__isnull=False), name="transfer_lines")),
    ]
