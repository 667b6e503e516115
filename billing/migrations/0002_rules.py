"""What the tables of money hold to: row-level security, rights, functions, triggers."""

from django.db import migrations

from billing.migrations.rules import (
    alerts,
    budgets,
    ledger,
    prices,
    rights,
)

# A function of SQL follows those that it calls, and rights that are taken follow what gives them.
ORDER = (
    ledger,
    budgets,
    prices,
    rights,
    alerts,
)


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0001_initial"),
        ("tenants", "0002_rules"),
    ]
    operations = [migrations.RunSQL(module.SQL) for module in ORDER]
