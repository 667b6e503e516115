"""The rungs of budgets' ladders."""

import uuid

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q

from tenants.platform.wall import protect, tenant_key


class Migration(migrations.Migration):
    dependencies = [("billing", "0003_budget_tree")]
    operations = [
        migrations.AddConstraint("budget", models.UniqueConstraint(fields=("tenant", "id"), name="budget_id_in_tenant")),
        migrations.CreateModel(
            name="Guardrail",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("measure", models.CharField(choices=[("spent", "Spent"), ("committed", "Spent and held")], max_length=10)),
                ("percent", models.PositiveSmallIntegerField()),
                ("action", models.CharField(choices=[("notify", "Notify"), ("no_bookings", "Notify, and take no new bookings")], max_length=12)),
                ("audience", models.CharField(choices=[("leads", "Project leads"), ("admins", "Tenant admins"), ("both", "Project leads and tenant admins")], default="both", max_length=8)),
                ("reached_at", models.DateTimeField(blank=True, help_text="Since when it acts; null while it does not.", null=True)),
                ("budget", models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="guardrails", to="billing.budget")),
                ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
            ],
            options={
                "ordering": ["percent", "measure", "action"],
                "constraints": [
                    models.UniqueConstraint(fields=("budget", "measure", "percent", "action"), name="guardrail_once"),
                    models.CheckConstraint(condition=Q(percent__gte=1, percent__lte=200), name="guardrail_percent"),
                    models.CheckConstraint(
                        condition=Q(measure__in=["spent", "committed"]) & Q(action__in=["notify", "no_bookings"]) & Q(audience__in=["leads", "admins", "both"]),
                        name="guardrail_choices",
                    ),
                ],
            },
        ),
        migrations.RunSQL(
            protect("billing_guardrail") + tenant_key("billing_guardrail", "budget_id", "billing_budget")
        ),
    ]
