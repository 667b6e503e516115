"""How the spend of budgets differs from plan and from usual days."""

import uuid

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import F, Q

from tenants.platform.wall import protect, tenant_key

# Written by tasks only.
WALL = protect("allocation_spendvariance", grants="SELECT") + tenant_key(
    "allocation_spendvariance", "budget_id", "billing_budget"
)


class Migration(migrations.Migration):
    dependencies = [
        ("allocation", "0043_requirements"),
        ("billing", "0013_variance_rules"),
    ]
    operations = [
        migrations.CreateModel(
            name="SpendVariance",
            fields=[
                ("id", models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ("day", models.DateField(help_text="The last day of UTC that counts.")),
                ("against", models.CharField(choices=[("weekday", "The same weekday before"), ("plan", "The plan")], max_length=7)),
                ("actual", models.DecimalField(decimal_places=6, max_digits=20)),
                ("expected", models.DecimalField(decimal_places=6, max_digits=20)),
                ("parts", models.JSONField(help_text="[{cause, amount, facts, bookings: [{booking, amount}]}]; amounts add up.")),
                ("is_unusual", models.BooleanField(help_text="Whether it crossed the budget's thresholds.")),
                ("at", models.DateTimeField()),
                ("budget", models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.PROTECT, related_name="+", to="billing.budget")),
                ("tenant", models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, to="tenants.tenant")),
            ],
            options={
                "ordering": ["-day", "against", "budget"],
                "indexes": [models.Index(fields=["tenant", "-day"], name="variance_day")],
                "constraints": [
                    models.UniqueConstraint(fields=("budget", "day", "against"), name="variance_once"),
                    models.CheckConstraint(condition=Q(against__in=["weekday", "plan"]), name="variance_against"),
                    models.CheckConstraint(condition=Q(is_unusual=False) | Q(actual__gt=F("expected")), name="variance_unusual_is_more"),
                ],
            },
        ),
        migrations.RunSQL(WALL),
    ]
